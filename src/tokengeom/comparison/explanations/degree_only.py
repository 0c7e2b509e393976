"""Degrees alone: supports are random, given in how many contexts each token occurs and how many tokens follow each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.comparison.explanations.base import AbstractFit, AbstractRival
from tokengeom.core.numerics import Float, Int, centre_columns
from tokengeom.statistics.next_token import NextTokenStatistics


class DegreeOnly(AbstractRival):
    """Expected Gram matrices of centred supports ``C S``, ``C = I - 11^T/V``, in the configuration model.

    S has independent entries, 1 with probability ``Q[z,j] = min(a_z k_j / N, 1)``, where
        a   number of contexts of each token, V
        k   number of next tokens of each context, m
        N   number of pairs, ``sum_z a_z = sum_j k_j``

    Entries have variances ``R = Q (1 - Q)``, so that column j of S has the covariance ``diag_z(R[z,j])``, and
    ``tr(C diag_z(R[z,j])) = (1 - 1/V) sum_z R[z,j]``. With columns independent of one another:

    ``E (C S)^T (C S) = (C Q)^T (C Q) + (1 - 1/V) diag_j(sum_z R[z,j])``

    ``E (C S) (C S)^T = C (Q Q^T + diag_z(sum_j R[z,j])) C``

    Each is a part that items share and an own direction per item. Items with equal degrees have equal probabilities, so
    the shared part has one coordinate per distinct degree, times the root of how many items have it.
    """

    name = "degree only"
    meaning = "only in how many contexts each token occurs"
    order = 0.5
    uses = "numbers of contexts and next tokens"

    def fit(self, stats: NextTokenStatistics) -> DegreeFit:
        a = np.bincount(stats.table.indices, minlength=stats.V)
        return DegreeFit(a.astype(np.float64), stats.support_sizes.astype(np.float64))


@dataclass(frozen=True, eq=False)
class DegreeFit(AbstractFit):
    """Vectors from the degrees of tokens (a, V) and of contexts (k, m)."""

    a: Float
    k: Float

    def tokens(self, tokens: Int) -> Float:
        """Columns of ``[Q^T; diag(sum_j R[z,j])^{1/2}] C``."""
        k, number = np.unique(self.k, return_counts=True)
        Q = self._probabilities(self.a, k)
        own = np.sqrt((Q * (1.0 - Q)) @ number)
        apart = np.zeros((own.size, tokens.size))
        apart[tokens, np.arange(tokens.size)] = own[tokens]
        shared = np.sqrt(number)[:, None] * centre_columns(Q)[tokens].T
        return np.vstack([shared, apart - own[:, None] / own.size])

    def contexts(self, columns: Int) -> Float:
        """Columns of ``C Q``, then ``((1 - 1/V) sum_z R[z,j])^{1/2}`` in a direction of their own."""
        a, number = np.unique(self.a, return_counts=True)
        Q, V = self._probabilities(a, self.k[columns]), self.a.size
        own = np.sqrt((1.0 - 1.0 / V) * (number @ (Q * (1.0 - Q))))
        return np.vstack([np.sqrt(number)[:, None] * (Q - number @ Q / V), np.diag(own)])

    def _probabilities(self, a: Float, k: Float) -> Float:
        return np.asarray(np.minimum(np.outer(a, k) / self.k.sum(), 1.0))
