"""Support groups: contexts that may be followed by the same tokens.

What a person should know before trusting statistics: plain sentences about degenerate or lossy cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

if TYPE_CHECKING:
    from tokengeom.statistics.next_token import NextTokenStatistics


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
    V, m = S.shape
    sizes = np.diff(S.indptr)
    first_of = np.empty(m, np.int64)
    for size in np.unique(sizes):
        columns = np.flatnonzero(sizes == size)
        supports = S.indices[S.indptr[columns][:, None] + np.arange(size)]
        first_of[columns] = columns[_first_equal(supports, V)]
    is_first = first_of == np.arange(m)
    number = np.cumsum(is_first) - 1
    label = number[first_of]
    return SupportGroups(label, np.bincount(label), sparse.csc_array(S[:, np.flatnonzero(is_first)]))


def _first_equal(supports: NDArray[np.int32], V: int) -> NDArray[np.int64]:
    """For each row of supports of one size, the first row that is equal to it."""
    rows, size = supports.shape
    if size == 1:
        # Most contexts of a long text are followed by one token: no need to sort millions of them.
        first = np.empty(V, np.int64)
        first[supports[::-1, 0]] = np.arange(rows)[::-1]
        return first[supports[:, 0]]
    # Equal rows are equal byte strings, which NumPy sorts much faster than rows of numbers.
    packed = np.ascontiguousarray(supports)
    keys = packed.view(np.dtype((np.void, packed.dtype.itemsize * size))).ravel()
    _, first_index, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first_index[inverse].astype(np.int64)


_MOSTLY = 0.9


def warnings_about(statistics: NextTokenStatistics) -> list[str]:
    """Sentences, none if all is well."""
    return [*_supports(statistics), *_reading(statistics)]


def _supports(statistics: NextTokenStatistics) -> list[str]:
    sizes, V = statistics.support_sizes, statistics.V
    share = statistics.one_hot_share
    full = float(np.mean(sizes == V))
    if V == 1:
        return ["The vocabulary has a single token: there is nothing to predict."]
    if share == 1:
        return [
            "Every context is followed by one token alone: this is one-hot classification, and supports carry no "
            "structure beyond the class. Take shorter contexts to see overlapping supports."
        ]
    if full == 1:
        return [
            "Every context can be followed by every token: supports carry no geometry. Take longer contexts, a larger "
            "vocabulary, or a support policy such as top-p:0.9."
        ]
    if share > _MOSTLY:
        return [
            f"{share:.0%} of the contexts are followed by one token alone. Shorter contexts, or the most frequent "
            "contexts only, have richer supports."
        ]
    return []


def _reading(statistics: NextTokenStatistics) -> list[str]:
    sentences = []
    short, documents = statistics.corpus.get("short_documents", 0), statistics.corpus.get("documents", 0)
    if short:
        sentences.append(
            f"Shorter than a window, and so not counted: {short:,} of {documents:,} documents; pad or take a "
            "shorter context to count them."
        )
    separators = [one for one in statistics.corpus.get("separators", []) if one != "file"]
    if separators and documents == len(statistics.corpus.get("sources", [])):
        sentences.append(
            f"The separator between documents ({', '.join(map(repr, separators))}) was not found: each source is one "
            "document, and contexts run through all of it."
        )
    replaced = statistics.corpus.get("replaced_bytes", 0)
    if replaced:
        sentences.append(f"{replaced:,} bytes were not valid UTF-8 and were read as U+FFFD.")
    return sentences
