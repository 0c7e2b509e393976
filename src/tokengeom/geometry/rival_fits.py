"""What a rival explanation gives once it is fitted: its tokens, its contexts, and places for contexts that are new.

Tokens and contexts are given for chosen items only, as columns, so that no matrix is larger than factors times items.
A new context comes with its own next-token probabilities, and its place follows from the tokens that are there:

logits M    the smallest h with ``W h`` nearest to its column of M: ``h = Sigma^{-1/2} U^T M_j``
L_mm        the smallest h that separates its support: ``W h`` equal on support and at least 1 lower elsewhere
frame       the vertex of its commonest next token

On the contexts that the tokens were made from, each of these gives back the contexts' own places: given W, the factors H
of smallest norm are found column by column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.geometry.similarity import centred_tokens
from tokengeom.numerics import centre_columns
from tokengeom.solvers.soft_margin import separating_vector
from tokengeom.theory.closed_forms import RANK_TOLERANCE, SVD_SIDE
from tokengeom.theory.proxy import leading_triplets

if TYPE_CHECKING:
    from tokengeom.numerics import Float, Int
    from tokengeom.theory.features import FeaturePrediction

MOST_ENTRIES = 4_000_000
"""Entries V m up to which all singular vectors are found (a few seconds); beyond it the leading ones."""
COMPONENTS = 256
"""Leading singular vectors of a larger matrix."""
ROUNDING = 1e-13
"""Probabilities and logarithms of size 1 below this are 0: a mean was taken off."""
TIE = 1e-9
"""Probabilities that differ by less than this share are equally common."""


class AbstractFit(ABC):
    """A rival fitted to statistics of m contexts and V tokens."""

    @abstractmethod
    def tokens(self, tokens: Int) -> Float:
        """Tokens of these tokens as columns, the mean over the whole vocabulary removed."""

    @abstractmethod
    def contexts(self, columns: Int) -> Float:
        """Contexts that it was fitted to, as columns; 0 where none is given a direction."""

    @abstractmethod
    def place(self, P: Any) -> Float:
        """Contexts with next-token probabilities P (V x k, sparse by columns), as columns."""

    @property
    def is_truncated(self) -> bool:
        """Whether only leading singular vectors were kept."""
        return False


@dataclass(frozen=True, eq=False)
class LogitFit(AbstractFit):
    """Factors of centred logits: ``U`` (V x r), ``s`` (r), and the rule that makes logits of probabilities."""

    P: Any
    rule: Callable[[Any], Float]
    U: Float
    s: Float
    is_truncated: bool = False

    @staticmethod
    def of(P: Any, rule: Callable[[Any], Float]) -> LogitFit:
        """Factor the rule's logits: all singular vectors, or the leading ones of a large matrix."""
        M, side = _with_values(P, rule(P)), min(P.shape)
        if side <= SVD_SIDE and P.shape[0] * P.shape[1] <= MOST_ENTRIES:
            U, s, _ = np.linalg.svd(centre_columns(M.toarray()), full_matrices=False)
        else:
            U, s, _ = leading_triplets(M, min(COMPONENTS, side - 1))
        r = int((s > RANK_TOLERANCE * s[0]).sum())
        return LogitFit(P, rule, U[:, :r], s[:r], U.shape[1] < side)

    def tokens(self, tokens: Int) -> Float:
        """``U Sigma^{1/2}``, whose columns sum to 0 as those of M do."""
        return np.asarray((self.U[tokens] * np.sqrt(self.s)).T)

    def contexts(self, columns: Int) -> Float:
        """``Sigma^{1/2} V^T``, from ``U^T M = Sigma V^T``."""
        return self.place(self.P[:, columns])

    def place(self, P: Any) -> Float:
        """Least squares on the tokens."""
        # The columns of U sum to 0, so that M need not be centred first.
        M = _with_values(P, self.rule(P))
        inside = (M.T @ self.U).T
        size = np.sqrt(np.asarray(M.multiply(M).sum(axis=0))).ravel()
        # A column of equal logits has no direction, whatever its rounding errors point at.
        inside[:, np.linalg.norm(inside, axis=0) <= RANK_TOLERANCE * size] = 0.0
        return np.asarray(inside / np.sqrt(self.s)[:, None])


@dataclass(frozen=True, eq=False)
class MarginFit(AbstractFit):
    """Tokens and contexts of L_mm."""

    prediction: FeaturePrediction

    def tokens(self, tokens: Int) -> Float:
        """Rows of the predicted W."""
        return centred_tokens(self.prediction.W)[:, tokens]

    def contexts(self, columns: Int) -> Float:
        """Columns of the predicted H."""
        return np.asarray(self.prediction.H[:, columns])

    def place(self, P: Any) -> Float:
        """Largest margins, once for contexts of one support."""
        W, S = self.prediction.W, P.toarray() > 0
        distinct, group = np.unique(S, axis=1, return_inverse=True)
        if not distinct.size or W.shape[1] == 0:
            return np.zeros((W.shape[1], S.shape[1]))
        placed = np.stack([separating_vector(W, column) for column in distinct.T], axis=1)
        return np.asarray(placed[:, group.reshape(-1)])


@dataclass(frozen=True, eq=False)
class FrameFit(AbstractFit):
    """The simplex frame on the tokens of P (V x m)."""

    P: Any

    def tokens(self, tokens: Int) -> Float:
        """Vertices ``e_z - 1/V``."""
        V = self.P.shape[0]
        vertices = np.full((V, tokens.size), -1.0 / V)
        vertices[tokens, np.arange(tokens.size)] += 1.0
        return vertices

    def contexts(self, columns: Int) -> Float:
        """The same rule for all contexts."""
        return self.place(self.P[:, columns])

    def place(self, P: Any) -> Float:
        """Mean of the vertices of the commonest next tokens."""
        dense = P.toarray()
        common = dense >= (1.0 - TIE) * dense.max(axis=0)
        return np.asarray(common / common.sum(axis=0) - 1.0 / dense.shape[0])


def _with_values(P: Any, values: Float) -> Any:
    from scipy.sparse import csc_array

    exact = np.where(np.abs(values) > ROUNDING, values, 0.0)
    return csc_array((exact, P.indices, P.indptr), shape=P.shape)
