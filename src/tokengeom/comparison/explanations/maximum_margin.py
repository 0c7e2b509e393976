"""The prediction: L_mm, the smallest nuclear norm that separates every support from the other tokens [zhao2024]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tokengeom.comparison.explanations.base import AbstractRival, FactorFit, FitInputs
from tokengeom.comparison.target import LIMIT
from tokengeom.core.factors import Factors
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

    def fit(self, stats: NextTokenStatistics) -> FactorFit:
        prediction = self.prediction
        if prediction is None:
            prediction = predict(stats, spread_solves=0, tolerance=TOLERANCE)
        return FactorFit(Factors(prediction.W, prediction.H))
