"""Flat token files as nanoGPT writes them: ids of one integer type, end to end, with an id between documents.

Parquet: documents in a named column, as text or as lists of ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.corpus.documents import (
    STANDARD_INPUT,
    AbstractTextSource,
    AbstractTokenSource,
    Ids,
    OnBytes,
    Piece,
    TokenBatch,
    byte_chunks,
    file_size,
)
from tokengeom.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa


DTYPES = ("uint16", "uint32", "int32", "int64")
_CHUNK_TOKENS = 1 << 22
_TELLING = 64
"""Number of ids from which a pattern in them is no accident."""


class TokenFile(AbstractTokenSource):
    """Documents of a ``.bin`` file.

    Parameters
    ----------
    path
        The file; little-endian.
    dtype
        One of ``uint16``, ``uint32``, ``int32``, ``int64``. The file does not say, so the user must.
    separator
        Id that ends a document; None when the file is one document.
    keep_separator
        Whether the id stays, as the last token of its document, so that ends are predicted too.
    """

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

    def batches(self, on_bytes: OnBytes = lambda _: None) -> Iterator[TokenBatch]:
        """Yield a few million ids at a time."""
        continues = False
        for number, raw in enumerate(self._chunks(on_bytes)):
            ids = as_ids(np.frombuffer(raw, self._dtype), self.name)
            if number == 0:
                self._refuse_half_ids(ids)
            yield self._batch(ids, continues)
            continues = bool(self.separator is None or ids[-1] != self.separator)

    def _chunks(self, on_bytes: OnBytes) -> Iterator[bytes]:
        """Bytes of whole ids, whatever the chunks that the file comes in."""
        width = self._dtype.itemsize
        waiting = bytearray()
        for chunk in byte_chunks(self._path, on_bytes):
            waiting += chunk
            if len(waiting) >= _CHUNK_TOKENS * width:
                whole = len(waiting) // width * width
                yield bytes(waiting[:whole])
                del waiting[:whole]
        if len(waiting) % width:
            raise CorpusError(
                f"{self.name} has {len(waiting) % width} bytes more than a multiple of {width}, the width of "
                f"{self._dtype.name}. The dtype is wrong or the file is cut short: pass the right one with --dtype."
            )
        if waiting:
            yield bytes(waiting)

    def _refuse_half_ids(self, ids: Ids) -> None:
        """Small ids of four bytes, read as two, are followed by a zero each."""
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
        # The last stretch is empty when the batch ends in a separator: it is no document.
        return TokenBatch(ids, lengths if lengths[-1] else lengths[:-1], continues)


_ROWS = 1024


def _open(path: Path) -> Any:
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    try:
        return pq.ParquetFile(path)
    except (OSError, ArrowException) as error:
        raise CorpusError(f"{path} cannot be read as Parquet: {error}. Is it complete?") from error


def open_parquet(path: Path, column: str) -> AbstractTextSource | AbstractTokenSource:
    """A text source or a token source, whichever the column's type says."""
    import pyarrow.types as types

    schema = _open(path).schema_arrow
    if column not in schema.names:
        raise CorpusError(
            f"{path} has no column '{column}'; it has: {', '.join(schema.names)}. Name the right one with --column."
        )
    kind = schema.field(column).type
    if types.is_string(kind) or types.is_large_string(kind):
        return ParquetText(path, column)
    if (types.is_list(kind) or types.is_large_list(kind)) and types.is_integer(kind.value_type):
        return ParquetTokens(path, column)
    raise CorpusError(f"{path}: column '{column}' must hold strings or lists of integers; it holds {kind}.")


def _columns(path: Path, column: str, on_bytes: OnBytes) -> Iterator[pa.Array]:
    file, size = _open(path), file_size(path) or 0
    rows = max(file.metadata.num_rows, 1)
    batches = file.iter_batches(batch_size=_ROWS, columns=[column])
    while (batch := _next(batches, path)) is not None:
        yield batch.column(0)
        on_bytes(size * batch.num_rows // rows)


def _next(batches: Iterator[Any], path: Path) -> Any:
    """The next batch, None at the end; a damaged page is an error with the file's name."""
    from pyarrow import ArrowException

    try:
        return next(batches, None)
    except (OSError, ArrowException) as error:
        raise CorpusError(f"{path} is damaged: {error}. Fetch or write it again.") from error


class ParquetText(AbstractTextSource):
    """Documents in a column of strings; nulls and empty documents are passed over."""

    def __init__(self, path: Path, column: str) -> None:
        super().__init__(str(path))
        self._path, self._column, self.size = path, column, file_size(path)

    def pieces(self, on_bytes: OnBytes = lambda _: None) -> Iterator[Piece]:
        """Yield the document of each row."""
        for values in _columns(self._path, self._column, on_bytes):
            try:
                texts = values.to_pylist()
            except UnicodeDecodeError as error:
                raise CorpusError(f"{self.name}: column '{self._column}' holds bytes that are not UTF-8.") from error
            yield from (Piece(text) for text in texts if text and text.strip())


class ParquetTokens(AbstractTokenSource):
    """Documents in a column of lists of ids."""

    def __init__(self, path: Path, column: str) -> None:
        super().__init__(str(path))
        self._path, self.column, self.size = path, column, file_size(path)

    def batches(self, on_bytes: OnBytes = lambda _: None) -> Iterator[TokenBatch]:
        """Yield the rows as batches of documents."""
        for values in _columns(self._path, self.column, on_bytes):
            lists = values.drop_null()
            lengths = np.asarray(lists.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)
            tokens = lists.flatten()
            if tokens.null_count:
                raise CorpusError(f"{self.name}: column '{self.column}' has a missing id inside a document.")
            yield TokenBatch(as_ids(tokens.to_numpy(zero_copy_only=False), self.name), lengths)


def as_ids(values: Any, name: str) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Integers as int32 ids, refusing what would change on the way."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.int32)
    if not np.issubdtype(array.dtype, np.integer):
        raise CorpusError(f"Token ids must be integers; {name} has {array.dtype}.")
    lowest, highest = int(array.min()), int(array.max())
    if lowest < 0 or highest > np.iinfo(np.int32).max:
        bad = lowest if lowest < 0 else highest
        raise CorpusError(f"Token ids must lie in 0..2147483647; {name} has {bad}. Is the dtype right?")
    return array.astype(np.int32, copy=False)
