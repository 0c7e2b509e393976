"""Merging: tokens with equal rows of P become one row, contexts with equal columns of P one column.

Why it is exact depends on the norm: ``regularised_logits`` (nuclear; columns with equal shares only) and
``gamma2_logits`` (columns with any shares).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from scipy.sparse import csc_array

from tokengeom.core.numerics import Float, Int
from tokengeom.problems.backend import Backend
from tokengeom.problems.regularised_logits import RegularisedLogits


@final
@dataclass(frozen=True, eq=False)
class Merging:
    """Which tokens are one row, and which contexts one column, of a merged problem.

    ``row_of``, ``column_of``
        Row of each token, V, and column of each context, m.
    """

    row_of: Int
    column_of: Int

    @staticmethod
    def of(P: csc_array, pi: Float | None = None) -> Merging:
        """Merge equal rows and equal columns of sparse probabilities; given shares, columns of equal shares only."""
        P = P.sorted_indices()
        ends = P.indptr
        shares = np.zeros(P.shape[1]) if pi is None else pi
        columns = [
            (P.indices[i:j].tobytes(), P.data[i:j].tobytes(), float(share))
            for i, j, share in zip(ends[:-1], ends[1:], shares, strict=True)
        ]
        column_of = _groups(columns)
        first = np.unique(column_of, return_index=True)[1]
        # Rows are compared on distinct columns: equal columns have equal entries in every row.
        rows = P[:, first].tocsr().sorted_indices()
        starts, ends = rows.indptr[:-1], rows.indptr[1:]
        keys = [(rows.indices[i:j].tobytes(), rows.data[i:j].tobytes()) for i, j in zip(starts, ends, strict=True)]
        return Merging(_groups(keys), column_of)

    @cached_property
    def a(self) -> Float:
        """Tokens per row, V'."""
        return np.bincount(self.row_of).astype(np.float64)

    @cached_property
    def n(self) -> Float:
        """Contexts per column, m'."""
        return np.bincount(self.column_of).astype(np.float64)

    @property
    def entries(self) -> int:
        """Size of the merged problem, V' times m'."""
        return int(self.a.size * self.n.size)

    def problem(self, P: csc_array, pi: Float, lam: float, backend: Backend) -> RegularisedLogits:
        """The regularised loss on merged tokens and contexts."""
        rows = np.unique(self.row_of, return_index=True)[1]
        columns = np.unique(self.column_of, return_index=True)[1]
        merged = csc_array(P.tocsr()[rows].tocsc()[:, columns])
        return RegularisedLogits.from_probabilities(merged, self.shares(pi), lam, a=self.a, n=self.n, backend=backend)

    def shares(self, pi: Float) -> Float:
        """Share of all contexts of each column together, m'."""
        shares = np.bincount(self.column_of, weights=pi)
        return np.asarray(shares / shares.sum())


def _groups(keys: Iterable[object]) -> Int:
    """Number of the group of equal keys that each key is in, in order of appearance."""
    seen: dict[object, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
