"""Centred supports at power 1: cosines of the supports themselves, without any factors [zhao2024]."""

from __future__ import annotations

import numpy as np

from tokengeom.comparison.explanations.base import AbstractLogitRival, ContextStatistics
from tokengeom.core.numerics import Float


class SupportCosines(AbstractLogitRival):
    """``M = S~ = (I - 11^T/V) S``; contexts are its columns and tokens its rows."""

    name = "cos S~"
    meaning = "cosines of centred supports"
    order = 3
    uses = "supports"
    power = 1.0

    def values(self, contexts: ContextStatistics, background: Float) -> Float:
        """1 on support."""
        return np.ones(contexts.P.nnz)
