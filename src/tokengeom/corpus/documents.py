"""Sources of documents: the interface of every source, and the readers of plain text and JSON lines.

A corpus is a stream of documents, as text or as token ids. Memory does not grow with its size: a long document is read
in several pieces, and many short documents in one batch.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import re
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import CorpusError

Ids = NDArray[np.int32]
OnBytes = Callable[[int], None]

PIECE_CHARACTERS = 1 << 20
"""A longer document is read in pieces; it is split before white space."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one document's text; ``starts`` says whether it is the document's first."""

    text: str
    starts: bool = True


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Documents as token ids, one after the other.

    ``tokens``
        All ids of the batch.
    ``lengths``
        Number of ids of each document, or part of a document, in the batch; they add up to ``tokens.size``.
    ``continues``
        Whether the first ids continue the last document of the batch before.
    """

    tokens: Ids
    lengths: NDArray[np.int64]
    continues: bool = False


def ignore_bytes(_: int) -> None:
    """The default of ``on_bytes``: progress is not shown."""


class AbstractSource(ABC):
    """Something to read documents from."""

    name: str
    """Its name in messages: a path, ``standard input``, ``<3 documents>``."""

    size: int | None = None
    """Length in bytes, for progress; None if unknown."""

    repeatable: bool = True
    """Whether the documents can be read more than once."""

    def __init__(self, name: str) -> None:
        self.name = name


class AbstractTextSource(AbstractSource):
    """Documents as text."""

    replaced_bytes: int = 0
    """Number of bytes that were not valid UTF-8 and were replaced by U+FFFD, when it was last read to the end."""

    @abstractmethod
    def pieces(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[Piece]:
        """Yield the text; ``on_bytes`` is called with the number of bytes read since its last call."""


class AbstractTokenSource(AbstractSource):
    """Documents as token ids."""

    @abstractmethod
    def batches(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[TokenBatch]:
        """Yield the ids; ``on_bytes`` is called with the number of bytes read since its last call."""


Errors = Literal["strict", "replace"]

STANDARD_INPUT = Path("-")
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4")
_CHUNK_BYTES = 1 << 20
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_BROKEN_STREAM = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; no bytes at the end."""
        ...


def plain_suffix(path: Path) -> str:
    """The suffix that names the format, before that of the compression: ``a.txt.gz`` -> ``.txt``."""
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSED_SUFFIXES else path
    return inner.suffix.lower()


def exists(name: str | Path) -> bool:
    """Whether a path exists; False for a string that cannot be a path."""
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def file_size(path: Path) -> int | None:
    """Length of a file in bytes on disk; None for standard input and pipes."""
    if path == STANDARD_INPUT:
        return None
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise CorpusError(f"Cannot read {path}: {error.strerror}. Check the path and its permissions.") from error


def _decompressed(raw: IO[bytes], suffix: str) -> Readable:
    match suffix:
        case ".gz":
            return gzip.open(raw)
        case ".bz2":
            return bz2.open(raw)
        case ".xz":
            return lzma.open(raw)
        case ".zst" | ".lz4":
            import pyarrow as pa

            codec = {".zst": "zstd", ".lz4": "lz4"}[suffix]
            stream: Readable = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)
            return stream
        case _:
            return raw


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        raw = path.open("rb")
    except OSError as error:
        raise CorpusError(f"Cannot read {path}: {error.strerror}. Check the path and its permissions.") from error
    with raw:
        yield raw


def byte_chunks(path: Path, on_bytes: OnBytes) -> Iterator[bytes]:
    """Yield a file's decompressed bytes, one mebibyte at a time."""
    with _opened(path) as raw:
        stream = _decompressed(raw, path.suffix.lower())
        seen = 0
        try:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
                position = raw.tell() if raw.seekable() else seen + len(chunk)
                on_bytes(position - seen)
                seen = position
        except (*_BROKEN_STREAM, OSError) as error:
            raise CorpusError(
                f"{path} is incomplete or not a valid {path.suffix} file ({error}). Download or compress it again."
            ) from error


class Utf8Reader:
    """Reads a file as UTF-8 in chunks, with every kind of line end as a line feed.

    With ``errors="replace"`` every byte that is not valid UTF-8 becomes one U+FFFD and is counted; with
    ``errors="strict"`` the first one is an error that names its position.
    """

    def __init__(self, path: Path, name: str, errors: Errors) -> None:
        self._path, self._name, self._errors = path, name, errors
        self.replaced_bytes = 0

    def chunks(self, on_bytes: OnBytes) -> Iterator[str]:
        """Yield the decoded text in order."""
        # surrogateescape maps each bad byte to one lone surrogate, so bytes can be counted.
        policy = "strict" if self._errors == "strict" else "surrogateescape"
        decoder = codecs.getincrementaldecoder("utf-8-sig")(errors=policy)
        newlines = io.IncrementalNewlineDecoder(None, translate=True)
        offset = 0
        for chunk in byte_chunks(self._path, on_bytes):
            yield newlines.decode(self._decode(decoder, chunk, offset, final=False))
            offset += len(chunk)
        yield newlines.decode(self._decode(decoder, b"", offset, final=True), final=True)

    def _decode(self, decoder: codecs.IncrementalDecoder, chunk: bytes, offset: int, final: bool) -> str:
        if b"\0" in chunk:
            raise CorpusError(
                f"{self._name} is not text: byte {offset + chunk.index(0):,} is zero. "
                "Token files need --format bin; UTF-16 text must be converted to UTF-8 first."
            )
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            where = offset - pending + error.start
            bad = error.object[error.start]
            raise CorpusError(
                f"{self._name} is not valid UTF-8: byte 0x{bad:02x} at position {where:,}. "
                "Convert the file, or pass --errors replace to read each invalid byte as U+FFFD."
            ) from error
        if self._errors == "replace":
            text, found = _ESCAPED_BYTE.subn("\ufffd", text)
            self.replaced_bytes += found
        return text


