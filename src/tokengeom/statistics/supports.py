"""Support groups: contexts that may be followed by the same tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


@dataclass(frozen=True, eq=False)
class SupportGroups:
    """Distinct supports and who shares them.

    ``label``
        Group of each context, shape m. Groups are numbered in the order of their first context.
    ``multiplicity``
        Number of contexts in each group.
    ``S``
        The distinct supports, V x g of zeros and ones, one column a group.
    """

    label: NDArray[np.int64]
    multiplicity: NDArray[np.int64]
    S: sparse.csc_array

    @property
    def count(self) -> int:
        """Number g of distinct supports."""
        return int(self.multiplicity.size)

    def members(self, group: int) -> NDArray[np.int64]:
        """The contexts of one group."""
        return np.flatnonzero(self.label == group)


def group_supports(S: sparse.csc_array) -> SupportGroups:
    """Find contexts with equal supports, exactly: sizes first, then whole supports compared, never a hash.

    ``S`` is V x m with sorted row indices.
    """
    sizes = np.diff(S.indptr)
    representative = np.empty(S.shape[1], np.int64)
    for size in np.unique(sizes):
        columns = np.flatnonzero(sizes == size)
        entries = S.indptr[columns][:, None] + np.arange(size)
        # Equal rows are equal byte strings, which NumPy sorts much faster than rows of numbers.
        supports = np.ascontiguousarray(S.indices[entries])
        keys = supports.view(np.dtype((np.void, supports.dtype.itemsize * int(size)))).ravel()
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        representative[columns] = columns[first][inverse]
    first_columns, label, multiplicity = np.unique(representative, return_inverse=True, return_counts=True)
    return SupportGroups(label.astype(np.int64), multiplicity.astype(np.int64), sparse.csc_array(S[:, first_columns]))
