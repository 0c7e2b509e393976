"""Token files and Parquet.

A token file, as nanoGPT writes it, has ids of one integer type, one after the other, with a separator id between
documents. A Parquet file has one document per row in a named column, as text or as a list of ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.core.errors import CorpusError, TokengeomError
from tokengeom.corpus.documents import (
    AbstractSource,
    AbstractTextSource,
    AbstractTokenSource,
    Ids,
    Piece,
    TokenBatch,
    pieces_of,
)
from tokengeom.corpus.files import (
    STANDARD_INPUT,
    OnBytes,
    byte_chunks,
    file_size,
    ignore_bytes,
    require_plain_file,
    shortened,
)

if TYPE_CHECKING:
    import pyarrow as pa


DTYPES = ("uint16", "uint32", "int32", "int64")
_CHUNK_TOKENS = 1 << 22
_NUMPY = b"\x93NUMPY"
_TELLING = 64
"""A pattern in at least this many ids is unlikely to be chance."""

_OFTEN, _TIMES_AVERAGE, _SELDOM = 10, 5, 0.01
"""A separator occurs at least so often, so many times as often as the average id, and follows itself so rarely."""


class TokenFile(AbstractTokenSource):
    """Documents of a ``.bin`` file.

    ``path``            The file; little-endian.
    ``dtype``           One of ``uint16``, ``uint32``, ``int32``, ``int64``. The file itself does not say.
    ``separator``       Id that ends a document; None if the file is one document.
    ``keep_separator``  Whether the id is kept, as the last token of its document, so ends are predicted too.
    """

    likely_separator: int | None = None
    """Without a separator: an id that looks like one, when the file was last read to the end."""

    def __init__(
        self, path: Path, dtype: str = "uint16", separator: int | None = None, keep_separator: bool = False
    ) -> None:
        super().__init__(str(path))
        if dtype not in DTYPES:
            raise CorpusError(f"The dtype of a token file must be one of {', '.join(DTYPES)}; got '{dtype}'.")
        self._path, self._dtype = path, np.dtype(dtype).newbyteorder("<")
        self.separator, self._keep = separator, keep_separator
        self.size = file_size(path)
        self.repeatable = path != STANDARD_INPUT

    def batches(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[TokenBatch]:
        continues, largest = False, _LargestId()
        for number, raw in enumerate(self._chunks(on_bytes)):
            ids = as_ids(np.frombuffer(raw, self._dtype), self.name)
            if number == 0:
                self._refuse_half_ids(ids)
            largest.add(ids)
            yield self._batch(ids, continues)
            continues = bool(self.separator is None or ids[-1] != self.separator)
        self.likely_separator = largest.value if self.separator is None and largest.looks_like_separator else None

    def _chunks(self, on_bytes: OnBytes) -> Iterator[bytes]:
        """Bytes of whole ids, however the file is split into chunks."""
        width = self._dtype.itemsize
        waiting = bytearray()
        for number, chunk in enumerate(byte_chunks(self._path, on_bytes)):
            if number == 0 and chunk.startswith(_NUMPY):
                raise CorpusError(
                    f"{self.name} is a NumPy file, with a header before its ids. Write the ids alone, with "
                    "array.astype('uint16').tofile('ids.bin')."
                )
            waiting += chunk
            if len(waiting) >= _CHUNK_TOKENS * width:
                whole = len(waiting) // width * width
                yield bytes(waiting[:whole])
                del waiting[:whole]
        if len(waiting) % width:
            raise CorpusError(
                f"{self.name} has {len(waiting) % width} bytes more than a multiple of {width}, the width of "
                f"{self._dtype.name}. The dtype is wrong or the file is incomplete: pass the right one with --dtype."
            )
        if waiting:
            yield bytes(waiting)

    def _refuse_half_ids(self, ids: Ids) -> None:
        """Refuse small ids of four bytes that are read as ids of two: every second one is zero."""
        halves = self._dtype.itemsize == 2 and ids.size >= _TELLING and ids.size % 2 == 0
        if halves and ids.any() and not ids[1::2].any():
            raise CorpusError(
                f"Every second id of {self.name} is 0: it looks like uint32 read as {self._dtype.name}. "
                "Pass --dtype uint32."
            )

    def _batch(self, ids: Ids, continues: bool) -> TokenBatch:
        if self.separator is None:
            return TokenBatch(ids, np.array([ids.size]), continues)
        ends = np.flatnonzero(ids == self.separator)
        bounds = np.concatenate(([0], ends + 1, [ids.size]))
        lengths = np.diff(bounds)
        if not self._keep:
            lengths[:-1] -= 1
            ids = np.delete(ids, ends)
        # The last length is 0 when the batch ends in a separator: nothing follows it.
        return TokenBatch(ids, lengths if lengths[-1] else lengths[:-1], continues)


class _LargestId:
    """The largest id of a stream, how often it occurs, and how often it follows itself."""

    def __init__(self) -> None:
        self.value, self._tokens, self._count, self._repeats = -1, 0, 0, 0
        self._last = -1

    def add(self, ids: Ids) -> None:
        """Look at the next ids, at least one."""
        top = int(ids.max())
        if top > self.value:
            self.value, self._count, self._repeats = top, 0, 0
        places = np.flatnonzero(ids == self.value)
        self._count += places.size
        self._repeats += int(np.count_nonzero(np.diff(places) == 1)) + int(self._last == ids[0] == self.value)
        self._tokens += ids.size
        self._last = int(ids[-1])

    @property
    def looks_like_separator(self) -> bool:
        """Whether the id is frequent and hardly ever follows itself, as the id between documents does."""
        # Tokenizers give their last ids to special tokens, or to rare ones.
        frequent = self._count >= _OFTEN and self._count * (self.value + 1) >= _TIMES_AVERAGE * self._tokens
        return frequent and self._repeats <= _SELDOM * self._count


_ROWS = 1024
_BATCH_BYTES = 1 << 24
_COPIES_OF_A_ROW, _COPIES_OF_A_BATCH = 6, 3
"""A value is held in a page, in a column, and as a string of up to four bytes per character."""


@contextmanager
def arrow_errors(path: Path, format_name: str) -> Iterator[None]:
    """Say which file is damaged where Arrow cannot read it; its errors are of many types."""
    from pyarrow import ArrowException

    try:
        yield
    except TokengeomError:
        raise
    except (ArrowException, OSError, ValueError, IndexError) as error:
        raise CorpusError(
            f"{path} cannot be read as {format_name}; it is damaged or incomplete: {shortened(error)}. "
            "Download or write it again."
        ) from error


def _open(path: Path, **options: Any) -> Any:
    import pyarrow.parquet as pq

    require_plain_file(path)
    with arrow_errors(path, "Parquet"):
        # Pages are read as they are needed; otherwise a column of a row group is read at once.
        return pq.ParquetFile(path, buffer_size=_BATCH_BYTES, page_checksum_verification=True, **options)


def open_parquet(path: Path, column: str) -> AbstractTextSource | AbstractTokenSource:
    """A text source or a token source, depending on the type of the column."""
    import pyarrow.types as types

    with arrow_errors(path, "Parquet"):
        schema = _open(path).schema_arrow
        names = schema.names
    if column not in names:
        raise CorpusError(
            f"{path} has no column '{column}'; it has: {', '.join(names)}. Name the right one with --column."
        )
    if names.count(column) > 1:
        raise CorpusError(f"{path} has several columns '{column}'. Write it again with different names.")
    kind = schema.field(column).type
    if types.is_string(kind) or types.is_large_string(kind):
        return ParquetText(path, column)
    if (types.is_list(kind) or types.is_large_list(kind)) and types.is_integer(kind.value_type):
        return ParquetTokens(path, column)
    raise CorpusError(
        f"{path}: column '{column}' must hold strings or lists of integers; it holds {kind}. Name another one."
    )


def _columns(source: AbstractSource, path: Path, column: str, on_bytes: OnBytes) -> Iterator[pa.Array]:
    """The column in batches of a few rows: as many as fit in memory."""
    file, size = _open(path), file_size(path) or 0
    rows, read, what = file.metadata.num_rows, 0, f"a row of column '{column}'"
    for group in range(file.metadata.num_row_groups):
        about = file.metadata.row_group(group)
        source.require_memory(_COPIES_OF_A_ROW * (about.total_byte_size // max(about.num_rows, 1)), what)
        largest = _largest_row(path, group, column)
        source.require_memory(_COPIES_OF_A_ROW * largest, what)
        some = min(max(_BATCH_BYTES // max(largest, 1), 1), _ROWS)
        for batch in file.iter_batches(batch_size=some, row_groups=[group], columns=[column]):
            source.require_memory(_COPIES_OF_A_BATCH * batch.nbytes, what)
            yield batch.column(0)
            read += batch.num_rows
            on_bytes(size * batch.num_rows // max(rows, 1))
    if read != rows:
        raise CorpusError(f"{path} is damaged: it should have {rows:,} rows and has {read:,}. Write it again.")


def _largest_row(path: Path, group: int, column: str) -> int:
    """Bytes of a row: at least those of the average row, and of the largest string that rows share by a dictionary."""
    from pyarrow import compute, types

    text = types.is_string(_open(path).schema_arrow.field(column).type)
    try:
        file, first = _first_row(path, group, column, [column] if text else None)
    except OSError:
        # Some encodings of strings cannot be read so; a file that is damaged fails again.
        file, first = _first_row(path, group, column, None)
    if first is None:
        return 0
    # Only now, after the library has checked it while reading: damaged metadata of a column ends the process.
    about = file.metadata.row_group(group)
    paths = [file.schema.column(index).path for index in range(len(file.schema))]
    mine = [about.column(index) for index, name in enumerate(paths) if name.split(".")[0] == column.split(".")[0]]
    size: int = sum(max(part.total_uncompressed_size, 8 * part.num_values) for part in mine)
    average: int = size // max(about.num_rows, 1)
    if not types.is_dictionary(first.column(0).type):
        return average
    largest: int = compute.max(compute.binary_length(first.column(0).dictionary)).as_py() or 0
    return max(average, largest)


def _first_row(path: Path, group: int, column: str, shared: list[str] | None) -> tuple[Any, Any]:
    """The file, opened so that the strings of the columns ``shared`` stay shared, and the first row of a group."""
    file = _open(path, read_dictionary=shared)
    return file, next(file.iter_batches(1, row_groups=[group], columns=[column]), None)


def strings_of(array: pa.Array) -> Iterator[str]:
    """The strings in an array, without missing ones; a few at a time become Python's, which bounds the memory."""
    from pyarrow import compute

    present = array.drop_null()
    ends = np.cumsum(np.asarray(compute.binary_length(present).to_numpy(zero_copy_only=False), dtype=np.int64))
    begin = done = 0
    while begin < len(present):
        end = max(int(np.searchsorted(ends, done + _BATCH_BYTES, "right")), begin + 1)
        yield from present.slice(begin, end - begin).to_pylist()
        begin, done = end, int(ends[end - 1])