class AbstractUtf8Source(AbstractTextSource):
    """A text source over one UTF-8 file."""

    def __init__(self, path: Path, errors: Errors) -> None:
        super().__init__("standard input" if path == STANDARD_INPUT else str(path))
        self._path, self._errors = path, errors
        self.size = file_size(path)
        self.repeatable = path != STANDARD_INPUT

    def _text(self, on_bytes: OnBytes) -> Iterator[str]:
        reader = Utf8Reader(self._path, self.name, self._errors)
        yield from reader.chunks(on_bytes)
        self.replaced_bytes = reader.replaced_bytes


AUTO = "auto"
BLANK_LINE = "blank"
KNOWN_MARKER = "<|endoftext|>"

_BLANK = re.compile(r"\n[^\S\n]*\n\s*")
# White space between two visible characters. Text is split here, as no token spans both sides.
_GAP = re.compile(r"(?<=\S)\s+(?=\S)")


class PlainText(AbstractUtf8Source):
    """Documents of a text file.

    Parameters
    ----------
    path
        The file, or ``-`` for standard input.
    separator
        ``"blank"``: one or more blank lines; ``"file"``: the file is one document; ``"auto"``: the marker
        ``<|endoftext|>`` if the first mebibyte has it, else blank lines; anything else: that marker.
    errors
        ``"strict"`` or ``"replace"``, for bytes that are not UTF-8.

    White space around a document is removed, and documents of white space alone are skipped.
    """

    def __init__(self, path: Path, separator: str = AUTO, errors: Errors = "strict") -> None:
        super().__init__(path, errors)
        if not separator:
            raise CorpusError("The separator between documents must not be empty: use blank, file or a marker.")
        self.separator = separator

    def pieces(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[Piece]:
        """Yield each document, in pieces if it is long."""
        waiting, starts = "", True
        searched = 0
        for chunk in self._text(on_bytes):
            if self.separator == AUTO and chunk:
                self.separator = KNOWN_MARKER if KNOWN_MARKER in chunk else BLANK_LINE
            *finished, waiting = self._split(waiting + chunk)
            for text in finished:
                yield from _stripped(text, starts, ends=True)
                starts, searched = True, 0
            if len(waiting) > PIECE_CHARACTERS:
                cut = self._safe_cut(waiting, searched)
                searched = 0 if cut else len(waiting) - len(self.separator)
                if cut:
                    yield from _stripped(waiting[:cut], starts, ends=False)
                    waiting, starts = waiting[cut:], False
        yield from _stripped(waiting, starts, ends=True)

    def _split(self, text: str) -> list[str]:
        match self.separator:
            case "file":
                return [text]
            case "blank":
                return _BLANK.split(text)
            case marker:
                return text.split(marker)

    def _safe_cut(self, text: str, searched: int) -> int:
        """Start of the last white space between visible characters; 0 without any (none is before ``searched``)."""
        # A marker may contain white space and be split by the end of a chunk, so its length is kept back.
        end = len(text) - len(self.separator)
        # White space is rarely far: searching the last few thousand characters first avoids a scan of everything.
        for begin in (max(0, end - 4096), max(0, searched - 1)):
            gaps = [match.start() for match in _GAP.finditer(text, begin, end)]
            if gaps:
                return gaps[-1]
        return 0


def _stripped(text: str, starts: bool, ends: bool) -> Iterator[Piece]:
    if starts:
        text = text.lstrip()
    if ends:
        text = text.rstrip()
    if text:
        yield Piece(text, starts)


class JsonLines(AbstractUtf8Source):
    """Documents of a ``.jsonl`` file, one object per line; empty lines and empty documents are skipped."""

    def __init__(self, path: Path, column: str = "text", errors: Errors = "strict") -> None:
        super().__init__(path, errors)
        self.column = column

    def pieces(self, on_bytes: OnBytes = ignore_bytes) -> Iterator[Piece]:
        """Yield the document in each line."""
        for number, line in enumerate(_lines(self._text(on_bytes)), start=1):
            if line.strip() and (text := self._document(line, number)).strip():
                yield Piece(text)

    def _document(self, line: str, number: int) -> str:
        where = f"{self.name}, line {number:,}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{where} cannot be read as JSON: {error}.") from error
        if not isinstance(record, dict) or self.column not in record:
            keys = ", ".join(map(str, record)) if isinstance(record, dict) else f"a {type(record).__name__} and no keys"
            raise CorpusError(f"{where} has no key '{self.column}'; it has: {keys}. Name the right one with --column.")
        text = record[self.column]
        if not isinstance(text, str):
            raise CorpusError(f"{where}: '{self.column}' must be a string; it is of type {type(text).__name__}.")
        return text


def _lines(chunks: Iterator[str]) -> Iterator[str]:
    # Not str.splitlines: it also splits at U+2028 and others, which JSON strings may contain.
    waiting: list[str] = []
    for chunk in chunks:
        head, *rest = chunk.split("\n")
        waiting.append(head)
        for line in rest:
            yield "".join(waiting)
            waiting = [line]
    yield "".join(waiting)
