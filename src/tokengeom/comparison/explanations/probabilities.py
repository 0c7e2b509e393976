"""Next-token probabilities at power 1/2: contexts are alike where the same tokens are equally likely after both."""

from __future__ import annotations

import numpy as np

from tokengeom.comparison.explanations.base import AbstractLogitRival, ContextStatistics
from tokengeom.core.numerics import Float


class CentredProbabilities(AbstractLogitRival):
    """``M[z,j] = p_jz - 1/V``."""

    name = "P"
    meaning = "centred next-token probabilities, factored"
    order = 6
    uses = "probabilities"

    def values(self, contexts: ContextStatistics, background: Float) -> Float:
        return np.asarray(contexts.P.data)
