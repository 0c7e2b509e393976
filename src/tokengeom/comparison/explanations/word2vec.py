"""The matrix that word2vec factors by the theory of Karkada et al. [karkada2025]."""

from __future__ import annotations

import numpy as np

from tokengeom.comparison.explanations.base import AbstractLogitRival, ContextStatistics
from tokengeom.core.numerics import Float


class Word2Vec(AbstractLogitRival):
    """``M[z,j] = (P_zj - P_z P_j) / ((P_zj + P_z P_j) / 2)``.

    where ``P_zj = pi_j p_jz`` is the joint probability of token and context, ``P_z`` and ``P_j = pi_j`` are those of
    each alone. With ``x = p_jz / p_z`` it is ``2 (x - 1)/(x + 1)``, which is -2 where a pair never occurs. Before
    centring 2 is added, so that it is 0 there.
    """

    name = "word2vec"
    meaning = "matrix that word2vec factors, from joint probabilities"
    order = 10
    uses = "probabilities"

    def values(self, contexts: ContextStatistics, background: Float) -> Float:
        """``2 + 2 (x - 1)/(x + 1) = 4 x / (x + 1)``."""
        x = contexts.P.data / background[contexts.P.indices]
        return np.asarray(4.0 * x / (x + 1.0))
