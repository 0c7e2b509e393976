"""Sorted pairs put into the arrays of a sparse matrix, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.numerics import Int
from tokengeom.statistics.arrow_arrays import numbers_of
from tokengeom.statistics.windows import ContextPacking

if TYPE_CHECKING:
    import pyarrow as pa


class PairLayout:
    """Puts ordered pairs into the arrays of a sparse matrix.

    There are at most as many contexts as pairs. Arrays of that length are reserved at once: the operating system
    gives them memory only where they are written.
    """

    def __init__(self, number: int, packing: ContextPacking, has_windows: bool) -> None:
        self._windows = np.empty(number, np.int64) if has_windows else None
        self.count = np.empty(number, np.int64)
        self.next = np.empty(number, np.int32)
        self._contexts = np.empty((number, packing.length), np.int32)
        # As scipy stores it, which would make a copy otherwise.
        self._starts: NDArray[np.integer[Any]] = np.empty(number + 1, np.int32 if number < 2**31 else np.int64)
        self._packing = packing
        self._pairs = self._seen = 0
        self._last: list[int] = []

    @property
    def contexts(self) -> NDArray[np.int32]:
        """The contexts so far, one per row."""
        return self._contexts[: self._seen]

    @property
    def text_counts(self) -> Int | None:
        """Windows of each context before any were left out; None where none were."""
        return None if self._windows is None else self._windows[: self._seen]

    @property
    def indptr(self) -> NDArray[np.integer[Any]]:
        """Index of the first pair of each context, and the number of pairs."""
        self._starts[self._seen] = self._pairs
        return self._starts[: self._seen + 1]

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add the next rows."""
        if not batch.num_rows:
            return
        columns = list(map(numbers_of, batch.columns))
        windows = columns.pop() if self._windows is not None else None
        *keys, tokens, count = columns
        begin, end = self._pairs, self._pairs + batch.num_rows
        self.count[begin:end], self.next[begin:end] = count, tokens
        is_new = np.zeros(batch.num_rows, np.bool_)
        is_new[0] = self._last != [int(key[0]) for key in keys]
        for key in keys:
            is_new[1:] |= key[1:] != key[:-1]
        places = np.flatnonzero(is_new)
        first, after = self._seen, self._seen + places.size
        self._contexts[first:after] = self._packing.unpack([key[places] for key in keys])
        self._starts[first:after] = places + begin
        if self._windows is not None and windows is not None:
            self._windows[first:after] = windows[places]
        self._last = [int(key[-1]) for key in keys]
        self._pairs, self._seen = end, after
