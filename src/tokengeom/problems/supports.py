"""Support patterns: maps on V x m matrices that depend on the supports, and the merging of equal rows and columns.

Centring on the support, ``centre_on``, is the orthogonal projection on ``span{(e_z - e_z') e_j^T : z, z' in S_j}``.
The logits whose margins are all at least 0 form a cone C, column by column, with dual cone C*::

    C  = {L : L_zj = a_j for z in S_j,  L_vj <= a_j for v not in S_j}
    C* = {A : 1^T A = 0,  A <= 0 off support}

The multipliers of every margin problem lie in C*.

Equal columns (support groups) and equal rows (tokens) of a pattern are merged without changing the optimum::

    L = E_r L_red E_c^T,    ||L||_* = ||diag(sqrt a) L_red diag(sqrt n)||_*

where

``S``      support pattern, V x m boolean; ``S_red`` the pattern with every row and column once, V' x g
``a``      number of tokens that share each row, V'
``n``      number of contexts that share each column, g
``E_r``    V x V' and ``E_c`` m x g: the 0/1 matrices that repeat rows and columns

Every optimum is constant on the groups: with ``L = L_bar + D``, D the deviations from the group means, ``L_bar D^T =
0``, so ``L L^T = L_bar L_bar^T + D D^T`` and the nuclear norm of L is larger than that of L_bar unless D = 0.
Contexts whose support is the whole vocabulary have no margin constraint; their column is 0 and they are left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Bool, Float, Int, Matrix
from tokengeom.core.resources import require_memory


def centre_on(T: Bool, X: Float) -> Float:
    """Each column minus its mean over ``T_j``, and 0 outside ``T_j``: an orthogonal projection."""
    inside = np.where(T, X, 0.0)
    mean = inside.sum(axis=0) / np.maximum(T.sum(axis=0), 1)
    return np.where(T, inside - mean, 0.0)


def cone_levels(X: Float, S: Bool, start: Float | None = None) -> tuple[Float, Bool]:
    """Levels ``a`` and active sets ``T`` of the projection of X on C: ``a_j`` is the mean of X over ``T_j``.

    ``a_j`` solves ``|S_j| (a - mean_in x) = sum_off (x_v - a)_+``. Left minus right side is concave and increasing, so
    Newton's method (the mean over the active set) rises to the root after its first step, from any ``start``; it ends
    when the active set repeats.
    """
    a = np.sum(X, axis=0, where=S) / S.sum(axis=0) if start is None else start
    T = S | (a < X)
    for _ in range(X.shape[0] + 1):
        a = np.einsum("vj,vj->j", X, T.astype(np.float64)) / T.sum(axis=0)
        grown = S | (a < X)
        if np.array_equal(grown, T):
            break
        T = grown
    return a, T


def project_on_dual_cone(X: Float, S: Bool, start: Float | None = None) -> tuple[Float, Float]:
    """The projection of X on C* and its levels, by Moreau's decomposition ``P_{C*}(X) = X + P_C(-X)``."""
    a, T = cone_levels(-X, S, start)
    return np.where(T, X + a, 0.0), a


def repair_multipliers(A: Float, S: Bool) -> Float:
    """A member of C* near A: off-support entries clipped at 0, column sums restored on support."""
    clipped = np.where(S, A, np.minimum(A, 0.0))
    return np.where(S, clipped - clipped.sum(axis=0) / S.sum(axis=0), clipped)


def margins(L: Float, S: Bool) -> Float:
    """In-support mean minus each off-support logit, V x m; ``+inf`` on support."""
    level = np.where(S, L, 0.0).sum(axis=0) / S.sum(axis=0)
    return np.where(S, np.inf, level - L)


def in_support_spread(L: Float, S: Bool) -> float:
    """Largest distance of an in-support logit from its column's in-support mean; 0 when all are equal."""
    return float(np.max(np.abs(centre_on(S, L)), initial=0.0))


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
        """Tokens per merged row, V'."""
        return np.bincount(self.row_of, minlength=self.S_red.shape[0]).astype(np.float64)

    @property
    def n(self) -> Float:
        """Contexts per merged column, g."""
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
        """Logits of the merged problem as logits on all V x m; columns of full support become 0."""
        padded = np.concatenate([L_red, np.zeros((L_red.shape[0], 1))], axis=1)
        return np.asarray(padded[self.row_of][:, self.column_of])

    def expand_dual(self, G_red: Float) -> Float:
        """A dual of the scaled merged problem on all V x m, with the same spectral norm."""
        return self.expand(G_red / np.sqrt(self.a)[:, None] / np.sqrt(self.n))

    def svd(self, L_red: Float, smallest: float) -> tuple[Float, Float, Float]:
        """Singular triplets (V' x r, r, r x g) of ``diag(sqrt a) L_red diag(sqrt n)``, whose values are those of L.

        Singular values of at most ``smallest`` times the largest are left out.
        """
        U, s, Vt = np.linalg.svd(L_red * np.sqrt(self.a)[:, None] * np.sqrt(self.n), full_matrices=False)
        r = int((s > smallest * s[0]).sum()) if s.size else 0
        return U[:, :r], s[:r], Vt[:r]

    def token_factor(self, U: Float, s: Float) -> Float:
        """``W``, V x r, of the balanced factors ``L = W H`` with triplets from `svd`."""
        return np.asarray((U / np.sqrt(self.a)[:, None] * np.sqrt(s))[self.row_of])

    def context_factor(self, s: Float, Vt: Float) -> Float:
        """``H``, r x m, of the balanced factors ``L = W H`` with triplets from `svd`; 0 for a full support."""
        scaled = np.sqrt(s)[:, None] * Vt / np.sqrt(self.n)
        padded = np.concatenate([scaled, np.zeros((s.size, 1))], axis=1)
        return np.asarray(padded[:, self.column_of])

    def reduce(self, L: Float) -> Float:
        """Logits (V x m) averaged over equal rows and columns; feasible logits stay feasible and no norm grows."""
        rows = np.zeros((self.S_red.shape[0], self.m))
        np.add.at(rows, self.row_of, L)
        rows /= self.a[:, None]
        kept = self.column_of >= 0
        out = np.zeros((self.S_red.shape[1], self.S_red.shape[0]))
        np.add.at(out, self.column_of[kept], rows.T[kept])
        return np.asarray((out / self.n[:, None]).T)

    def equals(self, other: SupportReduction) -> bool:
        """Whether both merge the same pattern in the same order."""
        return all(map(np.array_equal, vars(self).values(), vars(other).values()))


