"""From counted pairs to frozen statistics, in one ordered pass."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tokengeom.corpus.tokenizer import AbstractTokenizer
from tokengeom.errors import ResourceError
from tokengeom.statistics.engine import AbstractEngine
from tokengeom.statistics.next_token import OTHER, NextTokenStatistics
from tokengeom.statistics.packing import ContextPacking
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
    layout = _Layout(number, pairs.packing)
    for batch in engine.batches(ordered):
        layout.add(batch)
    rows, indptr = _row_numbers(layout.next, pairs.rows), layout.indptr
    return NextTokenStatistics(
        table=sparse.csc_array((layout.count, rows, indptr), shape=(pairs.rows.size, indptr.size - 1)),
        context_share=None,
        vocabulary=_names(pairs),
        contexts=layout.contexts,
        tokenizer=pairs.tokenizer,
        windows=pairs.windows,
        effects=pairs.effects,
        corpus=pairs.corpus,
    )


class _Layout:
    """Gathers ordered pairs into the arrays of a sparse matrix.

    There are at most as many contexts as pairs. Arrays of that length are reserved at once: the operating system
    gives them memory only where they are written.
    """

    def __init__(self, number: int, packing: ContextPacking) -> None:
        self.count = np.empty(number, np.int64)
        self.next = np.empty(number, np.int32)
        self._contexts = np.empty((number, packing.length), np.int32)
        self._starts = np.empty(number + 1, np.int64)
        self._packing = packing
        self._pairs = self._seen = 0
        self._last: list[int] = []

    @property
    def contexts(self) -> NDArray[np.int32]:
        """The contexts so far, a row each."""
        return self._contexts[: self._seen]

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where the pairs of each context start, and where the last ones end."""
        self._starts[self._seen] = self._pairs
        return self._starts[: self._seen + 1]

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows."""
        if not batch.num_rows:
            return
        *words, tokens, count = (_numpy(column) for column in batch.columns)
        begin, end = self._pairs, self._pairs + batch.num_rows
        self.count[begin:end], self.next[begin:end] = count, tokens
        fresh = np.zeros(batch.num_rows, np.bool_)
        fresh[0] = self._last != [int(word[0]) for word in words]
        for word in words:
            fresh[1:] |= word[1:] != word[:-1]
        places = np.flatnonzero(fresh)
        first, after = self._seen, self._seen + places.size
        self._contexts[first:after] = self._packing.unpack([word[places] for word in words])
        self._starts[first:after] = places + begin
        self._last = [int(word[-1]) for word in words]
        self._pairs, self._seen = end, after


def _numpy(column: Any) -> NDArray[Any]:
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _row_numbers(tokens: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    if rows.size == int(rows[-1]) + 1:
        return tokens
    return np.searchsorted(rows, tokens).astype(np.int32)


def _names(pairs: CountedPairs) -> tuple[str, ...]:
    known = [row for row in pairs.rows.tolist() if row < pairs.vocabulary]
    names = [_name(row, pairs.tokenizer) for row in known]
    return (*names, *[OTHER] * (pairs.rows.size - len(known)))


def _name(row: int, tokenizer: AbstractTokenizer | None) -> str:
    return f"token {row}" if tokenizer is None or row >= tokenizer.size else tokenizer.token(row)


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
