"""Documents from Python: iterables of strings or of token ids, and Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.corpus.documents import (
    AbstractTextSource,
    AbstractTokenSource,
    OnBytes,
    Piece,
    TokenBatch,
    ignore_bytes,
)
from tokengeom.corpus.token_files import as_ids
from tokengeom.errors import CorpusError, missing_extra

_BATCH_TOKENS = 1 << 20


def open_iterable(documents: Iterable[object]) -> AbstractTextSource | AbstractTokenSource:
    """A text source for strings, a token source for arrays of ids; the first document decides."""
    again = documents if not isinstance(documents, Iterator) else None
    iterator = iter(documents)
    first = next(iterator, None)
    if first is None:
        raise CorpusError("The corpus is empty: the iterable yielded no document.")
    opened = _Documents(first, iterator, again)
    return TextDocuments(opened) if isinstance(first, str) else TokenDocuments(opened)


class _Documents:
    """Documents whose first was looked at: iterated again from the start if that is possible, else continued."""

    def __init__(self, first: object, iterator: Iterator[object], again: Iterable[object] | None) -> None:
        self._first, self._iterator, self._again = first, iterator, again
        self.repeatable = again is not None
        self.name = f"<{len(again):,} documents>" if isinstance(again, Collection) else "<a stream of documents>"

    def __iter__(self) -> Iterator[object]:
        return self._once() if self._again is None else iter(self._again)

    def _once(self) -> Iterator[object]:
        yield self._first
        yield from self._iterator


class TextDocuments(AbstractTextSource):
    """An iterable of strings, one per document."""

    def __init__(self, documents: _Documents) -> None:
        super().__init__(documents.name)
        self._documents, self.repeatable = documents, documents.repeatable

    def pieces(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[Piece]:
        """Yield the documents, except those without visible characters."""
        for number, text in enumerate(self._documents):
            if not isinstance(text, str):
                raise CorpusError(
                    f"Document {number} of {self.name} must be a string like the first; it is of type "
                    f"{type(text).__name__}."
                )
            if text.strip():
                yield Piece(text)


class TokenDocuments(AbstractTokenSource):
    """An iterable of id arrays, one per document."""

    def __init__(self, documents: _Documents) -> None:
        super().__init__(documents.name)
        self._documents, self.repeatable = documents, documents.repeatable

    def batches(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[TokenBatch]:
        """Yield about a million ids at a time."""
        waiting: list[NDArray[Any]] = []
        size = 0
        for number, document in enumerate(self._documents):
            ids = np.asarray(document)
            if ids.ndim != 1:
                raise CorpusError(f"Document {number} of {self.name} must be a list of ids; its shape is {ids.shape}.")
            if ids.size:
                waiting.append(ids)
                size += ids.size
            if size >= _BATCH_TOKENS:
                yield self._batch(waiting)
                waiting, size = [], 0
        if waiting:
            yield self._batch(waiting)

    def _batch(self, documents: list[NDArray[Any]]) -> TokenBatch:
        tokens = as_ids(np.concatenate(documents), self.name)
        return TokenBatch(tokens, np.array([ids.size for ids in documents], dtype=np.int64))


def is_dataset(value: object) -> bool:
    """Whether a value is a ``datasets.Dataset`` or ``IterableDataset``, without importing that library."""
    from_library = any(kind.__module__.split(".")[0] == "datasets" for kind in type(value).__mro__)
    return from_library and hasattr(value, "column_names")


def load_saved_dataset(folder: Path) -> Any:
    """Load a data set that ``Dataset.save_to_disk`` wrote."""
    try:
        import datasets
    except ImportError:
        missing_extra("datasets", "huggingface", "Reading a Hugging Face data set")
    try:
        return datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"{folder} is not a saved data set ({error}). Write it with Dataset.save_to_disk first."
        ) from error


def open_dataset(dataset: Any, column: str) -> AbstractTextSource | AbstractTokenSource:
    """A source of the documents in one column of a data set: strings, or lists of ids."""
    names = dataset.column_names
    if isinstance(names, dict):
        splits = ", ".join(names)
        raise CorpusError(f"The data set has splits ({splits}); choose one, such as dataset['train'].")
    if names is not None and column not in names:
        raise CorpusError(f"The data set has no column '{column}'; it has: {', '.join(names)}. Name the right one.")
    return open_iterable(_Column(dataset, column))


class _Column:
    def __init__(self, dataset: Any, column: str) -> None:
        self._dataset, self._column = dataset, column

    def __iter__(self) -> Iterator[Any]:
        return (row[self._column] for row in self._dataset)
