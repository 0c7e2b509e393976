"""Neural collapse: tokens on a simplex frame, each context at its most frequent next token [papyan2020]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.comparison.explanations.base import AbstractFit, AbstractRival, ContextStatistics, most_frequent
from tokengeom.core.numerics import Float, Int
from tokengeom.statistics.next_token import NextTokenStatistics


class SimplexFrame(AbstractRival):
    """Tokens ``I - 11^T/V``, equiangular; a context is at the vertex of its token.

    Neural collapse is stated for one-hot labels. With soft labels a context is placed at the vertex of its most
    frequent next token, or at the mean of the vertices where several are equally frequent: the one-hot label that fits
    it best.
    """

    name = "ETF"
    meaning = "simplex frame of neural collapse, each context at its most frequent next token"
    order = 1
    uses = "most frequent next tokens"

    def fit(self, stats: NextTokenStatistics) -> FrameFit:
        return FrameFit(ContextStatistics.of(stats))


@dataclass(frozen=True, eq=False)
class FrameFit(AbstractFit):
    """The simplex frame on the tokens of the contexts' probabilities (V x m)."""

    fitted_to: ContextStatistics

    def tokens(self, tokens: Int) -> Float:
        V = self.fitted_to.P.shape[0]
        vertices = np.full((V, tokens.size), -1.0 / V)
        vertices[tokens, np.arange(tokens.size)] += 1.0
        return vertices

    def contexts(self, columns: Int) -> Float:
        P = self.fitted_to.P[:, columns].copy()
        P.data = most_frequent(P)
        return np.asarray(P.toarray() - 1.0 / P.shape[0])
