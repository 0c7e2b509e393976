"""Supports of contexts in the sparse V x m table behind statistics: which are equal, and warnings about them.

The support of a context is the set of tokens that may follow it: the rows of its column that are not zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Float, Int, refuse_dropped_parts
from tokengeom.core.resources import free_memory, require_memory

if TYPE_CHECKING:
    from tokengeom.statistics.next_token import NextTokenStatistics

COLUMNS_AT_ONCE = 1 << 18
"""Contexts that are worked on at a time where an array for all of them would be large."""
_SUM_TOLERANCE = 1e-9
_MOSTLY = 0.9
_INCOMPLETE = 0.01
"""Share of further windows outside the supports from which on it is mentioned."""
_FEWEST, _MOST_CONTEXTS = 3, 1000
"""Fewest and most contexts whose supports in half of the text are compared."""

LARGEST_TOTAL = 2.0**62
"""Largest number of windows."""


def as_matrix(given: ArrayLike | sparse.sparray | sparse.spmatrix) -> sparse.coo_array:
    """A dense or sparse V x m matrix of real numbers, with its entries unchanged."""
    try:
        refuse_dropped_parts(given)
        matrix: Any = given if sparse.issparse(given) else np.asarray(given)
        refuse_dropped_parts(matrix)
    except (TypeError, ValueError) as error:
        raise StatisticsError(f"Statistics are made from a V x m matrix of numbers: {error}") from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "iuf":
        raise StatisticsError(
            f"Statistics are made from a V x m matrix of real numbers, with one column per context; got "
            f"{type(given).__name__} with {matrix.ndim} dimensions of {matrix.dtype}. To count a text, call tg.count."
        )
    if not sparse.issparse(matrix):
        # One byte per entry finds those that are not 0, and each of these is kept with its place.
        needed = int(matrix.size if matrix.size > free_memory() else 24 * np.count_nonzero(matrix))
        require_memory(
            needed, f"A table of {matrix.shape[0]:,} x {matrix.shape[1]:,}", "Pass a sparse matrix of SciPy."
        )
    return sparse.coo_array(matrix)


def canonical(given: sparse.sparray) -> sparse.csc_array:
    """The matrix in CSC form, without duplicate entries or explicit zeros, with sorted rows."""
    table = sparse.csc_array(given)
    table.sum_duplicates()
    table.eliminate_zeros()
    table.sort_indices()
    return table


def column_sums_in_parts(values: NDArray[Any], indptr: NDArray[np.integer[Any]]) -> Iterator[Int]:
    """Sums of whole numbers within each column of a CSC matrix, for some columns at a time.

    They are differences of a running sum, which is exact, and much faster than adding up millions of short stretches.
    """
    for part in _parts(indptr.size - 1):
        ends = indptr[part.start : part.stop + 1]
        running = np.concatenate(([0], np.cumsum(values[ends[0] : ends[-1]], dtype=np.int64)))
        yield np.diff(running[ends - ends[0]])


def column_sums(values: NDArray[Any], indptr: NDArray[np.integer[Any]]) -> Int:
    """Sums of whole numbers within each column of a CSC matrix, m of int64."""
    sums = np.empty(indptr.size - 1, np.int64)
    end = 0
    for part in column_sums_in_parts(values, indptr):
        begin, end = end, end + part.size
        sums[begin:end] = part
    return sums


def check_table(table: sparse.csc_array, pi: Float | None) -> None:
    """Refuse a table that is not one of counts (``pi`` is None) or of probabilities, naming the first fault."""
    V, m = table.shape
    if V < 1 or m < 1:
        raise StatisticsError(f"Statistics need at least one token and one context; got V={V} and m={m}.")
    if not np.isfinite(table.data).all() or (table.data <= 0).any():
        raise StatisticsError("Counts and probabilities must be finite and not negative.")
    empty = np.flatnonzero(np.diff(table.indptr) == 0)
    if empty.size:
        raise StatisticsError(
            f"Every context needs at least one next token; {empty.size:,} of {m:,} have none, "
            f"the first is column {empty[0]}. Leave such columns out."
        )
    if pi is not None:
        _check_probabilities(table, pi)
    elif table.dtype != np.int64:
        raise StatisticsError(f"Counts must be 64-bit integers; got {table.dtype}.")
    else:
        refuse_overflow(table.data)


def check_parts(statistics: NextTokenStatistics) -> None:
    """Refuse names, contexts and numbers of windows that do not belong to the table."""
    m, text_counts = statistics.m, statistics.text_counts
    for name, given, size in (
        ("vocabulary", statistics.vocabulary, statistics.V),
        ("contexts", statistics.contexts, m),
        ("context labels", statistics.labels, m),
    ):
        if given is not None and len(given) != size:
            raise StatisticsError(f"The {name} must have {size:,} entries; got {len(given):,}.")
    if statistics.contexts is not None and statistics.contexts.ndim != 2:
        raise StatisticsError(
            f"Contexts must be an m x L array of token ids; got an array of shape {statistics.contexts.shape}."
        )
    if text_counts is None:
        return
    if not statistics.has_counts or text_counts.shape != (m,) or (text_counts < statistics.context_counts).any():
        raise StatisticsError(
            "text_counts must give, for counts, the windows of each context in the text: m numbers, none of them "
            "smaller than the number of windows counted."
        )


def refuse_overflow(counts: NDArray[Any]) -> None:
    """Refuse counts whose sums are too large for 64-bit integers."""
    if (total := float(np.sum(counts, dtype=np.float64))) > LARGEST_TOTAL:
        raise StatisticsError(
            f"Counts must add up to at most 2**62, so that their sums are exact; they add up to {total:.3g}. Divide "
            "them by a common factor, or pass their shares to from_probabilities."
        )


def _check_probabilities(P: sparse.csc_array, pi: Float) -> None:
    m = P.shape[1]
    sums = np.asarray(P.sum(axis=0)).ravel()
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > _SUM_TOLERANCE:
        raise StatisticsError(f"Each column of P must sum to 1; column {worst} sums to {sums[worst]:.12g}.")
    if pi.shape != (m,):
        raise StatisticsError(f"pi must have {m:,} entries, one per context; its shape is {pi.shape}.")
    if not (np.isfinite(pi).all() and (pi > 0).all() and abs(pi.sum() - 1) <= _SUM_TOLERANCE):
        raise StatisticsError(
            f"pi must be positive and sum to 1; it sums to {pi.sum():.12g} and its smallest entry is {pi.min():.3g}."
        )


@dataclass(frozen=True, eq=False)
class SupportGroups:
    """Distinct supports and the contexts that have them.

    ``label``
        Group of each context, shape m. Groups are numbered in the order of their first context.
    ``multiplicity``
        Number of contexts in each group.
    ``S``
        The distinct supports, V x g of zeros and ones, one column per group.
    """

    label: NDArray[np.integer[Any]]
    multiplicity: Int
    S: sparse.csc_array

    @property
    def count(self) -> int:
        """Number g of distinct supports."""
        return int(self.multiplicity.size)

    def members(self, group: int) -> Int:
        """The contexts of one group."""
        return np.flatnonzero(self.label == group)


def group_supports(S: sparse.csc_array) -> SupportGroups:
    """Group the contexts with equal supports, by comparing whole supports and not hashes of them.

    ``S`` is V x m with sorted row indices.
    """
    first_of = _first_with_token(S)
    several = np.flatnonzero(
        np.concatenate([np.diff(S.indptr[part.start : part.stop + 1]) > 1 for part in _parts(first_of.size)])
    )
    sizes = S.indptr[several + 1] - S.indptr[several]
    order = np.argsort(sizes, kind="stable")
    for some in np.split(order, 1 + np.flatnonzero(np.diff(sizes[order]))):
        if some.size:
            columns = several[some]
            supports = S.indices[S.indptr[columns][:, None] + np.arange(sizes[some[0]])]
            first_of[columns] = columns[_first_equal(supports)]
    distinct, label = _numbered(first_of)
    multiplicity = np.zeros(distinct.size, np.int64)
    for part in _parts(label.size):
        multiplicity += np.bincount(label[part], minlength=distinct.size)
    return SupportGroups(label, multiplicity, sparse.csc_array(S[:, distinct]))


def _numbered(first_of: NDArray[np.integer[Any]]) -> tuple[Int, NDArray[np.integer[Any]]]:
    """The columns that come first in their groups, and the number of each column's group, in place of the input."""
    distinct: list[Int] = []
    label, count = first_of, 0
    for part in _parts(first_of.size):
        first = first_of[part].copy()
        is_first = first == np.arange(part.start, part.stop)
        label[part][is_first] = np.arange(count, count + np.count_nonzero(is_first))
        # Columns before this part, and the first ones in it, have their numbers already.
        label[part][~is_first] = label[first[~is_first]]
        distinct.append(part.start + np.flatnonzero(is_first))
        count += distinct[-1].size
    return np.concatenate(distinct), label


