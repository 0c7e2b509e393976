"""The text that a report is about: its name, the hash of its content, and a sample to choose settings from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tokengeom.corpus.documents import (
    AUTO,
    KNOWN_MARKER,
    STANDARD_INPUT,
    AbstractTextSource,
    PlainText,
    exists,
    plain_suffix,
)
from tokengeom.corpus.locate import ReadingOptions, expand, open_corpus
from tokengeom.corpus.stories import BuiltInStories
from tokengeom.errors import CorpusError
from tokengeom.folders import file_hash

SAMPLE_CHARACTERS = 4_000_000
"""Of a longer text, settings are chosen on its beginning: six countings of this much take a few seconds."""


@dataclass(frozen=True)
class Text:
    """What a user named, ready to be counted as often as needed.

    ``corpus``
        As `tokengeom.count` takes it: files, documents, or None for the built-in stories.
    ``title``
        The name under which a reader knows the text.
    ``digest``
        SHA-256 of the content (and of what decides how it is read), whatever the place it lies in.
    """

    corpus: list[Path] | list[str] | None
    title: str
    digest: str
    reading: ReadingOptions

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read; none where the documents are in memory."""
        return tuple(one for one in self.corpus or () if isinstance(one, Path))

    def sources(self) -> Sequence[Any]:
        """Sources of documents, opened anew."""
        return [BuiltInStories()] if self.corpus is None else open_corpus(self.corpus, self.reading)

    def sample(self) -> Sample | None:
        """The beginning of the text; None where the input is token ids, which are counted where they lie."""
        sources = self.sources()
        if not all(isinstance(source, AbstractTextSource) for source in sources):
            return None
        documents, whole = _beginning(chain.from_iterable(source.pieces() for source in sources))
        marked = any(isinstance(one, PlainText) and one.separator == KNOWN_MARKER for one in sources)
        return Sample(tuple(documents), whole, marked and self.reading.separator == AUTO)


@dataclass(frozen=True)
class Sample:
    """Documents from the beginning of a text.

    ``whole``
        Whether that is all of it.
    ``marker_found``
        Whether documents turned out to end with the usual marker, without being told.
    """

    documents: tuple[str, ...]
    whole: bool
    marker_found: bool = False

    @property
    def characters(self) -> int:
        """Length of all documents."""
        return sum(map(len, self.documents))


def find_text(source: str | Path | Sequence[str | Path] | Iterable[str] | None, reading: ReadingOptions) -> Text:
    """Name and hash of a text: a path, several, a list of documents, or None for the built-in stories."""
    if source is None:
        return Text(None, "the built-in stories", _digest([BuiltInStories().name, "stories"]), reading)
    named: list[Any] = [source] if isinstance(source, str | Path) else list(source)
    if not named or not all(isinstance(name, str | Path) for name in named):
        raise CorpusError("A report is about files or a list of documents (strings); got neither.")
    if any("://" in str(name)[:16] for name in named):
        raise CorpusError(
            f"A report reads its text several times, from files of this machine; got '{named[0]}'. Count it with "
            "`tokengeom count --out STATS` and report on STATS."
        )
    # As for `count`: strings are documents, unless each of them names something that exists.
    if isinstance(source, str | Path) or all(isinstance(one, Path) or exists(one) for one in named):
        return _files(named, reading)
    return Text(named, f"{len(named):,} documents", _digest(named), reading)


def _files(named: Sequence[str | Path], reading: ReadingOptions) -> Text:
    files = expand(named)
    if STANDARD_INPUT in files:
        raise CorpusError(
            "A report reads its text several times, and standard input can be read once. Save it in a file first."
        )
    title = ", ".join(Path(name).name for name in named[:3]) + (", ..." if len(named) > 3 else "")
    parts = [(plain_suffix(path), *_hashes(path)) for path in files]
    return Text(list(files), title, _digest(parts), reading)


def _hashes(path: Path) -> Iterator[str]:
    inside = sorted(path.rglob("*")) if path.is_dir() else [path]
    try:
        yield from (file_hash(one) for one in inside if one.is_file())
    except OSError as error:
        raise CorpusError(f"Cannot read {path}: {error.strerror}. Check the path and its permissions.") from error


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _beginning(pieces: Iterator[Any]) -> tuple[list[str], bool]:
    """Documents of the first pieces, and whether nothing was left."""
    documents: list[list[str]] = []
    room = SAMPLE_CHARACTERS
    for piece in pieces:
        if piece.starts or not documents:
            documents.append([])
        # A line without a gap comes in one piece, however long it is.
        documents[-1].append(piece.text[:room])
        room -= len(piece.text)
        if room < 0:
            return ["".join(parts) for parts in documents], False
    return ["".join(parts) for parts in documents], True
