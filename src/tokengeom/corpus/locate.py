"""Finding a corpus: sources of documents from paths, folders, globs, ``-``, iterables and data sets."""

from __future__ import annotations

import codecs
import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from tokengeom.core.errors import CorpusError, InputError
from tokengeom.core.settings import option
from tokengeom.corpus.documents import AUTO, AbstractTextSource, AbstractTokenSource, JsonLines, PlainText
from tokengeom.corpus.files import (
    COMPRESSED_SUFFIXES,
    STANDARD_INPUT,
    Errors,
    byte_chunks,
    exists,
    ignore_bytes,
    plain_suffix,
)
from tokengeom.corpus.in_memory import is_dataset, load_saved_dataset, open_arrow, open_dataset, open_iterable
from tokengeom.corpus.stories import BuiltInStories
from tokengeom.corpus.token_files import DTYPES, TokenFile, open_parquet
from tokengeom.results.folders import HEAD_BYTES, MADE_BY_US, refuse_address
from tokengeom.results.manifests import MANIFEST, read_kind

Corpus = str | Path | Sequence[str | Path] | Iterable[object]
"""A path, glob, folder or ``-``; several of them; an iterable of strings or of id arrays; a Hugging Face data set."""

Sources = list[AbstractTextSource] | list[AbstractTokenSource]
Format = Literal["auto", "text", "jsonl", "parquet", "arrow", "bin", "dataset"]

_BY_SUFFIX: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".bin": "bin",
}
PANEL = "Reading"
_TEXT_SUFFIXES = (".txt", ".text", ".md")
_KNOWN_SUFFIXES = (*_TEXT_SUFFIXES, *_BY_SUFFIX)
_SHOWN = 120
"""Characters of a name that an error shows."""
_LONGEST_NAME = 4096


@dataclass(frozen=True)
class ReadingSettings:
    """How to read a corpus."""

    separator: str = option(
        AUTO,
        "What separates documents of plain text: blank (blank lines), file (each file is one document) or a marker; "
        "auto is the marker <|endoftext|> where the text has it, else blank.",
        panel=PANEL,
        suggestions=lambda: ["auto", "blank", "file", "<|endoftext|>"],
    )
    format: Format = option("auto", "Format of the files; auto decides by their suffixes.", panel=PANEL)
    column: str = option(
        "text", "Column or key that holds the document, in JSON lines, Parquet, Arrow files and data sets.", panel=PANEL
    )
    errors: Errors = option(
        "strict",
        "What to do with bytes that are not valid UTF-8: stop with an error (strict), or replace each by U+FFFD.",
        panel=PANEL,
    )
    dtype: str = option("uint16", "Integer type of a .bin file of token ids.", panel=PANEL, choices=lambda: DTYPES)
    separator_id: int | None = option(None, "Token id that ends a document of a .bin file.", panel=PANEL)
    keep_separator: bool = option(False, "Count that id as a token too: the last one of its document.", panel=PANEL)

    def __post_init__(self) -> None:
        for name, value, known in (
            ("format", self.format, get_args(Format)),
            ("errors", self.errors, get_args(Errors)),
        ):
            if value not in known:
                raise CorpusError(f"The setting {name} must be one of {', '.join(known)}; got {value!r}.")


def open_corpus(corpus: Corpus | None, settings: ReadingSettings) -> Sources:
    """Open everything that was named, in a fixed order: sources of text, or sources of token ids.

    None is the built-in corpus of stories. A single string is a path (or a glob, or ``-``), never a document: pass a
    document as ``[text]``. A list of strings is a list of documents, unless each of them names something that exists.
    """
    if corpus is None:
        return _of_one_kind([BuiltInStories()])
    if isinstance(corpus, str | Path):
        return _of_one_kind([_open_file(path, settings) for path in find_files([corpus]).read])
    if is_dataset(corpus):
        return _of_one_kind([open_dataset(corpus, settings.column)])
    if isinstance(corpus, Mapping) or hasattr(corpus, "columns"):
        raise CorpusError(f"A {type(corpus).__name__} is not a list of documents; pass one column of it, as a list.")
    if not isinstance(corpus, Iterable):
        raise CorpusError(f"A corpus is a path or an iterable of documents; got {type(corpus).__name__}.")
    if isinstance(corpus, Sequence) and corpus and (isinstance(corpus[0], Path) or all(map(_is_path, corpus))):
        return _of_one_kind([_open_file(path, settings) for path in find_files(list(corpus)).read])
    if isinstance(corpus, Sequence):
        _refuse_misspelt_paths(corpus)
    return _of_one_kind([open_iterable(corpus)])


def _refuse_misspelt_paths(documents: Sequence[object]) -> None:
    """Refuse a document that looks like the path of a file, which then does not exist."""
    for document in documents:
        name = document[:_LONGEST_NAME] if isinstance(document, str) else ""
        if isinstance(document, Path) or (
            plain_suffix(Path(name)) in _KNOWN_SUFFIXES and not any(map(str.isspace, name))
        ):
            refuse_address(str(document))
            raise _not_found(document)


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
    return [Path(match) for match in sorted(glob.glob(name, recursive=True))] if pattern else []


@dataclass(frozen=True)
class FoundFiles:
    """The files that names stand for.

    ``read``     Files of a corpus; folders are searched with their subfolders, in alphabetical order.
    ``skipped``  Files in these folders that are not text.
    """

    read: tuple[Path, ...]
    skipped: tuple[Path, ...] = ()


def _not_found(name: object) -> CorpusError:
    text = str(name)
    shown = text if len(text) <= _SHOWN and "\n" not in text else f"{text.splitlines()[0][:_SHOWN]}..."
    return CorpusError(
        f"There is no file, folder or match for '{shown}'. Check the path; a text itself is given in a list: [text]."
    )


