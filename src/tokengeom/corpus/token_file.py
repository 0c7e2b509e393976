"""Flat token files as nanoGPT writes them: ids of one integer type, end to end, with an id between documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokengeom.corpus.opening import STANDARD_INPUT, byte_chunks, file_size
from tokengeom.corpus.parquet import as_ids
from tokengeom.corpus.source import AbstractTokenSource, Ids, OnBytes, TokenBatch
from tokengeom.errors import CorpusError

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
