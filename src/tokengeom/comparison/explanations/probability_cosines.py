"""Next-token probabilities at power 1: cosines of the centred probabilities themselves."""

from __future__ import annotations

import numpy as np

from tokengeom.comparison.explanations.base import AbstractLogitRival, ContextStatistics
from tokengeom.core.numerics import Float


class ProbabilityCosines(AbstractLogitRival):
    """``M[z,j] = p_jz - 1/V``; contexts are its columns and tokens its rows."""

    name = "cos P"
    meaning = "cosines of centred next-token probabilities"
    order = 5
    uses = "probabilities"
    power = 1.0

    def values(self, contexts: ContextStatistics, background: Float) -> Float:
        """The probabilities themselves."""
        return np.asarray(contexts.P.data)
