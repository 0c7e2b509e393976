"""Statistics restricted to some of their contexts and next tokens, by a cut or to what two texts share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from tokengeom.core.numerics import Int
from tokengeom.statistics.cuts import AbstractCut, Effect, cut_table
from tokengeom.statistics.supports import canonical

if TYPE_CHECKING:
    from tokengeom.statistics.next_token import NextTokenStatistics

OTHER = "(other tokens)"
"""Text of the token that stands for all tokens that a cut merged."""


def cut_statistics(statistics: NextTokenStatistics, cut: AbstractCut) -> NextTokenStatistics:
    """Smaller statistics, by one cut."""
    table, kept, rows = cut_table(statistics.counts, cut)
    before = (*statistics.vocabulary, OTHER)
    names = tuple(before[token] for token in rows)
    if names[-2:] == (OTHER, OTHER):
        # The token of an earlier cut was kept: tokens merged by either are one token.
        table, names = _last_rows_added(table), names[:-1]
    read = statistics.text_counts
    if read is None and cut.leaves_windows_out:
        read = statistics.context_counts
    return restricted(statistics, cut.describe(), table, names, kept, None if read is None else read[kept])


def _last_rows_added(table: sparse.csc_array) -> sparse.csc_array:
    """The table with its last two rows added up."""
    V = table.shape[0]
    pairs = sparse.coo_array(table)
    row, column = np.minimum(pairs.coords[0], V - 2), pairs.coords[1]
    return canonical(sparse.coo_array((pairs.data, (row, column)), shape=(V - 1, table.shape[1])))


def restricted(
    statistics: NextTokenStatistics,
    description: str,
    table: sparse.csc_array,
    vocabulary: tuple[str, ...],
    kept: Int,
    text_counts: Int | None,
) -> NextTokenStatistics:
    """Statistics with another table and vocabulary for some of the contexts; `effects` records it."""
    after = replace(
        statistics,
        table=table,
        vocabulary=vocabulary,
        contexts=None if statistics.contexts is None else statistics.contexts[kept],
        labels=None if statistics.labels is None else tuple(statistics.labels[j] for j in kept),
        text_counts=text_counts,
        claimed=None,
    )
    return replace(after, effects=(*statistics.effects, Effect(description, statistics.totals, after.totals)))
