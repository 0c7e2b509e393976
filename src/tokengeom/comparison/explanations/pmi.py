"""Shifted pointwise mutual information, which the skip-gram model with negative sampling factors [levy2014]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.comparison.explanations.base import AbstractGridRival, AbstractLogitRival, ContextStatistics
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float


@dataclass(frozen=True)
class ShiftedPMI(AbstractGridRival, AbstractLogitRival):
    """``M[z,j] = max(log(p_jz / p_z) - log k, 0)``, positive shifted pointwise mutual information, at power 1/2 or 1.

    where ``p_z = sum_j pi_j p_jz``, and k is the number of negative samples of the skip-gram model that factors
    PMI - log k. A pair that never occurs has PMI minus infinity, so its positive part is 0.
    """

    name = "PMI"
    meaning = "positive shifted pointwise mutual information"
    order = 9
    uses = "probabilities"
    parameter = "k"
    symbol = "k"
    grid = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0)  # below 1, pairs rarer than by chance count
    parameters = "k, power"
    k: float = 1.0
    power: float = 0.5

    def __post_init__(self) -> None:
        if not (np.isfinite(self.k) and self.k > 0):
            raise ProblemError(f"The shift log k of PMI needs a finite k > 0; got k={self.k}. 1 means no shift.")

    def values(self, contexts: ContextStatistics, background: Float) -> Float:
        P = contexts.P
        return np.asarray(np.maximum(np.log(P.data / background[P.indices]) - np.log(self.k), 0.0))