def as_support(S: Matrix) -> Bool:
    """A checked V x m support pattern (dense or scipy sparse) with at least one token in every context."""
    pattern = np.asarray(S.toarray() if hasattr(S, "toarray") else S)
    _require_pattern(pattern.shape, pattern)
    support: Bool = np.asarray(pattern != 0)
    _require_pattern(pattern.shape, has_token=np.asarray(support.any(axis=0)))
    return support


def reduce_support(S: Matrix, *, merge: bool = True, memory_limit: int | None = None) -> SupportReduction:
    """Merge equal columns and equal rows of a pattern; ``merge=False`` only drops columns of full support.

    Columns and rows are grouped without making a scipy sparse pattern dense. Only the merged pattern (V' x g) becomes
    dense, and is refused where its distinct columns (V x g) would not fit in ``memory_limit`` bytes (by default what is
    free).
    """
    given: Any = S if hasattr(S, "tocsc") else as_support(S)
    _require_pattern(given.shape)
    table: csc_array = csc_array(given, copy=True)
    table.eliminate_zeros()
    sizes = np.diff(table.indptr)
    _require_pattern(table.shape, table.data, sizes > 0)
    V, m = table.shape
    pattern = csc_array((np.ones(table.nnz, np.bool_), table.indices, table.indptr), shape=(V, m))
    row_of, column_of = merge_equal(pattern) if merge else (np.arange(V), np.arange(m))
    kept = np.flatnonzero(sizes < V)
    _, first, group = np.unique(column_of[kept], return_index=True, return_inverse=True)
    column_of = np.full(m, -1, dtype=np.int64)
    column_of[kept] = group.reshape(-1)
    require_memory(
        V * first.size,
        f"The pattern of distinct supports ({V} x {first.size})",
        "Use predict_proxy(stats), which never makes a dense matrix.",
        memory_limit,
    )
    if not kept.size:
        row_of = np.arange(V)
    rows = np.unique(row_of, return_index=True)[1]
    reduced = pattern[:, kept[first]].tocsr()[rows].toarray()
    return SupportReduction(reduced, row_of.astype(np.int64), column_of)


def merge_equal(P: csc_array, shares: Float | None = None) -> tuple[Int, Int]:
    """Row of each row, and column of each column, of a sparse matrix with equal ones merged, in order of appearance.

    Given ``shares``, columns of equal shares only.
    """
    P = P.sorted_indices()
    ends, of = P.indptr, np.zeros(P.shape[1]) if shares is None else shares
    columns = [
        (P.indices[i:j].tobytes(), P.data[i:j].tobytes(), float(share))
        for i, j, share in zip(ends[:-1], ends[1:], of, strict=True)
    ]
    first, column_of = first_of_equal(columns)
    # Rows are compared on distinct columns: equal columns have equal entries in every row.
    rows = P[:, first].tocsr().sorted_indices()
    starts, ends = rows.indptr[:-1], rows.indptr[1:]
    keys = [(rows.indices[i:j].tobytes(), rows.data[i:j].tobytes()) for i, j in zip(starts, ends, strict=True)]
    return first_of_equal(keys)[1], column_of


def first_of_equal(keys: Iterable[Hashable]) -> tuple[Int, Int]:
    """Index of the first of each set of equal keys, in order of appearance, and each key's set."""
    sets: dict[Hashable, int] = {}
    first: list[int] = []
    group: list[int] = []
    for j, key in enumerate(keys):
        group.append(sets.setdefault(key, len(first)))
        if group[-1] == len(first):
            first.append(j)
    return np.array(first, dtype=np.int64), np.array(group, dtype=np.int64)


def _require_pattern(
    shape: tuple[int, ...], entries: NDArray[Any] | None = None, has_token: Bool | None = None
) -> None:
    """Refuse a pattern that is no matrix or not finite, or where a context has no token."""
    if len(shape) != 2 or 0 in shape:
        raise ProblemError(
            f"A support pattern must be a V x m matrix with V, m >= 1; got S of shape {shape}. "
            "Likely statistics without windows. Count a longer text, or use a shorter context."
        )
    if entries is not None and entries.dtype.kind == "f" and not np.isfinite(entries).all():
        raise ProblemError(
            "A support pattern must be 0 or 1 everywhere; S holds NaN or infinity. "
            "Likely a division by an empty row of counts. Pass the pattern of the counts themselves."
        )
    if has_token is not None and not has_token.all():
        empty = np.flatnonzero(~has_token)
        raise ProblemError(
            f"Every context must have at least one next token; {empty.size} of {has_token.size} columns of "
            f"S are empty, the first is column {empty[0]}. Likely a support policy whose threshold removed "
            "all of them. Lower the threshold or drop these contexts."
        )