class ParquetText(AbstractTextSource):
    """Documents in a column of strings; nulls and empty documents are skipped."""

    def __init__(self, path: Path, column: str) -> None:
        super().__init__(str(path))
        self._path, self._column, self.size = path, column, file_size(path)

    def pieces(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[Piece]:
        with arrow_errors(self._path, "Parquet"):
            for values in _columns(self, self._path, self._column, on_bytes):
                for text in strings_of(values):
                    yield from pieces_of(text)


class ParquetTokens(AbstractTokenSource):
    """Documents in a column of lists of ids."""

    def __init__(self, path: Path, column: str) -> None:
        super().__init__(str(path))
        self._path, self.column, self.size = path, column, file_size(path)

    def batches(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[TokenBatch]:
        with arrow_errors(self._path, "Parquet"):
            for values in _columns(self, self._path, self.column, on_bytes):
                lists = values.drop_null()
                lengths = np.asarray(lists.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)
                tokens = lists.flatten()
                if tokens.null_count:
                    raise CorpusError(
                        f"{self.name}: column '{self.column}' has a missing id inside a document. Remove or replace it."
                    )
                yield TokenBatch(as_ids(tokens.to_numpy(zero_copy_only=False), self.name), lengths)


def as_ids(values: Any, name: str) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Integers as int32 ids; values that int32 cannot represent are refused."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.int32)
    if not np.issubdtype(array.dtype, np.integer):
        raise CorpusError(f"Token ids must be integers; {name} has {array.dtype}.")
    lowest, highest = int(array.min()), int(array.max())
    if lowest < 0 or highest > np.iinfo(np.int32).max:
        bad = lowest if lowest < 0 else highest
        raise CorpusError(f"Token ids must lie in 0..2147483647; {name} has {bad}. Check the dtype.")
    return array.astype(np.int32, copy=False)
