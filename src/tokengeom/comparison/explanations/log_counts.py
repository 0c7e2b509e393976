"""Log-counts with add-alpha smoothing: the logits of a smoothed n-gram model [chen1999]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.comparison.explanations.base import AbstractGridRival, AbstractLogitRival, ContextStatistics
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float


@dataclass(frozen=True)
class LogCounts(AbstractGridRival, AbstractLogitRival):
    """``M[z,j] = log((n_jz + alpha) / (n_j + alpha V))``, centred, at power 1/2 or 1.

    where ``n_jz`` is how often token z followed context j and ``n_j = sum_z n_jz``. The denominator and ``log alpha``
    are the same for all tokens, so that before centring M is ``log(1 + n_jz / alpha)``, 0 off support.
    """

    name = "log-counts"
    meaning = "logarithms of counts with add-alpha smoothing"
    order = 8
    uses = "counts"
    parameter = "alpha"
    symbol = "alpha"
    grid = (0.001, 0.01, 0.1, 1.0, 10.0)
    parameters = "alpha, power"
    alpha: float = 1.0
    power: float = 0.5

    def __post_init__(self) -> None:
        if not (np.isfinite(self.alpha) and self.alpha > 0):
            raise ProblemError(f"Smoothing needs a finite alpha > 0; got alpha={self.alpha}. 1 is usual.")

    def values(self, contexts: ContextStatistics, background: Float) -> Float:
        return np.asarray(np.log1p(contexts.counts / self.alpha))
