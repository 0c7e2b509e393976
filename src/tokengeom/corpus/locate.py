"""From what a user names (paths, folders, globs, ``-``, iterables, data sets) to sources of documents."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tokengeom.corpus.documents import (
    AUTO,
    COMPRESSED_SUFFIXES,
    STANDARD_INPUT,
    AbstractTextSource,
    AbstractTokenSource,
    Errors,
    JsonLines,
    PlainText,
    exists,
    plain_suffix,
)
from tokengeom.corpus.in_memory import is_dataset, load_saved_dataset, open_dataset, open_iterable
from tokengeom.corpus.token_files import TokenFile, open_parquet
from tokengeom.errors import CorpusError, InputError
from tokengeom.folders import MANIFEST, read_kind

Format = Literal["auto", "text", "jsonl", "parquet", "bin", "dataset"]

_BY_SUFFIX: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".bin": "bin",
}
_KNOWN_SUFFIXES = (".txt", ".text", ".md", *_BY_SUFFIX)
_LONGEST_NAME = 4096


@dataclass(frozen=True)
class ReadingOptions:
    """How to read a corpus."""

    format: Format = "auto"
    """``auto`` goes by each file's suffix; anything unknown is plain text."""

    separator: str = AUTO
    """Between documents of plain text: ``blank``, ``file``, a marker, or ``auto`` (``<|endoftext|>`` or blank)."""

    column: str = "text"
    """Column or key that holds the document, in JSON lines, Parquet and data sets."""

    errors: Errors = "strict"
    """What to do with bytes that are not UTF-8: ``strict`` or ``replace``."""

    dtype: str = "uint16"
    """Integer type of a token file."""

    separator_id: int | None = None
    """Id that ends a document of a token file."""

    keep_separator: bool = False
    """Whether that id stays, as the last token of its document."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("format", self.format, get_args(Format)),
            ("errors", self.errors, get_args(Errors)),
        ):
            if value not in known:
                raise CorpusError(f"The option {name} must be one of {', '.join(known)}; got {value!r}.")


def open_corpus(
    corpus: str | Path | Sequence[str | Path] | Iterable[Any], options: ReadingOptions
) -> list[AbstractTextSource] | list[AbstractTokenSource]:
    """Sources for everything that was named, in a fixed order: all of text, or all of ids.

    A single string is a path (or a glob, or ``-``), never a document: give a document as ``[text]``. A list of strings
    is a list of documents, unless each of them names something that exists.
    """
    if isinstance(corpus, str | Path):
        return _of_one_kind([_open_file(path, options) for path in expand([corpus])])
    if is_dataset(corpus):
        return _of_one_kind([open_dataset(corpus, options.column)])
    if isinstance(corpus, Mapping) or hasattr(corpus, "columns"):
        raise CorpusError(f"A {type(corpus).__name__} is no list of documents; give one column of it, as a list.")
    if not isinstance(corpus, Iterable):
        raise CorpusError(f"A corpus is a path or an iterable of documents; got a {type(corpus).__name__}.")
    if isinstance(corpus, Sequence) and corpus and (isinstance(corpus[0], Path) or all(map(_is_path, corpus))):
        return _of_one_kind([_open_file(path, options) for path in expand(list(corpus))])
    if isinstance(corpus, Sequence):
        _refuse_misspelt_paths(corpus)
    return _of_one_kind([open_iterable(corpus)])


def _refuse_misspelt_paths(documents: Sequence[Any]) -> None:
    """A list of strings is a list of documents, unless it looks as if a path was meant."""
    for document in documents:
        path = isinstance(document, str) and not any(map(str.isspace, document[:_LONGEST_NAME]))
        if isinstance(document, Path) or (path and plain_suffix(Path(document[:_LONGEST_NAME])) in _KNOWN_SUFFIXES):
            raise CorpusError(f"There is no file, folder or match for '{document}'. Check the path.")


def _is_path(item: object) -> bool:
    if isinstance(item, Path):
        return True
    return isinstance(item, str) and bool(_matches(item))


def _matches(name: str) -> list[Path]:
    if not name:
        return []
    if name == "-":
        return [STANDARD_INPUT]
    if exists(name):
        return [Path(name)]
    # A pattern is short and has no line breaks; a document can be anything.
    pattern = len(name) < _LONGEST_NAME and "\n" not in name and glob.has_magic(name)
    return [Path(found) for found in sorted(glob.glob(name, recursive=True))] if pattern else []


def expand(names: Sequence[str | Path]) -> list[Path]:
    """Every file behind the names; folders are searched whole, in alphabetical order."""
    files: list[Path] = []
    for name in names:
        found = _matches(str(name))
        if not found:
            raise CorpusError(f"There is no file, folder or match for '{name}'. Check the path.")
        for path in found:
            files.extend(_inside(path) if path.is_dir() and not _is_saved_dataset(path) else [path])
    return files


def _is_saved_dataset(folder: Path) -> bool:
    return (folder / "dataset_info.json").is_file() and (folder / "state.json").is_file()


def _inside(folder: Path) -> list[Path]:
    if (folder / "manifest.json").is_file():
        raise CorpusError(f"{folder} holds a saved result (it has a manifest.json), not a corpus. Was another meant?")
    files = sorted(path for path in _walk(folder) if plain_suffix(path) in _KNOWN_SUFFIXES)
    if not files:
        endings = ", ".join(_KNOWN_SUFFIXES)
        raise CorpusError(
            f"The folder {folder} has no file that ends in {endings} (or those with "
            f"{', '.join(COMPRESSED_SUFFIXES)} after them). Name the files themselves."
        )
    return files


def _walk(folder: Path) -> Iterator[Path]:
    """Every file below a folder but hidden ones and those of saved results; links to folders are not followed."""

    def refuse(error: OSError) -> None:
        raise CorpusError(f"Cannot read {error.filename}: {error.strerror}. Check its permissions.") from error

    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".") and not _is_result(Path(root) / name)]
        yield from (Path(root) / name for name in files if not name.startswith("."))


def _is_result(folder: Path) -> bool:
    """Whether tokengeom itself saved a folder, such as the results of a report on the text around it."""
    try:
        return (folder / MANIFEST).is_file() and read_kind(folder).startswith("tokengeom")
    except InputError:
        # A manifest of another program, in a form of its own.
        return False


def _open_file(path: Path, options: ReadingOptions) -> AbstractTextSource | AbstractTokenSource:
    if path.is_dir():
        return open_dataset(load_saved_dataset(path), options.column)
    kind = options.format if options.format != "auto" else _BY_SUFFIX.get(plain_suffix(path), "text")
    match kind:
        case "jsonl":
            return JsonLines(path, options.column, options.errors)
        case "parquet" if path.suffix.lower() in COMPRESSED_SUFFIXES:
            raise CorpusError(f"{path} is compressed as a whole, and Parquet is compressed inside: unpack it first.")
        case "parquet":
            return open_parquet(path, options.column)
        case "bin":
            return TokenFile(path, options.dtype, options.separator_id, options.keep_separator)
        case "dataset":
            raise CorpusError(f"A saved data set is a folder; {path} is a file.")
        case _:
            return PlainText(path, options.separator, options.errors)


def _of_one_kind(
    sources: list[AbstractTextSource | AbstractTokenSource],
) -> list[AbstractTextSource] | list[AbstractTokenSource]:
    texts = [source for source in sources if isinstance(source, AbstractTextSource)]
    tokens = [source for source in sources if isinstance(source, AbstractTokenSource)]
    if texts and tokens:
        raise CorpusError(
            f"Text and token ids cannot be counted together: {texts[0].name} is text, {tokens[0].name} is ids."
        )
    return texts or tokens
