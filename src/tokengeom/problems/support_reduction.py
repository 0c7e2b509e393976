"""Exact reduction of a support pattern: equal columns (support groups) and equal rows (tokens) are merged.

``L_red -> L = E_r L_red E_c^T``, ``||L||_* = ||diag(sqrt a) L_red diag(sqrt n)||_*``

where

``S``      support pattern, V x m boolean; ``S_red`` the pattern with every row and column once, V' x g
``a``      how many tokens share each row, V'
``n``      how many contexts share each column, g
``E_r``    V x V' and ``E_c`` m x g: the 0/1 matrices that repeat rows and columns

Averaging an optimal L over a permutation of equal rows or columns keeps it feasible and cannot raise a convex
norm, so some optimum is constant on the groups and the reduced problem has the same value
[zhao2024]. Contexts whose support is the whole vocabulary carry no margin
constraint; their column is 0 and they are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import ProblemError

if TYPE_CHECKING:
    from tokengeom.numerics import Float

Bool = NDArray[np.bool_]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class SupportReduction:
    """A support pattern with its repeated rows and columns merged.

    ``row_of``
        For each of the V tokens its row in ``S_red``.
    ``column_of``
        For each of the m contexts its column in ``S_red``; -1 where the support is the whole vocabulary.
    """

    S_red: Bool
    row_of: Int
    column_of: Int

    @property
    def a(self) -> Float:
        """Tokens per merged row."""
        return np.bincount(self.row_of, minlength=self.S_red.shape[0]).astype(np.float64)

    @property
    def n(self) -> Float:
        """Contexts per merged column."""
        kept = self.column_of[self.column_of >= 0]
        return np.bincount(kept, minlength=self.S_red.shape[1]).astype(np.float64)

    @property
    def V(self) -> int:
        """Number of tokens before merging."""
        return int(self.row_of.size)

    @property
    def m(self) -> int:
        """Number of contexts before merging."""
        return int(self.column_of.size)

    def expand(self, L_red: Float) -> Float:
        """Logits of the reduced problem as logits on all V x m; columns of full support become 0."""
        padded = np.concatenate([L_red, np.zeros((L_red.shape[0], 1))], axis=1)
        return np.asarray(padded[self.row_of][:, self.column_of])

    def expand_dual(self, G_red: Float) -> Float:
        """Bring a dual of the scaled reduced problem to all V x m, with the same spectral norm."""
        return self.expand(G_red / np.sqrt(self.a)[:, None] / np.sqrt(self.n))

    def reduce(self, L: Float) -> Float:
        """Average logits (V x m) over equal rows and columns: feasible stays feasible, no norm grows."""
        rows = np.zeros((self.S_red.shape[0], self.m))
        np.add.at(rows, self.row_of, L)
        rows /= self.a[:, None]
        kept = self.column_of >= 0
        out = np.zeros((self.S_red.shape[1], self.S_red.shape[0]))
        np.add.at(out, self.column_of[kept], rows.T[kept])
        return np.asarray((out / self.n[:, None]).T)


def as_support(S: Any) -> Bool:
    """Check a support pattern: V x m (dense or scipy sparse), at least one token in every context."""
    dense = np.asarray(S.toarray() if hasattr(S, "toarray") else S)
    if dense.ndim != 2 or 0 in dense.shape:
        raise ProblemError(
            f"A support pattern must be a V x m matrix with V, m >= 1; got S of shape {dense.shape}. "
            "Likely statistics without windows. Count a longer text or a shorter context."
        )
    if dense.dtype.kind == "f" and not np.isfinite(dense).all():
        raise ProblemError(
            "A support pattern must be 0 or 1 everywhere; S holds NaN or infinity. "
            "Likely a division by an empty row of counts. Pass the pattern of the counts themselves."
        )
    pattern: Bool = np.asarray(dense != 0)
    empty = np.flatnonzero(~pattern.any(axis=0))
    if empty.size:
        raise ProblemError(
            f"Every context must have at least one next token; {empty.size} of {pattern.shape[1]} columns of "
            f"S are empty, the first is column {empty[0]}. Likely a support policy whose threshold removed "
            "all of them. Lower the threshold or drop these contexts."
        )
    return pattern


def reduce_support(S: Any, *, merge: bool = True) -> SupportReduction:
    """Merge equal columns and equal rows of a pattern; ``merge=False`` only drops columns of full support."""
    pattern = as_support(S)
    V, m = pattern.shape
    full = pattern.all(axis=0)
    column_of = np.full(m, -1, dtype=np.int64)
    kept = np.flatnonzero(~full)
    columns, inverse = _first_of_equal(pattern[:, kept].T) if merge else (np.arange(kept.size), None)
    column_of[kept] = np.arange(kept.size) if inverse is None else inverse
    reduced = pattern[:, kept[columns]]
    if not merge or not kept.size:
        return SupportReduction(reduced, np.arange(V, dtype=np.int64), column_of)
    rows, row_of = _first_of_equal(reduced)
    return SupportReduction(np.ascontiguousarray(reduced[rows]), row_of, column_of)


def _first_of_equal(rows: Bool) -> tuple[Int, Int]:
    """Index of the first of each set of equal rows, in order of appearance, and each row's set."""
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return first[order].astype(np.int64), rank[inverse.ravel()].astype(np.int64)
