"""The prediction: L_mm, the smallest nuclear norm that separates every support from the other tokens [zhao2024]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom.comparison.explanations.base import AbstractFactorFit, AbstractRival, ContextStatistics, FitInputs
from tokengeom.comparison.target import LIMIT
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float
from tokengeom.solvers.margin import separating_vector
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict

TOLERANCE = 1e-5
"""Proven relative gap where L_mm is solved for here."""


@dataclass(frozen=True, eq=False)
class MaximumMargin(AbstractRival):
    """``M = L_mm``.

    ``prediction``
        The solution for the statistics that it is fitted to, where it is known; it is solved for otherwise.
    """

    name: ClassVar[str] = LIMIT.info.name
    meaning: ClassVar[str] = LIMIT.info.meaning
    order: ClassVar[float] = 12
    uses: ClassVar[str] = LIMIT.info.uses
    quick: ClassVar[bool] = False
    ours: ClassVar[bool] = True
    prediction: FeaturePrediction | None = None

    @classmethod
    def candidates(cls, known: FitInputs) -> Sequence[AbstractRival]:
        """With the prediction that was given; left out where the statistics are too large to solve for."""
        return [] if known.proxy_only else [cls(known.prediction)]

    def fit(self, stats: NextTokenStatistics) -> MarginFit:
        """The solution for these statistics."""
        prediction = self.prediction
        if prediction is None:
            prediction = predict(stats, spread_solves=0, tolerance=TOLERANCE)
        return MarginFit(Factors(prediction.W, prediction.H))


@dataclass(frozen=True, eq=False)
class MarginFit(AbstractFactorFit):
    """Tokens and contexts of L_mm."""

    def place(self, contexts: ContextStatistics) -> Float:
        """Smallest h with ``W h`` equal on support and at least 1 lower elsewhere, once per distinct support."""
        W, S = self.factors.W, contexts.P.toarray() > 0
        distinct, group = np.unique(S, axis=1, return_inverse=True)
        if not distinct.size or W.shape[1] == 0:
            return np.zeros((W.shape[1], S.shape[1]))
        placed = np.stack([separating_vector(W, column) for column in distinct.T], axis=1)
        return np.asarray(placed[:, group.reshape(-1)])
