"""Ordered pairs: counted pairs in Parquet shards, sorted by context and next token, and statistics gathered from them.

A row group never ends inside a context, so one pass over the row groups adds up contexts without a hash table, and
builds statistics without sorting. Pairs of an engine, which are in no order, are sorted by it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Int
from tokengeom.core.resources import require_memory
from tokengeom.statistics.arrays_file import integer_array, numbers_of, sparse_fault
from tokengeom.statistics.cuts import OTHER, WINDOWS
from tokengeom.statistics.engines import AbstractEngine
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.saved_statistics import contexts_fault
from tokengeom.statistics.sorting import PairRows
from tokengeom.statistics.token_table import disk_errors
from tokengeom.statistics.windows import ContextPacking

if TYPE_CHECKING:
    import pyarrow as pa

    from tokengeom.statistics.pairs import CountedPairs


_SHARD_ROWS = 1 << 24


def write_ordered_shards(parts: Iterable[PairRows], names: Sequence[str], folder: Path) -> None:
    """Write sorted pairs into a new folder, each part as one row group.

    ``names``  Names of the columns: the keys of contexts, ``next`` and ``count``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    writer: pq.ParquetWriter | None = None
    rows = shards = 0
    with disk_errors(f"Counted pairs could not be written to {folder}"):
        for part in parts:
            if part.size:
                table = pa.Table.from_arrays(list(map(integer_array, part.columns)), names=list(names))
                if writer is None:
                    path = folder / f"pairs-{shards:05d}.parquet"
                    writer = pq.ParquetWriter(path, table.schema, compression="lz4", use_dictionary=False)
                writer.write_table(table, row_group_size=part.size)
                rows += part.size
            if writer is not None and rows >= _SHARD_ROWS:
                writer.close()
                writer, rows, shards = None, 0, shards + 1
        if writer is not None:
            writer.close()


def ordered_files(paths: Sequence[str]) -> list[Path]:
    """The shards of some folders, in order."""
    return [file for path in paths for file in sorted(Path(path).glob("*.parquet"))]


def number_of_pairs(paths: Sequence[str]) -> int:
    """Number of pairs in ordered shards."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in ordered_files(paths))


def shards_fault(paths: Sequence[str], names: Sequence[str]) -> str | None:
    """What is wrong with the columns of saved shards, as their headers describe them; None if nothing is.

    ``names``  Names of the columns: the keys of contexts, ``next`` and ``count``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = ordered_files(paths)
    if not files:
        return f"there are no shards in {Path(paths[0]).name}/"
    for file in files:
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            return f"{file.name} cannot be read ({str(error).splitlines()[0]})"
        for name in names:
            kind = pa.int32() if name == "next" else pa.int64()
            if schema.names.count(name) != 1 or schema.field(name).type != kind:
                return f"{file.name} must have one column {name} of {kind}"
    return None


def read_ordered_shards(paths: Sequence[str], names: Sequence[str]) -> Iterator[pa.Table]:
    """The row groups of ordered shards, from the first to the last."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in ordered_files(paths):
        try:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, columns=list(names))
        except (pa.ArrowException, OSError) as error:
            raise StatisticsError(
                f"The counted pairs in {path} cannot be read: {str(error).splitlines()[0]}. Count the text again."
            ) from error


def pair_rows(table: Any) -> PairRows:
    """Rows from a table with the columns of counted pairs."""
    return PairRows.of(list(map(numbers_of, table.columns)))


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
    places = np.minimum(np.searchsorted(rows, tokens), rows.size - 1).astype(np.int32)
    return np.where(rows[places] == tokens, places, np.int32(-1))


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
