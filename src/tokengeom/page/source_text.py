"""The text of a report: its title, the hash of its content, and a sample of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from tokengeom.core.errors import CorpusError
from tokengeom.core.system import file_hash
from tokengeom.corpus.documents import (
    AUTO,
    KNOWN_MARKER,
    AbstractTextSource,
    AbstractTokenSource,
    Ids,
    Piece,
    PlainText,
)
from tokengeom.corpus.files import STANDARD_INPUT, exists, plain_suffix
from tokengeom.corpus.locate import ReadingSettings, find_files, open_corpus
from tokengeom.corpus.stories import BuiltInStories
from tokengeom.corpus.tokenizers import AbstractTokenizer

SAMPLE_CHARACTERS = 4_000_000
"""Settings are chosen from this many characters at the beginning of a text, which takes a few seconds."""


@dataclass(frozen=True)
class SourceText:
    """A corpus that can be read any number of times.

    ``corpus``   As `tokengeom.count` takes it: files, documents, or None for the built-in stories.
    ``title``    Name of the text on the page.
    ``digest``   SHA-256 of the content and of the suffixes that decide how it is read; the location does not matter.
    ``skipped``  Files in the given folders that are not text and are not read.
    """

    corpus: list[Path] | list[str] | None
    title: str
    digest: str
    reading: ReadingSettings
    skipped: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read; none where the documents are in memory."""
        return tuple(part for part in self.corpus or () if isinstance(part, Path))

    def sources(self) -> Sequence[AbstractTextSource] | Sequence[AbstractTokenSource]:
        """New sources of documents."""
        return [BuiltInStories()] if self.corpus is None else open_corpus(self.corpus, self.reading)

    def token_documents(self, tokenizer: AbstractTokenizer | None) -> Iterator[Ids]:
        """The documents one by one as token ids, of a text with a tokenizer that knows all of its tokens."""
        for source in self.sources():
            if isinstance(source, AbstractTextSource):
                assert tokenizer is not None, "a text was counted with one"
                yield from (tokenizer.encode([document])[0] for document in _documents(source.pieces()))
            else:
                yield from _id_documents(source)

    def sample(self) -> TextSample | None:
        """The beginning of the text; None for files of token ids."""
        sources = self.sources()
        texts = [source for source in sources if isinstance(source, AbstractTextSource)]
        if len(texts) < len(sources):
            return None
        documents, complete = _beginning(chain.from_iterable(source.pieces() for source in texts))
        marked = any(isinstance(source, PlainText) and source.separator == KNOWN_MARKER for source in texts)
        return TextSample(tuple(documents), complete, marked and self.reading.separator == AUTO)


@dataclass(frozen=True)
class TextSample:
    """Documents from the beginning of a text.

    ``complete``      Whether the sample is the whole text.
    ``marker_found``  Whether documents were split at a marker that was detected and not given.
    """

    documents: tuple[str, ...]
    complete: bool
    marker_found: bool = False

    @property
    def characters(self) -> int:
        """Length of all documents."""
        return sum(map(len, self.documents))


def find_text(source: object, reading: ReadingSettings) -> SourceText:
    """Title and hash of a text: a path, several paths, a list of documents, or None for the built-in stories."""
    if source is None:
        return SourceText(None, "the built-in stories", _digest([BuiltInStories().name, "stories"]), reading)
    named = _names(source)
    if any("://" in str(name)[:16] for name in named):
        raise CorpusError(
            f"A report reads its text several times, from files on this machine; got '{named[0]}'. Count it with "
            "`tokengeom count --out STATS`, then run `tokengeom report STATS`."
        )
    # As in `count`, strings are documents unless each of them is the name of an existing file.
    if isinstance(source, str | Path) or all(isinstance(item, Path) or exists(item) for item in named):
        return _text_of_files(named, reading)
    documents = [str(item) for item in named]
    return SourceText(documents, f"{len(documents):,} documents", _digest(documents), reading)


def _names(source: object) -> list[str | Path]:
    """Paths or documents as a list, or an error that names what a report can be made of."""
    if isinstance(source, str | Path):
        return [source]
    # Iterating over a mapping or a data frame would give its keys or columns.
    keyed = isinstance(source, bytes | Mapping) or hasattr(source, "columns")
    given = list(source) if isinstance(source, Iterable) and not keyed else []
    named = [item for item in given if isinstance(item, str | Path)]
    if not named or len(named) < len(given):
        inside = f" of {type(given[0]).__name__}" if given else ""
        raise CorpusError(
            "A report is made from files, a list of documents (strings), statistics, a folder of saved statistics, or "
            f"a comparison; got {type(source).__name__}{inside}. Count anything else first: "
            "stats = tg.count(...); tg.report(stats). For a saved run or comparison, pass its statistics."
        )
    return named


def _text_of_files(named: Sequence[str | Path], reading: ReadingSettings) -> SourceText:
    given_files = find_files(named)
    files = given_files.read
    if STANDARD_INPUT in files:
        raise CorpusError(
            "A report reads its text several times, and standard input can be read only once. Save it to a file first."
        )
    content = [(plain_suffix(path), *content_hashes(path)) for path in files]
    return SourceText(list(files), joined_names(named), _digest(content), reading, given_files.skipped)


def joined_names(paths: Sequence[object]) -> str:
    """File names of the first three paths."""
    return ", ".join(Path(str(path)).name for path in paths[:3]) + (", ..." if len(paths) > 3 else "")


def content_hashes(path: Path) -> Iterator[str]:
    """SHA-256 of a file, or of every file in a folder."""
    inside = sorted(path.rglob("*")) if path.is_dir() else [path]
    try:
        yield from (file_hash(file) for file in inside if file.is_file())
    except OSError as error:
        raise CorpusError(f"Cannot read {path}: {error.strerror}. Check the path and its permissions.") from error


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _documents(pieces: Iterable[Piece]) -> Iterator[str]:
    """The documents of some pieces, one at a time."""
    parts: list[str] = []
    for piece in pieces:
        if piece.starts and parts:
            yield "".join(parts)
            parts = []
        parts.append(piece.text)
    if parts:
        yield "".join(parts)


def _id_documents(source: AbstractTokenSource) -> Iterator[Ids]:
    """The documents of token ids, one at a time."""
    open_document: list[Ids] = []
    for batch in source.batches():
        for number, ids in enumerate(np.split(batch.tokens, np.cumsum(batch.lengths)[:-1])):
            if open_document and (number or not batch.continues):
                yield np.concatenate(open_document)
                open_document = []
            open_document.append(ids)
    if open_document:
        yield np.concatenate(open_document)


def _beginning(pieces: Iterable[Piece]) -> tuple[list[str], bool]:
    """Documents of the first pieces, and whether these were all."""
    documents: list[list[str]] = []
    left = SAMPLE_CHARACTERS
    for piece in pieces:
        if piece.starts or not documents:
            documents.append([])
        # A piece may be longer than what is left of the sample.
        documents[-1].append(piece.text[:left])
        left -= len(piece.text)
        if left < 0:
            return ["".join(parts) for parts in documents], False
    return ["".join(parts) for parts in documents], True
