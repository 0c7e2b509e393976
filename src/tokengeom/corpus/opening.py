"""Bytes from a file, compressed or not, and text from bytes."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, Protocol

from tokengeom.corpus.source import AbstractTextSource, OnBytes
from tokengeom.errors import CorpusError

Errors = Literal["strict", "replace"]

STANDARD_INPUT = Path("-")
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4")
_CHUNK_BYTES = 1 << 20
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_BROKEN_STREAM = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


class Readable(Protocol):
    """All that reading needs of a stream."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        ...


def plain_suffix(path: Path) -> str:
    """The suffix that names the format, below a compression suffix if there is one: ``a.txt.gz`` -> ``.txt``."""
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSED_SUFFIXES else path
    return inner.suffix.lower()


def exists(name: str | Path) -> bool:
    """Whether a path exists; a name that no path can have does not."""
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def file_size(path: Path) -> int | None:
    """Length in bytes on disk; None for standard input and pipes, and one sentence if it cannot be read."""
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
    """Yield a file's decompressed bytes, a mebibyte at a time."""
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
                f"{path} breaks off or is not a valid {path.suffix} file ({error}). Fetch or compress it again."
            ) from error


class Utf8Reader:
    """Text chunks of a file, decoded as UTF-8, with every kind of line end read as a line feed.

    In the mode ``replace`` every byte that is not valid UTF-8 becomes one U+FFFD and is counted; in the mode
    ``strict`` the first one is an error that names its position.
    """

    def __init__(self, path: Path, name: str, errors: Errors) -> None:
        self._path, self._name, self._errors = path, name, errors
        self.replaced_bytes = 0

    def chunks(self, on_bytes: OnBytes) -> Iterator[str]:
        """Yield the decoded text in order."""
        # surrogateescape maps each bad byte to one lone surrogate, so that bytes can be counted exactly.
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
                "Convert the file, or pass --errors replace to read each bad byte as U+FFFD and have them counted."
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
