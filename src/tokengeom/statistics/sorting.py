"""Counting by sorting: pairs of context and next token as rows of integers, sorted in blocks and merged from disk.

A row has the keys of a context (`ContextPacking`), the next token, and how often the pair occurred. Rows of a block of
text are sorted, and equal ones become one: a run. Runs are written to a temporary file and merged range by range, so
the memory needed depends on the size of a block and not on that of the corpus.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.numerics import Int
from tokengeom.statistics.token_table import TokenRows, disk_errors
from tokengeom.statistics.windows import ContextPacking, Windows, windows_in

LARGEST_BLOCK = 1 << 19
"""Most rows in a block: so many fit in the cache of a processor, where sorting is fastest."""
SMALLEST_BLOCK = 1 << 12
BYTES_PER_ROW, BYTES_PER_KEY = 120, 24
"""Memory per row while a block is sorted and counted, with contexts of one key, and what each further key adds."""
_SHARE_OF_RUNS = 8
"""One part in so many of the memory is for sorted runs; further ones are written to disk."""
COMPILED_FROM = 1 << 22
"""Windows from which on compiled sorting saves more seconds than it takes to load."""

Column = NDArray[np.integer[Any]]
Words = NDArray[np.uint64]
Sort = Callable[[Sequence[Int], NDArray[np.int32], Int | None], tuple[list[Int], NDArray[np.int32], Int | None]]
T = TypeVar("T")


@dataclass(frozen=True)
class PairRows:
    """Pairs of context and next token, one per row.

    ``keys``             Keys of the contexts, one array per column of `ContextPacking`.
    ``next``, ``count``  Next token of each pair, and how often the pair occurred.
    """

    keys: Sequence[Int]
    next: NDArray[np.int32]
    count: Int

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.next.size)

    @property
    def columns(self) -> list[NDArray[Any]]:
        """The columns in the order in which rows are sorted by them, and the counts."""
        return [*self.keys, self.next, self.count]

    @staticmethod
    def of(columns: Sequence[NDArray[Any]]) -> PairRows:
        """Rows from their columns."""
        *keys, token, count = columns
        return PairRows(keys, token, count)

    def context_starts(self) -> Int:
        """Places of the first row of each context, in sorted rows."""
        return _changes(self.keys)


def count_rows(keys: Sequence[Int], token: NDArray[np.int32], count: Int | None, sort: Sort) -> PairRows:
    """Distinct pairs, sorted by context and next token, from rows in any order; without ``count`` each counts 1."""
    keys, token, count = sort(keys, token, count)
    first = _changes([*keys, token])
    if count is None:
        total = np.diff(first, append=token.size)
    else:
        total = np.add.reduceat(count, first) if first.size else count
    return PairRows([key[first] for key in keys], token[first], total)


def _changes(columns: Sequence[Column]) -> Int:
    """Places in sorted rows where a row differs from the one before; the first row is one of them."""
    differs = np.ones(columns[0].size, np.bool_)
    np.not_equal(columns[0][1:], columns[0][:-1], out=differs[1:])
    for column in columns[1:]:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def sort_for(windows: int) -> Sort:
    """The function that sorts rows: compiled where there are enough windows to be worth loading it."""
    if windows < COMPILED_FROM:
        return _sort_rows
    try:
        _compiled()
    except ModuleNotFoundError:  # GPU machines may have torch and numpy only
        return _sort_rows
    return radix_sort


def _sort_rows(
    keys: Sequence[Int], token: NDArray[np.int32], count: Int | None
) -> tuple[list[Int], NDArray[np.int32], Int | None]:
    columns: list[Column] = [token, *reversed(keys)]
    order = np.lexsort(columns)
    return [key[order] for key in keys], token[order], None if count is None else count[order]


def radix_sort(
    keys: Sequence[Int], token: NDArray[np.int32], count: Int | None
) -> tuple[list[Int], NDArray[np.int32], Int | None]:
    """Rows sorted by the first key, then the second, and so on, then by token; the count of each row moves with it.

    Nothing is negative, and without ``count`` every row counts 1, as in the result. Rows with one key are moved
    themselves, as two words: the key, and the token with the count. Of rows with more keys the order is found, key by
    key from the last to the first.
    """
    if len(keys) == 1 and (count is None or int(count.max(initial=0)) < 2**32):
        row = token.astype(np.uint64) << np.uint64(32)
        if count is not None:
            row |= count.view(np.uint64)
        first, row = _sorted(keys[0].astype(np.uint64), row, 4)
        counts = None if count is None else (row & np.uint64(2**32 - 1)).view(np.int64)
        return [first.view(np.int64)], (row >> np.uint64(32)).astype(np.int32), counts
    order = np.arange(token.size, dtype=np.uint64)
    columns: list[Column] = [token, *reversed(keys)]
    for column in columns:
        order = _sorted(column[order].astype(np.uint64), order, 8)[1]
    return [key[order] for key in keys], token[order], None if count is None else count[order]


def _sorted(first: Words, second: Words, from_byte: int) -> tuple[Words, Words]:
    """Rows of two words sorted by the first, and rows with equal ones by the second from one of its bytes on."""
    spare = (np.empty_like(first), np.empty_like(second))
    moves = _compiled()(first, second, *spare, from_byte)
    return spare if moves % 2 else (first, second)


def _by_bytes(first: Words, second: Words, first_out: Words, second_out: Words, from_byte: int) -> int:
    """Sort by each byte, from the lowest to the highest, moving rows between the arrays; return the number of moves.

    Every move keeps the order of rows whose byte is equal. A byte that is the same in all rows is skipped.
    """
    size, low = first.size, np.uint64(255)
    histograms = np.zeros((16, 256), np.int64)
    for i in range(size):
        word = first[i]
        for byte in range(8):
            histograms[8 + byte, word & low] += 1
            word >>= np.uint64(8)
        word = second[i] >> np.uint64(8 * from_byte)
        for byte in range(from_byte, 8):
            histograms[byte, word & low] += 1
            word >>= np.uint64(8)
    moves = 0
    for byte in range(from_byte, 16):
        places, shift = histograms[byte], np.uint64(8 * (byte % 8))
        sorted_by = first if byte >= 8 else second
        if size == 0 or places[(sorted_by[0] >> shift) & low] == size:
            continue
        total = 0
        for value in range(256):
            number = places[value]
            places[value] = total
            total += number
        for i in range(size):
            value = (sorted_by[i] >> shift) & low
            place = places[value]
            places[value] = place + 1
            first_out[place] = first[i]
            second_out[place] = second[i]
        first, first_out = first_out, first
        second, second_out = second_out, second
        moves += 1
    return moves


@cache
def _compiled() -> Callable[..., int]:
    """`_by_bytes`, compiled; loading the compiler takes longer than counting a short text."""
    import numba

    try:
        kernel: Callable[..., int] = numba.njit(_by_bytes, nogil=True, cache=True)
    except RuntimeError:  # no folder for the cache can be written: compile in each process
        kernel = numba.njit(_by_bytes, nogil=True)
    return kernel


@dataclass(frozen=True)
class SortingPlan:
    """How windows are counted: in blocks of how many rows, on how many threads, and how they are sorted."""

    windows: Windows
    packing: ContextPacking
    block: int
    threads: int
    sort: Sort
    memory: int = 0
    """Bytes of runs that are kept in memory."""

    @staticmethod
    def within(memory: int, threads: int | None, windows: Windows, packing: ContextPacking, tokens: int) -> SortingPlan:
        """A plan whose blocks fit in so many bytes, for a corpus of so many tokens."""
        workers = min(threads or os.cpu_count() or 1, 1 + tokens // LARGEST_BLOCK)
        row = BYTES_PER_ROW + BYTES_PER_KEY * (len(packing.columns) - 1)
        block = min(max(memory // (row * (2 * workers + 2)), SMALLEST_BLOCK), LARGEST_BLOCK)
        sort = sort_for(tokens * len(windows.lengths))
        return SortingPlan(windows, packing, block, workers, sort, memory // _SHARE_OF_RUNS)

    def blocks(self, rows: Iterable[TokenRows]) -> Iterator[TokenRows]:
        """The rows of a token table, as many at a time as have a block of windows, and at least one."""
        tokens = max(self.block // len(self.windows.lengths), 1)
        for batch in rows:
            ends = np.cumsum(batch.lengths)
            begin = done = 0
            while begin < ends.size:
                end = max(int(np.searchsorted(ends, done + tokens, "right")), begin + 1)
                yield batch.part(begin, end)
                begin, done = end, int(ends[end - 1])

    def count_block(self, rows: TokenRows) -> PairRows:
        """The distinct pairs of some rows."""
        keys, token = windows_in(rows, self.windows, self.packing)
        return count_rows(keys, token, None, self.sort)

    def merge(self, rows: PairRows) -> PairRows:
        """The distinct pairs of rows from several runs."""
        return count_rows(rows.keys, rows.next, rows.count, self.sort)


def count_by_sorting(
    rows: Iterable[TokenRows], plan: SortingPlan, folder: Path, on_tokens: Callable[[float], None]
) -> Iterator[PairRows]:
    """The distinct pairs of a token table in order, some at a time; the pairs of one context are never divided.

    ``rows``       The rows of the table.
    ``folder``     Where a temporary file may be written.
    ``on_tokens``  Is called with the number of tokens that were counted since its last call: half a token when it is
                   sorted into a run, and the other half when the run is merged.
    """

    def counted(block: TokenRows) -> tuple[int, PairRows]:
        return block.tokens.size, plan.count_block(block)

    with closing(_Runs(folder / "runs.bin", plan.memory)) as runs, ThreadPoolExecutor(plan.threads) as pool:
        for tokens, run in _in_order(pool, plan.threads, counted, plan.blocks(rows)):
            runs.add(run)
            on_tokens(tokens / 2)
        for part in _in_order(pool, plan.threads, plan.merge, runs.ranges(plan.block)):
            yield part
            on_tokens(float(part.count.sum()) / (2 * len(plan.windows.lengths)))


def _in_order(pool: ThreadPoolExecutor, ahead: int, work: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
    """Results of ``work`` in the order of the items, of which a few are worked on at a time."""
    waiting: deque[Future[T]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Runs:
    """Sorted runs: the first in memory, as far as they fit, the others in a temporary file."""

    def __init__(self, path: Path, memory: int) -> None:
        self._path, self._room = path, memory
        self._file: BinaryIO | None = None
        self._sizes: list[int] = []
        self._kept: list[list[Column]] = []
        self._begins: list[int] = []
        self._types: list[np.dtype[Any]] = []

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            # What a full disk did not take is of no use any more.
            with suppress(OSError):
                self._file.close()
            self._path.unlink(missing_ok=True)

    def add(self, run: PairRows) -> None:
        """Add a run."""
        if not run.size:
            return
        # A count within a run is smaller than a block.
        columns: list[Column] = [*run.keys, run.next, run.count.astype(np.uint32)]
        self._sizes.append(run.size)
        self._types = [column.dtype for column in columns]
        self._room -= sum(column.nbytes for column in columns)
        if self._room >= 0:
            self._kept.append(columns)
        else:
            self._write(columns)

    def _write(self, columns: Sequence[Column]) -> None:
        with disk_errors("Counting could not use the disk"):
            if self._file is None:
                self._file = self._path.open("w+b")
            self._begins.append(self._file.tell())
            # Not tofile, which does not notice that a disk is full.
            for column in columns:
                self._file.write(np.ascontiguousarray(column).data)
            self._file.flush()

    def _read(self, run: int, begin: int, size: int) -> list[Column]:
        """Columns of some rows of a run."""
        if run < len(self._kept):
            return [column[begin : begin + size] for column in self._kept[run]]
        assert self._file is not None
        place, columns = self._begins[run - len(self._kept)], []
        for kind in self._types:
            self._file.seek(place + begin * kind.itemsize)
            columns.append(np.frombuffer(self._file.read(size * kind.itemsize), kind, size))
            place += self._sizes[run] * kind.itemsize
        return columns

    def ranges(self, rows: int) -> Iterator[PairRows]:
        """The rows of all runs in ranges of contexts, in order, each of about so many rows."""
        done = [0] * len(self._sizes)
        step = rows // max(len(done), 1) + 1
        while any(place < size for place, size in zip(done, self._sizes, strict=True)):
            parts = self._range(done, step)
            # A context with more next tokens than rows were read: read more.
            step = rows // len(done) + 1 if parts else 2 * step
            if parts:
                *sorted_by, count = (np.concatenate(columns) for columns in zip(*parts, strict=True))
                yield PairRows.of([*sorted_by, count.astype(np.int64)])

    def _range(self, done: list[int], step: int) -> list[list[Column]]:
        """The next rows of each run, up to the first context that a run may continue after the rows that are read."""
        read = {
            run: self._read(run, place, min(step, size - place))
            for run, (place, size) in enumerate(zip(done, self._sizes, strict=True))
            if place < size
        }
        unfinished = [run for run, columns in read.items() if done[run] + columns[0].size < self._sizes[run]]
        limit = min(([int(key[-1]) for key in read[run][:-2]] for run in unfinished), default=None)
        parts = []
        for run, columns in read.items():
            end = columns[0].size if limit is None else _rows_before(columns[:-2], limit)
            if end:
                parts.append([column[:end] for column in columns])
                done[run] += end
        return parts


def _rows_before(keys: Sequence[Column], limit: Sequence[int]) -> int:
    """Number of sorted rows whose keys come before those given."""
    begin, end = 0, keys[0].size
    for key, value in zip(keys, limit, strict=True):
        part = key[begin:end]
        end = begin + int(np.searchsorted(part, value, "right"))
        begin += int(np.searchsorted(part, value, "left"))
    return begin
