"""From counted pairs to frozen statistics, in one ordered pass."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tokengeom.errors import ResourceError
from tokengeom.statistics.engine import AbstractEngine
from tokengeom.statistics.next_token import OTHER, NextTokenStatistics
from tokengeom.statistics.pairs import CountedPairs

if TYPE_CHECKING:
    import pyarrow as pa


def freeze(pairs: CountedPairs, engine: AbstractEngine) -> NextTokenStatistics:
    """Sort the pairs by context and next token, and lay them out as a sparse matrix.

    Contexts come in the order of their packed words: shorter ones first, then by ids, oldest token first.
    """
    table = pairs.table(engine)
    number = int(engine.numbers(table.aggregate(pairs=table.count()))["pairs"])
    _refuse_what_does_not_fit(number, pairs.packing.length)
    ordered = table.order_by([*pairs.packing.columns, "next"])
    layout = _Layout(number, len(pairs.packing.columns))
    for batch in engine.batches(ordered):
        layout.add(batch)
    words, indptr = layout.contexts()
    rows = _row_numbers(layout.next, pairs.rows)
    shape = (pairs.rows.size, indptr.size - 1)
    return NextTokenStatistics(
        table=sparse.csc_array((layout.count, rows, indptr), shape=shape),
        context_share=None,
        vocabulary=_names(pairs),
        contexts=pairs.packing.unpack(words),
        tokenizer=pairs.tokenizer,
        windows=pairs.windows,
        effects=pairs.effects,
        corpus=pairs.corpus,
    )


class _Layout:
    """Gathers ordered pairs into the arrays of a sparse matrix."""

    def __init__(self, number: int, words: int) -> None:
        self.count = np.empty(number, np.int64)
        self.next = np.empty(number, np.int32)
        self._filled = 0
        self._last: list[int] | None = None
        self._words: list[list[NDArray[np.int64]]] = [[] for _ in range(words)]
        self._starts: list[NDArray[np.int64]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows."""
        if not batch.num_rows:
            return
        *words, tokens, count = (_numpy(column) for column in batch.columns)
        begin, end = self._filled, self._filled + batch.num_rows
        self.count[begin:end], self.next[begin:end] = count, tokens
        fresh = np.zeros(batch.num_rows, np.bool_)
        fresh[0] = self._last != [int(word[0]) for word in words]
        for word in words:
            fresh[1:] |= word[1:] != word[:-1]
        for kept, word in zip(self._words, words, strict=True):
            kept.append(word[fresh])
        self._starts.append(np.flatnonzero(fresh) + begin)
        self._last, self._filled = [int(word[-1]) for word in words], end

    def contexts(self) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
        """The packed words of each context, and where its pairs start."""
        words = [np.concatenate(parts) for parts in self._words]
        return words, np.concatenate((*self._starts, [self._filled]))


def _numpy(column: Any) -> NDArray[Any]:
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _row_numbers(tokens: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    if rows.size == int(rows[-1]) + 1:
        return tokens
    return np.searchsorted(rows, tokens).astype(np.int32)


def _names(pairs: CountedPairs) -> tuple[str, ...]:
    def name(row: int) -> str:
        if row >= pairs.vocabulary:
            return OTHER
        return pairs.tokenizer.token(row) if pairs.tokenizer is not None else f"token {row}"

    return tuple(name(int(row)) for row in pairs.rows)


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _refuse_what_does_not_fit(number: int, length: int) -> None:
    """Counts, rows and at worst one context a pair (words, ids and start) must fit into the machine."""
    needed = number * (8 + 4 + 8 + 4 * length + 8)
    memory = _physical_memory()
    if memory is not None and needed > 0.8 * memory:
        raise ResourceError(
            f"{number:,} distinct pairs need up to {needed / 1e9:.1f} GB as frozen statistics; this machine has "
            f"{memory / 1e9:.1f} GB. Cut first (--top-contexts, --min-count), or keep the pairs with --pairs."
        )