def find_files(names: Sequence[str | Path]) -> FoundFiles:
    """Every file that the names stand for, and what was skipped in folders."""
    read: list[Path] = []
    skipped: list[Path] = []
    for name in names:
        matches = _matches(str(name))
        if not matches:
            refuse_address(name)
            raise _not_found(name)
        for path in matches:
            if path.is_dir() and not _is_saved_dataset(path):
                inside = _inside(path)
                read += inside.read
                skipped += inside.skipped
            else:
                read.append(path)
    return FoundFiles(tuple(read), tuple(skipped))


def skipped_files(corpus: object) -> tuple[Path, ...]:
    """Files that are skipped because they are not text, where a corpus is a folder or several names."""
    named = [corpus] if isinstance(corpus, str | Path) else corpus
    if not isinstance(named, Sequence) or not named or not all(map(_is_path, named)):
        return ()
    return find_files(named).skipped if any(Path(str(name)).is_dir() for name in named) else ()


_OF_STATISTICS = ("arrays.safetensors", "vocabulary.parquet")


def _is_saved_dataset(folder: Path) -> bool:
    return (folder / "dataset_info.json").is_file() and (folder / "state.json").is_file()


def _inside(folder: Path) -> FoundFiles:
    if (folder / "manifest.json").is_file():
        raise CorpusError(f"{folder} holds a saved result (it has a manifest.json), not a corpus. Check the path.")
    if all((folder / name).is_file() for name in _OF_STATISTICS):
        raise CorpusError(
            f"{folder} holds saved statistics without their manifest.json, not a corpus. Restore it, or count the text "
            "again."
        )
    if (folder / "dataset_dict.json").is_file():
        splits = sorted(path.name for path in folder.iterdir() if _is_saved_dataset(path))
        raise CorpusError(
            f"{folder} holds a data set with splits ({', '.join(splits)}). Name one of them: {folder / splits[0]}."
            if splits
            else f"{folder} holds a data set without splits. Write it with DatasetDict.save_to_disk again."
        )
    files = sorted(_walk(folder))
    if any(plain_suffix(path) in _BY_SUFFIX for path in files):
        # What lies beside files of data, such as a licence or a script, is not part of them.
        return FoundFiles(tuple(path for path in files if plain_suffix(path) in _KNOWN_SUFFIXES))
    texts = {path for path in files if plain_suffix(path) in _TEXT_SUFFIXES or _is_text(path)}
    if not texts:
        endings = ", ".join(_BY_SUFFIX)
        raise CorpusError(
            f"The folder {folder} has no text file in UTF-8, and no file that ends in {endings}, or in one of these "
            f"followed by {', '.join(COMPRESSED_SUFFIXES)}. Name the files themselves."
        )
    return FoundFiles(tuple(path for path in files if path in texts), tuple(p for p in files if p not in texts))


def _is_text(path: Path) -> bool:
    """Whether a file begins with text in UTF-8 and is not a page that was made from texts.

    A file that cannot be unpacked is not text.
    """
    try:
        beginning = next(byte_chunks(path, ignore_bytes), b"")
        codecs.getincrementaldecoder("utf-8")().decode(beginning)
    except (CorpusError, UnicodeDecodeError):
        return False
    return b"\0" not in beginning and MADE_BY_US not in beginning[:HEAD_BYTES]


def _walk(folder: Path) -> Iterator[Path]:
    """Every file below a folder, except hidden files, saved results and Python's caches; links are not followed."""

    def refuse(error: OSError) -> None:
        raise CorpusError(f"Cannot read {error.filename}: {error.strerror}. Check its permissions.") from error

    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not _is_apart(Path(root) / name)]
        yield from (Path(root) / name for name in files if not name.startswith("."))


def _is_apart(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name == "__pycache__" or _is_result(folder)


def _is_result(folder: Path) -> bool:
    """Whether tokengeom itself saved a folder, such as the results of a report on the text around it."""
    try:
        return (folder / MANIFEST).is_file() and read_kind(folder).startswith("tokengeom")
    except InputError:
        # The manifest of another program.
        return False


def _open_file(path: Path, settings: ReadingSettings) -> AbstractTextSource | AbstractTokenSource:
    if path.is_dir():
        return open_dataset(load_saved_dataset(path), settings.column, str(path))
    kind = settings.format if settings.format != "auto" else _BY_SUFFIX.get(plain_suffix(path), "text")
    match kind:
        case "jsonl":
            return JsonLines(path, settings.column, settings.errors)
        case "parquet" if path.suffix.lower() in COMPRESSED_SUFFIXES:
            raise CorpusError(f"{path} is a compressed Parquet file, which cannot be read in parts: unpack it first.")
        case "parquet":
            return open_parquet(path, settings.column)
        case "arrow" if path.suffix.lower() in COMPRESSED_SUFFIXES:
            raise CorpusError(f"{path} is a compressed Arrow file: unpack it first.")
        case "arrow":
            return open_arrow(path, settings.column)
        case "bin":
            return TokenFile(path, settings.dtype, settings.separator_id, settings.keep_separator)
        case "dataset":
            raise CorpusError(f"A saved data set is a folder; {path} is a file.")
        case _:
            return PlainText(path, settings.separator, settings.errors)


def _of_one_kind(sources: list[AbstractTextSource | AbstractTokenSource]) -> Sources:
    texts = [source for source in sources if isinstance(source, AbstractTextSource)]
    tokens = [source for source in sources if isinstance(source, AbstractTokenSource)]
    if texts and tokens:
        raise CorpusError(
            f"Text and token ids cannot be counted together: {texts[0].name} is text, {tokens[0].name} is ids."
        )
    return texts or tokens
