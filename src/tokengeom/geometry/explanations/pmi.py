"""Shifted pointwise mutual information, which the skip-gram model with negative sampling factors [levy2014]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.geometry.explanations.base import AbstractLogitRival

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from tokengeom.geometry.rivals import RivalSettings
    from tokengeom.numerics import Float
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.theory.proxy import ProxyPrediction


@dataclass(frozen=True)
class ShiftedPMI(AbstractLogitRival):
    """``M[z,j] = max(log(p_jz / p_z) - log k, 0)``, positive shifted pointwise mutual information.

    where ``p_z = sum_j pi_j p_jz``, and k is the number of negative samples of the skip-gram model that factors
    PMI - log k. A pair that never occurs has PMI minus infinity, so its positive part is 0.
    """

    name: ClassVar[str] = "PMI"
    meaning: ClassVar[str] = "positive shifted pointwise mutual information"
    order: ClassVar[float] = 2
    k: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.k) and self.k > 0):
            raise ProblemError(f"The shift log k of PMI needs a finite k > 0; got k={self.k}. 1 means no shift.")

    @classmethod
    def of(cls, settings: RivalSettings, prediction: FeaturePrediction | ProxyPrediction | None) -> Self:
        """With the shift that the settings ask for."""
        return cls(settings.k)

    def values(self, P: csc_array, background: Float) -> Float:
        """Positive part of shifted PMI on observed pairs."""
        return np.asarray(np.maximum(np.log(P.data / background[P.indices]) - np.log(self.k), 0.0))
