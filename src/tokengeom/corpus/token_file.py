"""Flat token files as nanoGPT writes them: ids of one integer type, end to end, with an id between documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokengeom.corpus.opening import file_size
from tokengeom.corpus.parquet import as_ids
from tokengeom.corpus.source import AbstractTokenSource, OnBytes, TokenBatch
from tokengeom.errors import CorpusError

DTYPES = ("uint16", "uint32", "int32", "int64")
_CHUNK_TOKENS = 1 << 22


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
        self._separator, self._keep = separator, keep_separator
        self.size = file_size(path)
        if self.size is not None and self.size % self._dtype.itemsize:
            raise CorpusError(
                f"{path} has {self.size:,} bytes, not a multiple of {self._dtype.itemsize}, the width of {dtype}. "
                "The dtype is wrong or the file is cut short: pass the right one with --dtype."
            )

    def batches(self, on_bytes: OnBytes = lambda _: None) -> Iterator[TokenBatch]:
        """Yield a few million ids at a time."""
        continues = False
        with self._path.open("rb") as file:
            while raw := file.read(_CHUNK_TOKENS * self._dtype.itemsize):
                ids = as_ids(np.frombuffer(raw, self._dtype), self.name)
                yield self._batch(ids, continues)
                continues = bool(self._separator is None or ids[-1] != self._separator)
                on_bytes(len(raw))

    def _batch(self, ids: np.ndarray[tuple[int], np.dtype[np.int32]], continues: bool) -> TokenBatch:
        if self._separator is None:
            return TokenBatch(ids, np.array([ids.size]), continues)
        ends = np.flatnonzero(ids == self._separator)
        bounds = np.concatenate(([0], ends + 1, [ids.size]))
        lengths = np.diff(bounds)
        if not self._keep:
            lengths[:-1] -= 1
            ids = np.delete(ids, ends)
        # The last stretch is empty when the batch ends in a separator: it is no document.
        return TokenBatch(ids, lengths if lengths[-1] else lengths[:-1], continues)
