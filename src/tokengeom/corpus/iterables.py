"""Documents that Python code already holds, or makes one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from tokengeom.corpus.parquet import as_ids
from tokengeom.corpus.source import (
    AbstractTextSource,
    AbstractTokenSource,
    OnBytes,
    Piece,
    TokenBatch,
)
from tokengeom.errors import CorpusError

_BATCH_TOKENS = 1 << 20


def open_iterable(documents: Iterable[Any]) -> AbstractTextSource | AbstractTokenSource:
    """A text source for strings, a token source for anything like an array of ids; the first document decides."""
    again = documents if not isinstance(documents, Iterator) else None
    iterator = iter(documents)
    first = next(iterator, None)
    if first is None:
        raise CorpusError("The corpus is empty: the iterable yielded no document.")
    rest = _Rest(first, iterator, again)
    return TextDocuments(rest) if isinstance(first, str) else TokenDocuments(rest)


class _Rest:
    """The documents again from the first one: by a new iterator where there is one, else once."""

    def __init__(self, first: Any, iterator: Iterator[Any], again: Iterable[Any] | None) -> None:
        self._first, self._iterator, self._again = first, iterator, again
        self.repeatable = again is not None
        self.name = f"<{len(again):,} documents>" if isinstance(again, Collection) else "<a stream of documents>"

    def __iter__(self) -> Iterator[Any]:
        if self._again is not None:
            return iter(self._again)
        return self._once()

    def _once(self) -> Iterator[Any]:
        yield self._first
        yield from self._iterator


class TextDocuments(AbstractTextSource):
    """An iterable of strings, each one document."""

    def __init__(self, documents: _Rest) -> None:
        super().__init__(documents.name)
        self._documents, self.repeatable = documents, documents.repeatable

    def pieces(self, on_bytes: OnBytes = lambda _: None) -> Iterator[Piece]:
        """Yield the documents that are not empty."""
        for number, text in enumerate(self._documents):
            if not isinstance(text, str):
                raise CorpusError(
                    f"Document {number} of {self.name} must be a string like the first; it is {type(text).__name__}."
                )
            if text.strip():
                yield Piece(text)


class TokenDocuments(AbstractTokenSource):
    """An iterable of id arrays, each one document."""

    def __init__(self, documents: _Rest) -> None:
        super().__init__(documents.name)
        self._documents, self.repeatable = documents, documents.repeatable

    def batches(self, on_bytes: OnBytes = lambda _: None) -> Iterator[TokenBatch]:
        """Yield about a million ids at a time."""
        waiting: list[np.ndarray[Any, np.dtype[np.int32]]] = []
        size = 0
        for number, document in enumerate(self._documents):
            ids = as_ids(_one_dimensional(document, number, self.name), f"document {number} of {self.name}")
            waiting.append(ids)
            size += ids.size
            if size >= _BATCH_TOKENS:
                yield _batch(waiting)
                waiting, size = [], 0
        if waiting:
            yield _batch(waiting)


def _one_dimensional(document: Any, number: int, name: str) -> Any:
    array = np.asarray(document)
    if array.ndim != 1:
        raise CorpusError(f"Document {number} of {name} must be a list of ids; its shape is {array.shape}.")
    return array


def _batch(documents: list[np.ndarray[Any, np.dtype[np.int32]]]) -> TokenBatch:
    return TokenBatch(np.concatenate(documents), np.array([ids.size for ids in documents], dtype=np.int64))