def _parts(m: int) -> list[slice]:
    """Ranges of columns, worked on one at a time: an array for all columns can be as large as the matrix."""
    return [slice(begin, min(begin + COLUMNS_AT_ONCE, m)) for begin in range(0, m, COLUMNS_AT_ONCE)]


def _first_with_token(S: sparse.csc_array) -> NDArray[np.integer[Any]]:
    """For each column with a single token, the first such column with the same one; anything for other columns."""
    V, m = S.shape
    first, first_of = np.zeros(V, S.indptr.dtype), np.empty(m, S.indptr.dtype)
    for part in reversed(_parts(m)):
        ends = S.indptr[part.start : part.stop + 1]
        single = np.flatnonzero(np.diff(ends) == 1)[::-1]
        first[S.indices[ends[single]]] = part.start + single
    for part in _parts(m):
        first_of[part] = first[S.indices[S.indptr[part]]]
    return first_of


def _first_equal(supports: NDArray[np.int32]) -> Int:
    """For each row of supports of one size, the first row that is equal to it."""
    size = supports.shape[1]
    # Equal rows are equal byte strings, which NumPy sorts much faster than rows of numbers.
    packed = np.ascontiguousarray(supports)
    keys = packed.view(np.dtype((np.void, packed.dtype.itemsize * size))).ravel()
    _, first_index, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first_index[inverse].astype(np.int64)


