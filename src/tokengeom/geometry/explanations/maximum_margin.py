"""The prediction: L_mm, the smallest nuclear norm that separates every support from the other tokens [zhao2024]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from tokengeom.geometry.explanations.base import AbstractFit, AbstractRival
from tokengeom.geometry.similarity import centred_tokens
from tokengeom.solvers.soft_margin import separating_vector
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import ProxyPrediction

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from tokengeom.geometry.rivals import RivalSettings
    from tokengeom.numerics import Float, Int
    from tokengeom.statistics.next_token import NextTokenStatistics


@dataclass(frozen=True, eq=False)
class MaximumMargin(AbstractRival):
    """``M = L_mm``.

    ``prediction``
        The solution for the statistics that it is fitted to, where it is known; it is solved for otherwise.
    """

    name: ClassVar[str] = "L_mm"
    meaning: ClassVar[str] = "prediction: maximum-margin direction of the logits"
    order: ClassVar[float] = 6
    prediction: FeaturePrediction | None = None

    @classmethod
    def of(cls, settings: RivalSettings, prediction: FeaturePrediction | ProxyPrediction | None) -> Self | None:
        """With the prediction that was given; left out where only the proxy was, for statistics too large to solve."""
        return None if isinstance(prediction, ProxyPrediction) else cls(prediction)

    def fit(self, stats: NextTokenStatistics) -> MarginFit:
        """The solution for these statistics."""
        known = self.prediction
        return MarginFit(predict(stats, spread_solves=0) if known is None else known)


@dataclass(frozen=True, eq=False)
class MarginFit(AbstractFit):
    """Tokens and contexts of L_mm."""

    prediction: FeaturePrediction

    def tokens(self, tokens: Int) -> Float:
        """Rows of the predicted W."""
        return centred_tokens(self.prediction.W)[:, tokens]

    def contexts(self, columns: Int) -> Float:
        """Columns of the predicted H."""
        return np.asarray(self.prediction.H[:, columns])

    def place(self, P: csc_array) -> Float:
        """Smallest h with ``W h`` equal on support and at least 1 lower elsewhere, once per distinct support."""
        W, S = self.prediction.W, P.toarray() > 0
        distinct, group = np.unique(S, axis=1, return_inverse=True)
        if not distinct.size or W.shape[1] == 0:
            return np.zeros((W.shape[1], S.shape[1]))
        placed = np.stack([separating_vector(W, column) for column in distinct.T], axis=1)
        return np.asarray(placed[:, group.reshape(-1)])
