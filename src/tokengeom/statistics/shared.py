"""Two texts on what they share: statistics restricted to the tokens and contexts that both have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Int
from tokengeom.statistics.next_token import OTHER, SHARED, NextTokenStatistics, restricted
from tokengeom.statistics.supports import canonical

_FEWEST = 2


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
    for shared, what in ((rows, "tokens"), (columns, "contexts")):
        _require_shared(shared.size, what)
    made = [
        _restrict(stats, tables[side][rows][:, columns], tokens[rows, side], contexts[columns, side])
        for side, stats in enumerate((first, second))
    ]
    return made[0], made[1]


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
    _require_shared(len(pairs), what)
    return np.asarray(pairs, np.int64)


def _require_shared(number: int, what: str) -> None:
    if number < _FEWEST:
        raise StatisticsError(
            f"The two texts must share at least {_FEWEST} {what}; they share {number}. Count both with the same "
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