def half_text_correlation(counts: sparse.csc_array, seed: int = 0) -> float | None:
    """Correlation between the cosines of centred supports from all windows and from a random half of them.

    Every window is kept with probability 1/2. The cosines are those of the proxy S~ between different contexts: 1 means
    that half of the text predicts the same geometry. Of many contexts, the 1,000 most frequent are used. None where
    fewer than three contexts are left, or all cosines are equal.
    """
    totals = np.asarray(counts.sum(axis=0)).ravel()
    table = sparse.csc_array(counts[:, np.sort(np.argsort(-totals, kind="stable")[:_MOST_CONTEXTS])])
    half = np.random.default_rng(seed).binomial(table.data, 0.5)
    thinned = sparse.csc_array((half, table.indices, table.indptr), shape=table.shape)
    left = np.flatnonzero(np.asarray(thinned.sum(axis=0)).ravel())
    if left.size < _FEWEST:
        return None
    above = np.triu_indices(left.size, 1)
    whole, part = (support_cosines(sparse.csc_array(counted[:, left]))[above] for counted in (table, thinned))
    usable = np.isfinite(whole) & np.isfinite(part)
    whole, part = whole[usable], part[usable]
    if whole.size < _FEWEST or min(np.ptp(whole), np.ptp(part)) < np.finfo(np.float64).eps:
        return None
    return float(np.corrcoef(whole, part)[0, 1])


def support_cosines(counts: sparse.csc_array) -> Float:
    """Cosines between the centred supports of contexts, m x m; NaN for a support that is the whole vocabulary."""
    V = counts.shape[0]
    S = sparse.csc_array(((counts.data > 0).astype(np.float64), counts.indices, counts.indptr), shape=counts.shape)
    k = np.asarray(S.sum(axis=0)).ravel()
    inner = np.asarray((S.T @ S).todense()) - np.outer(k, k) / V
    length = np.sqrt(k * (1 - k / V))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(inner / np.outer(length, length))


