"""Two texts on what they share: statistics restricted to the tokens and contexts of both, whole and in halves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Int
from tokengeom.statistics.cuts import OTHER, restricted
from tokengeom.statistics.next_token import SHARED, NextTokenStatistics
from tokengeom.statistics.supports import canonical

_FEWEST = 2
FEWEST_IN_HALVES = 10
"""Tokens, and contexts, that all halves of two texts must have; fewer say little about an arrangement."""


def shared_statistics(
    first: NextTokenStatistics, second: NextTokenStatistics
) -> tuple[NextTokenStatistics, NextTokenStatistics]:
    """Both statistics restricted to the next tokens and contexts that both have, in the order of the first.

    Tokens and contexts are the same when their texts are. Windows that end in another token are left out, and so is
    the token that stands for merged ones, which means different tokens in different texts. A context that ends up
    without any window in one of the texts is dropped from both. Row z and column j then have the same meaning in both.
    """
    for stats in (first, second):
        if not stats.has_counts:
            raise StatisticsError(
                "Two texts are compared on what they share by leaving out windows, which needs counts; at least one of "
                "these statistics was given as probabilities."
            )
    tokens = _shared(first.vocabulary, second.vocabulary, "tokens", without=OTHER)
    contexts = _shared(_context_texts(first), _context_texts(second), "contexts")
    tables = [
        sparse.csr_array(stats.counts)[tokens[:, side]][:, contexts[:, side]]
        for side, stats in enumerate((first, second))
    ]
    # A token or a context may be left without a window, which may leave another one without any.
    rows, columns = _with_windows(tables)
    both = f"they share {len(tokens):,} tokens and {len(contexts):,} contexts"
    left = {"tokens": "tokens follows one of these contexts", "contexts": "contexts is followed by one of these tokens"}
    for shared, (what, does) in zip((rows, columns), left.items(), strict=True):
        some = "none" if shared.size == 0 else "only one"
        _require_shared(shared.size, what, f"{both}, but {some} of these {does} in both")
    made = [
        _restrict(stats, tables[side][rows][:, columns], tokens[rows, side], contexts[columns, side])
        for side, stats in enumerate((first, second))
    ]
    return made[0], made[1]


def shared_halves(
    first: NextTokenStatistics, second: NextTokenStatistics, seed: int
) -> tuple[NextTokenStatistics, ...] | None:
    """Two halves of each of two texts that have the same tokens and contexts, on those that all four halves have.

    Every window of a text goes at random to its first half, to its second half or, in the larger text, to neither, so
    that all four have about as many windows: predictions from more windows have less noise and other supports, and
    differ from those of fewer by more than chance. None where fewer than `FEWEST_IN_HALVES` tokens or contexts are
    left.

    The halves of a text depend on its counts, its names and the seed: not on which of the two texts is the first.
    """
    size = min(first.n, second.n) / 2
    tables = [half for stats in (first, second) for half in _halves(stats, size / stats.n, seed)]
    rows, columns = _with_windows(tables)
    if min(rows.size, columns.size) < FEWEST_IN_HALVES:
        return None
    contexts, tokens = [first.context_text(j) for j in columns], [first.vocabulary[z] for z in rows]
    return tuple(NextTokenStatistics.from_counts(table[rows][:, columns], contexts, tokens) for table in tables)


def _halves(stats: NextTokenStatistics, share: float, seed: int) -> list[sparse.csr_array]:
    """Counts of two disjoint random parts of the windows, each with this share of them, at most 1/2."""
    counts = stats.counts
    # By names: ids of the same tokens may be others in another text.
    named = NextTokenStatistics.from_counts(counts, _context_texts(stats), stats.vocabulary)
    rng = np.random.default_rng([seed, int(named.hash, 16)])
    one = rng.binomial(counts.data, share)
    other = rng.binomial(counts.data - one, share / (1.0 - share))
    return [
        sparse.csr_array(sparse.csc_array((part, counts.indices, counts.indptr), shape=counts.shape))
        for part in (one, other)
    ]


def same_support_units(texts: Sequence[NextTokenStatistics]) -> Int:
    """Unit of each context, m, numbered by first contexts: those of one unit have the same support in every text."""
    labels = np.stack([np.asarray(text.groups.label, dtype=np.int64) for text in texts])
    _, first, unit = np.unique(labels, axis=1, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))
    return np.asarray(place[unit.reshape(-1)], dtype=np.int64)


def _restrict(statistics: NextTokenStatistics, table: sparse.csr_array, rows: Int, columns: Int) -> NextTokenStatistics:
    read = statistics.context_counts if statistics.text_counts is None else statistics.text_counts
    vocabulary = tuple(statistics.vocabulary[int(row)] for row in rows)
    return restricted(statistics, SHARED, canonical(table), vocabulary, columns, read[columns])


def _context_texts(statistics: NextTokenStatistics) -> list[str]:
    return [statistics.context_text(j) for j in range(statistics.m)]


def _shared(first: Sequence[str], second: Sequence[str], what: str, without: str = "") -> Int:
    """Places of the names that both have, one row per name: its place in the first, and in the second."""
    for names in (first, second):
        twice = [name for name, times in Counter(names).items() if times > 1 and name != without]
        if twice:
            raise StatisticsError(
                f"Two texts can be compared on what they share only where {what} have different names; {twice[0]!r} "
                "is the name of several."
            )
    place = {name: z for z, name in enumerate(second)}
    pairs = [(z, place[name]) for z, name in enumerate(first) if name in place and name != without]
    _require_shared(len(pairs), what, f"they share {len(pairs)}")
    return np.asarray(pairs, np.int64)


def _require_shared(number: int, what: str, they_share: str) -> None:
    if number < _FEWEST:
        raise StatisticsError(
            f"The two texts must share at least {_FEWEST} {what}; {they_share}. Count both with the same "
            "tokenizer and context length, and keep more contexts and tokens."
        )


def _with_windows(tables: list[sparse.csr_array]) -> tuple[Int, Int]:
    """Rows and columns that are not empty in any of the tables, when all others are left out."""
    seen = [sparse.csr_array(table > 0) for table in tables]
    rows, columns = np.arange(seen[0].shape[0]), np.arange(seen[0].shape[1])
    while True:
        parts = [table[rows][:, columns] for table in seen]
        has_row = np.all([np.asarray(part.sum(axis=1)).ravel() > 0 for part in parts], axis=0)
        has_column = np.all([np.asarray(part.sum(axis=0)).ravel() > 0 for part in parts], axis=0)
        if has_row.all() and has_column.all():
            return rows, columns
        rows, columns = rows[has_row], columns[has_column]
