"""`build_statistics`: statistics from counted pairs, gathered in one ordered pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Int
from tokengeom.core.resources import require_memory
from tokengeom.statistics.arrays_file import sparse_fault
from tokengeom.statistics.cuts import WINDOWS
from tokengeom.statistics.engines import AbstractEngine
from tokengeom.statistics.layout import PairLayout
from tokengeom.statistics.next_token import OTHER, NextTokenStatistics
from tokengeom.statistics.ordered_shards import number_of_pairs, read_ordered_shards
from tokengeom.statistics.saved_statistics import contexts_fault

if TYPE_CHECKING:
    from tokengeom.statistics.pairs import CountedPairs


def build_statistics(pairs: CountedPairs, engine: AbstractEngine) -> NextTokenStatistics:
    """Statistics from counted pairs: sorted by context and next token, and put into a sparse matrix.

    Contexts are in the order of their keys: shorter ones first, then by token ids, oldest token first.
    """
    layout = _layout_of_shards(pairs) if pairs.ordered else _layout_by_engine(pairs, engine)
    rows, indptr = _row_numbers(layout.next, pairs.rows), layout.indptr
    _require_possible(pairs, layout, rows)
    return NextTokenStatistics(
        table=sparse.csc_array((layout.count, rows, indptr), shape=(pairs.rows.size, indptr.size - 1)),
        context_share=None,
        vocabulary=_names(pairs),
        contexts=layout.contexts,
        text_counts=layout.text_counts,
        tokenizer=pairs.tokenizer,
        windows=pairs.windows,
        effects=pairs.effects,
        corpus=pairs.corpus,
    )


def _layout_of_shards(pairs: CountedPairs) -> PairLayout:
    number = number_of_pairs(pairs.paths)
    _require_room(number, pairs.packing.length)
    layout = PairLayout(number, pairs.packing, has_windows=False)
    for table in read_ordered_shards(pairs.paths, pairs.columns):
        layout.add(table)
    return layout


def _layout_by_engine(pairs: CountedPairs, engine: AbstractEngine) -> PairLayout:
    table = pairs.table(engine)
    number = int(engine.numbers(table.aggregate(pairs=table.count()))["pairs"])
    _require_room(number, pairs.packing.length)
    kept = [WINDOWS] if WINDOWS in table.columns else []
    ordered = table.select(*pairs.columns, *kept).order_by(pairs.columns[:-1])
    layout = PairLayout(number, pairs.packing, bool(kept))
    for batch in engine.batches(ordered):
        layout.add(batch)
    return layout


def _row_numbers(tokens: NDArray[np.int32], rows: Int) -> NDArray[np.int32]:
    if rows.size == int(rows[-1]) + 1:
        return tokens
    found = np.minimum(np.searchsorted(rows, tokens), rows.size - 1).astype(np.int32)
    return np.where(rows[found] == tokens, found, np.int32(-1))


def _require_possible(pairs: CountedPairs, layout: PairLayout, rows: NDArray[np.int32]) -> None:
    """Refuse pairs that no counting gives, as saved ones can be that were edited: compiled code would follow them."""
    fault = sparse_fault(layout.count, rows, layout.indptr, (pairs.rows.size, len(layout.contexts)))
    if fault is None and int(layout.count.min()) < 1:
        fault = "a count is below 1"
    if fault is None:
        fault = contexts_fault(layout.contexts, pairs.windows, pairs.vocabulary)
    if fault is not None:
        raise StatisticsError(
            f"The counted pairs in {Path(pairs.paths[0]).parent} cannot be those of a text: {fault}. Count it again."
        )


def _names(pairs: CountedPairs) -> tuple[str, ...]:
    tokenizer, known = pairs.tokenizer, pairs.rows[pairs.rows < pairs.vocabulary].tolist()
    size = 0 if tokenizer is None else tokenizer.size
    names = [tokenizer.token(row) if tokenizer is not None and row < size else f"token {row}" for row in known]
    return (*names, *[OTHER] * (pairs.rows.size - len(known)))


def _require_room(number: int, length: int) -> None:
    """Refuse more pairs than memory holds: counts, rows, and for as many contexts ids, keys and starts."""
    require_memory(
        number * (8 + 4 + 8 + 4 * length + 8),
        f"Statistics of {number:,} distinct pairs",
        "Cut first (--top-contexts, --min-count), or keep the pairs with --pairs.",
    )