def degenerate_support_warnings(support_sizes: NDArray[np.integer[Any]], V: int, groups: int) -> list[str]:
    """Sentences about supports that leave little or no geometry to predict; empty if there is nothing to say.

    ``support_sizes``  Support size of each context, shape m.
    ``V``              Size of the vocabulary.
    ``groups``         Number of distinct supports.
    """
    m = support_sizes.size
    if V == 1:
        return ["The vocabulary has a single token: there is nothing to predict."]
    single, full = int(np.sum(support_sizes == 1)), int(np.sum(support_sizes == V))
    if full == m:
        return [
            "Every context can be followed by every token: supports carry no geometry, and logits stay finite. "
            "Longer contexts, a larger vocabulary or a support policy such as top-p:0.9 give sparser supports."
        ]
    return [*_one_hot_warnings(single, m), *_shared_support_warnings(full, m, groups)]


def _one_hot_warnings(single: int, m: int) -> Iterator[str]:
    if single == m:
        yield (
            "Every support is a single token: this is one-hot classification, and supports carry no structure beyond "
            "the class. The predicted geometry is neural collapse when all tokens have equally many contexts, "
            "and SELI geometry otherwise (Thrampoulidis et al. 2022). Shorter contexts or more text may give "
            "overlapping supports."
        )
    elif single > _MOSTLY * m:
        # Rounded down: 99.9% must not read as all of them.
        yield (
            f"{100 * single // m}% of the contexts have a support of one token: this is close to one-hot "
            "classification. Shorter contexts, or only the most frequent ones, often have richer supports."
        )


def _shared_support_warnings(full: int, m: int, groups: int) -> Iterator[str]:
    if full:
        have, they_get = ("has", "it gets") if full == 1 else ("have", "they get")
        yield f"{full:,} of {m:,} contexts {have} the whole vocabulary as support: {they_get} no direction."
    if groups == 1:
        yield "All contexts have the same support: there is one direction to predict, of rank 1."


def skipped_sentence(skipped: Sequence[str | PurePath]) -> str:
    """A sentence about files of a folder that were not read, with the names of the first three."""
    names = ", ".join(PurePath(path).name for path in skipped[:3]) + (", ..." if len(skipped) > 3 else "")
    is_one, them = ("1 file is", "it was") if len(skipped) == 1 else (f"{len(skipped):,} files are", "they were")
    return f"{is_one} not text in UTF-8, and {them} skipped: {names}."


def warnings_about(statistics: NextTokenStatistics) -> list[str]:
    """What a user should know before using statistics, in sentences; empty if there is nothing to say."""
    sizes = np.diff(statistics.table.indptr)
    degenerate = degenerate_support_warnings(sizes, statistics.V, statistics.groups.count)
    return [*degenerate, *_completeness_warnings(statistics), *_reading_warnings(statistics)]


def _completeness_warnings(statistics: NextTokenStatistics) -> list[str]:
    completeness = statistics.completeness
    return completeness.sentences if completeness is not None and completeness.missing_share >= _INCOMPLETE else []


def _reading_warnings(statistics: NextTokenStatistics) -> Iterator[str]:
    corpus = statistics.corpus
    if reason := corpus.get("tokenizer_reason"):
        yield f"{reason} No tokenizer was given; for words in lower case, count with --tokenizer word."
    short, documents = corpus.get("short_documents", 0), corpus.get("documents", 0)
    if short:
        are, were, them = ("is", "was", "it") if short == 1 else ("are", "were", "them")
        yield (
            f"{short:,} of {documents:,} documents {are} shorter than a window and {were} not counted. Pad documents "
            f"or use a shorter context to count {them}."
        )
    separators = [text for text in corpus.get("separators", []) if text != "file"]
    if separators and documents == len(corpus.get("sources", [])):
        yield (
            f"The separator between documents ({', '.join(map(repr, separators))}) was not found: each source is one "
            "document, and contexts run through all of it."
        )
    for likely in corpus.get("likely_separators", []):
        yield (
            f"Token id {likely} looks like a separator between documents: it is the largest id, it is frequent, and "
            f"it hardly ever follows itself. Contexts run across it; pass separator_id={likely} "
            f"(--separator-id {likely}) to end documents there."
        )
    skipped = corpus.get("skipped_files", [])
    if skipped:
        yield skipped_sentence(skipped)
    replaced = corpus.get("replaced_bytes", 0)
    if replaced:
        yield f"{replaced:,} bytes were not valid UTF-8 and were read as U+FFFD."
