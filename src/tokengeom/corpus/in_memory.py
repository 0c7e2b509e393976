"""Documents from Python: iterables of strings or of token ids, Hugging Face data sets, and their Arrow files.

A data set in memory or on disk is read in Arrow's columns, a stream row by row. Missing values are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.errors import CorpusError, TokengeomError, missing_extra
from tokengeom.corpus.documents import AbstractTextSource, AbstractTokenSource, Piece, TokenBatch, pieces_of
from tokengeom.corpus.files import OnBytes, ignore_bytes, require_plain_file, shortened
from tokengeom.corpus.token_files import arrow_errors, as_ids, strings_of

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_TOKENS = 1 << 20
_BATCH_ROWS = 1024


def open_iterable(documents: Iterable[object], name: str | None = None) -> AbstractTextSource | AbstractTokenSource:
    """A text source for strings, a token source for arrays of ids; the first document decides.

    ``name``  Name of the source in messages and in what is saved; by default its number of documents.
    """
    again = documents if not isinstance(documents, Iterator) else None
    if name is None:
        name = f"<{len(again):,} documents>" if isinstance(again, Collection) else "<a stream of documents>"
    iterator = iter(documents)
    first = next(_guarded(iterator, name), None)
    if first is None:
        raise CorpusError(f"The corpus is empty: {name} has no document.")
    if isinstance(first, Mapping):
        raise CorpusError(
            f"Document 0 of {name} must be a string or a list of ids; it is a {type(first).__name__} with the keys "
            f"{', '.join(map(str, first))}. Pass one of them: (row['text'] for row in rows)."
        )
    opened = _Documents(first, iterator, again, name)
    return TextDocuments(opened) if isinstance(first, str) else TokenDocuments(opened)


class _Documents:
    """Documents whose first was looked at: iterated again from the start if that is possible, else continued."""

    def __init__(self, first: object, iterator: Iterator[object], again: Iterable[object] | None, name: str) -> None:
        self._first, self._iterator, self._again = first, iterator, again
        self.repeatable, self.name = again is not None, name

    def __iter__(self) -> Iterator[object]:
        return _guarded(self._once() if self._again is None else iter(self._again), self.name)

    def _once(self) -> Iterator[object]:
        yield self._first
        yield from self._iterator


def _guarded(documents: Iterator[object], name: str) -> Iterator[object]:
    """The documents; an error of whatever yields them, such as a lost connection, says how far it came."""
    number = 0
    while True:
        try:
            document = next(documents)
        except StopIteration:
            return
        except TokengeomError:
            raise
        except Exception as error:
            raise CorpusError(
                f"{name} ended with an error, {type(error).__name__}: {shortened(error)}. Documents read before it: "
                f"{number:,}. Nothing was counted. Try again; save a stream that breaks off to a file first."
            ) from error
        yield document
        number += 1


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
            yield from pieces_of(text)


class TokenDocuments(AbstractTokenSource):
    """An iterable of id arrays, one per document."""

    def __init__(self, documents: _Documents) -> None:
        super().__init__(documents.name)
        self._documents, self.repeatable = documents, documents.repeatable

    def batches(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[TokenBatch]:
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
    with _errors_of_datasets(folder):
        return datasets.load_from_disk(str(folder))


@contextmanager
def _errors_of_datasets(name: object) -> Iterator[None]:
    """Say that a data set is damaged where its library fails, with whatever error it meets in its files."""
    try:
        yield
    except TokengeomError:
        raise
    except Exception as error:
        raise CorpusError(
            f"{name} cannot be read as a data set; it is damaged or incomplete: {type(error).__name__}: "
            f"{shortened(error)}. Write it again with Dataset.save_to_disk."
        ) from error


def open_dataset(dataset: Any, column: str, name: str | None = None) -> AbstractTextSource | AbstractTokenSource:
    """A source of the documents in one column of a data set: strings, or lists of ids."""
    with _errors_of_datasets(name or "The data set"):
        return _open_dataset(dataset, column, name)


def _open_dataset(dataset: Any, column: str, name: str | None) -> AbstractTextSource | AbstractTokenSource:
    names = dataset.column_names
    if isinstance(names, dict):
        splits = list(names)
        raise CorpusError(f"The data set has splits ({', '.join(splits)}); choose one, such as dataset['{splits[0]}'].")
    if names is not None and column not in names:
        raise _no_column("The data set", column, names)
    if not hasattr(dataset, "num_rows"):
        return open_iterable(_Again(_row_by_row, dataset.with_format(None), column), name or "<a streamed data set>")
    described = name or f"<a data set of {dataset.num_rows:,} rows>"
    # A function of the user's that makes rows when they are read has to see the rows.
    if dataset.format["type"] == "custom":
        return open_iterable(_Again(_row_by_row, dataset, column), described)
    return open_iterable(_Again(_from_tables, dataset, column, described), described)


def open_arrow(path: Path, column: str) -> AbstractTextSource | AbstractTokenSource:
    """A source of the documents in one column of an Arrow file, such as those inside a saved data set."""
    return open_iterable(_Again(_from_file, path, column), str(path))


def _no_column(what: str, column: str, names: Iterable[str]) -> CorpusError:
    known = list(names)
    likely = "input_ids" if "input_ids" in known else next(iter(known), column)
    return CorpusError(
        f"{what} has no column '{column}'; it has: {', '.join(known)}. Name the right one, such as "
        f"column='{likely}', or --column {likely} on the command line."
    )


class _Again:
    """Documents that a function yields anew each time they are read."""

    def __init__(self, read: Callable[..., Iterator[Any]], *arguments: Any) -> None:
        self._read, self._arguments = read, arguments

    def __iter__(self) -> Iterator[Any]:
        return self._read(*self._arguments)


def _row_by_row(dataset: Any, column: str) -> Iterator[Any]:
    """One column of a data set, row by row."""
    for row in dataset:
        # A stream may not know its columns in advance.
        if column not in row:
            raise _no_column("A row of the data set", column, row)
        if row[column] is not None:
            yield row[column]


def _from_tables(dataset: Any, column: str, name: str) -> Iterator[Any]:
    """One column of a data set that is stored as Arrow tables."""
    for table in dataset.select_columns([column]).with_format("arrow").iter(_BATCH_ROWS):
        for array in table.column(0).chunks:
            yield from _arrow_documents(array, f"{name}, column '{column}'")


def _from_file(path: Path, column: str) -> Iterator[Any]:
    """One column of an Arrow file, in the format for streams (as data sets are saved) or that for files."""
    require_plain_file(path)
    with arrow_errors(path, "Arrow"):
        for batch in _record_batches(path):
            if column not in batch.schema.names:
                raise _no_column(str(path), column, batch.schema.names)
            yield from _arrow_documents(batch.column(column), f"{path}, column '{column}'")


def _record_batches(path: Path) -> Iterator[Any]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        try:
            stream = pa.ipc.open_stream(source)
        except pa.ArrowInvalid:
            file = pa.ipc.open_file(source)
            yield from map(file.get_batch, range(file.num_record_batches))
        else:
            yield from stream


def _arrow_documents(array: pa.Array, name: str) -> Iterator[Any]:
    """The documents in an array of strings, or of lists of ids; missing ones are skipped."""
    from pyarrow import compute, types

    # Arrow does not check the contents of files: offsets that are wrong would be followed.
    array.validate(full=True)
    kind, present = array.type, array.drop_null()
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if types.is_string(kind) or types.is_large_string(kind):
        yield from strings_of(present)
    elif is_list and types.is_integer(kind.value_type):
        ids = present.flatten()
        if ids.null_count:
            raise CorpusError(f"{name} has a missing id inside a document. Remove or replace it.")
        ends = np.cumsum(compute.list_value_length(present).to_numpy(zero_copy_only=False))
        yield from np.split(ids.to_numpy(zero_copy_only=False), ends[:-1])
    else:
        raise CorpusError(f"{name} must hold strings or lists of integers; it holds {kind}. Name another column.")
