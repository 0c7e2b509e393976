"""Hugging Face data sets, when that library is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokengeom.corpus.iterables import open_iterable
from tokengeom.corpus.source import AbstractTextSource, AbstractTokenSource
from tokengeom.errors import CorpusError, missing_extra


def is_dataset(value: object) -> bool:
    """Whether a value is a ``datasets.Dataset`` or ``IterableDataset``, asked without importing the library."""
    from_library = any(kind.__module__.split(".")[0] == "datasets" for kind in type(value).__mro__)
    return from_library and hasattr(value, "column_names")


def load_saved_dataset(folder: Path) -> Any:
    """Read a data set that ``Dataset.save_to_disk`` wrote."""
    try:
        import datasets
    except ImportError:
        missing_extra("datasets", "huggingface", "Reading a Hugging Face data set")
    try:
        return datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"{folder} is no saved data set ({error}). Write it with Dataset.save_to_disk first."
        ) from error


def open_dataset(dataset: Any, column: str) -> AbstractTextSource | AbstractTokenSource:
    """Documents in one column of a data set: strings, or lists of ids."""
    names = dataset.column_names
    if isinstance(names, dict):
        splits = ", ".join(names)
        raise CorpusError(f"A data set with splits ({splits}) was given; choose one, such as dataset['train'].")
    if names is not None and column not in names:
        raise CorpusError(f"The data set has no column '{column}'; it has: {', '.join(names)}. Name the right one.")
    return open_iterable(_Column(dataset, column))


class _Column:
    def __init__(self, dataset: Any, column: str) -> None:
        self._dataset, self._column = dataset, column

    def __iter__(self) -> Iterator[Any]:
        return (row[self._column] for row in self._dataset)
