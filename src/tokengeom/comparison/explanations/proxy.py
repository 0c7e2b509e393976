"""The proxy: contexts are alike where the same tokens may follow both, however often [zhao2024]."""

from __future__ import annotations

import numpy as np

from tokengeom.comparison.explanations.base import AbstractLogitRival, ContextStatistics
from tokengeom.core.numerics import Float


class Proxy(AbstractLogitRival):
    """``M = S~ = (I - 11^T/V) S``."""

    name = "S~"
    meaning = "proxy: centred supports, factored"
    order = 4
    uses = "supports"

    def values(self, contexts: ContextStatistics, background: Float) -> Float:
        return np.ones(contexts.P.nnz)
