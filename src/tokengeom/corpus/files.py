"""Files of a corpus as bytes: plain files only, unpacked in pieces of bounded size."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Literal

from tokengeom.core.errors import CorpusError
from tokengeom.core.system import kind_of_file, open_plain, require_regular

OnBytes = Callable[[int], None]
Errors = Literal["strict", "replace"]
_Unpacker = bz2.BZ2Decompressor | lzma.LZMADecompressor

STANDARD_INPUT = Path("-")
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4")
_CHUNK_BYTES = 1 << 20
_XZ_MEMORY = 1 << 28
"""Memory that unpacking .xz may take; files of ``xz -9`` need a quarter of it. The other formats need less."""

_BROKEN_STREAM = (EOFError, OSError, lzma.LZMAError, zlib.error)


def ignore_bytes(_: int) -> None:
    """The default of ``on_bytes``: progress is not shown."""


def shortened(error: BaseException) -> str:
    """The message of a library on one line, without its end if it is long; it may quote the whole input."""
    text = " ".join(str(error).split())
    return (text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}...").rstrip(". ")


_LONGEST_MESSAGE = 300


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


def require_plain_file(path: Path) -> int:
    """The length of a plain file in bytes; anything else is refused: a pipe or a device may never end."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise CorpusError(
            f"{path} is {kind_of_file(status.st_mode)}; a corpus is read from plain files. "
            f"{_remedy(path, status.st_mode)}"
        )
    require_regular(path)
    return status.st_size


def _remedy(path: Path, mode: int) -> str:
    if not stat.S_ISFIFO(mode):
        return "Name a file inside it." if stat.S_ISDIR(mode) else "Copy its contents to a file first."
    example = "COMMAND | tokengeom count -" if path.is_relative_to("/dev/fd") else f"tokengeom count - < {path}"
    return f"Send its contents to the standard input instead, as in: {example}"


def _unreadable(path: Path, error: OSError | ValueError) -> CorpusError:
    why = error.strerror if isinstance(error, OSError) else error
    return CorpusError(f"Cannot read {path}: {why}. Check the path and its permissions.")


def file_size(path: Path) -> int | None:
    """Length of a plain file in bytes on disk; None for standard input."""
    return None if path == STANDARD_INPUT else require_plain_file(path)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise CorpusError("The standard input is closed; redirect a file or a pipe to it, or name a file.")
        yield sys.stdin.buffer
        return
    require_plain_file(path)
    with ExitStack() as stack:
        try:
            raw = stack.enter_context(open_plain(path, links=True))
        except OSError as error:
            raise _unreadable(path, error) from error
        yield raw


def byte_chunks(path: Path, on_bytes: OnBytes) -> Iterator[bytes]:
    """Yield a file's decompressed bytes, at most one mebibyte at a time."""
    suffix = path.suffix.lower()
    with _opened(path) as raw:
        if suffix in COMPRESSED_SUFFIXES and os.fstat(raw.fileno()).st_size == 0:
            raise _broken(path, suffix, EOFError("it is empty"))
        chunks = _decompressed(raw, suffix)
        seen = 0
        while True:
            try:
                chunk = next(chunks, b"")
            except _BROKEN_STREAM as error:
                raise _broken(path, suffix, error) from error
            if not chunk:
                return
            yield chunk
            position = raw.tell() if raw.seekable() else seen + len(chunk)
            on_bytes(position - seen)
            seen = position


def _broken(path: Path, suffix: str, error: Exception) -> CorpusError:
    if suffix not in COMPRESSED_SUFFIXES:
        name = "the standard input" if path == STANDARD_INPUT else str(path)
        return CorpusError(f"Reading {name} failed: {error}. Check it, and try again.")
    if "Memory usage limit" in str(error):
        return CorpusError(
            f"Unpacking {path} needs more than {_XZ_MEMORY >> 20} MiB of memory, the limit for .xz files. "
            "Compress it again with xz -9 or a lower level."
        )
    return CorpusError(f"{path} is incomplete or not a valid {suffix} file ({error}). Download or compress it again.")


def _decompressed(raw: IO[bytes], suffix: str) -> Iterator[bytes]:
    match suffix:
        case ".gz":
            return _chunks(gzip.GzipFile(fileobj=raw))
        case ".bz2":
            return _streams(raw, bz2.BZ2Decompressor)
        case ".xz":
            return _streams(raw, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY))
        case ".zst" | ".lz4":
            import pyarrow as pa

            codec = {".zst": "zstd", ".lz4": "lz4"}[suffix]
            return _chunks(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec))
        case _:
            return _chunks(raw)


def _chunks(stream: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _streams(raw: IO[bytes], new: Callable[[], _Unpacker]) -> Iterator[bytes]:
    """Unpack one compressed stream after the other; zeros between them are padding.

    The readers of Python's standard library end without an error where a stream after the first is damaged.
    """
    data = raw.read(_CHUNK_BYTES)
    while data:
        unpacker = new()
        while not unpacker.eof:
            if unpacker.needs_input and not data and not (data := raw.read(_CHUNK_BYTES)):
                raise EOFError("it ends too early")
            chunk = unpacker.decompress(data, _CHUNK_BYTES)
            data = b""
            if chunk:
                yield chunk
        data = unpacker.unused_data or raw.read(_CHUNK_BYTES)
        while data and not (data := data.lstrip(b"\0")):
            data = raw.read(_CHUNK_BYTES)
