"""Files as bytes and text: plain files only, compressed ones whole or refused, other encodings recognised."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tokengeom import count
from tokengeom.core.errors import CorpusError, TokengeomError
from tokengeom.corpus import files
from tokengeom.corpus.documents import PlainText
from tokengeom.corpus.files import byte_chunks, ignore_bytes, require_plain_file, shortened

TEXT = b"one two three " * 500


def arrow_compressed(codec: str) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return bytes(sink.getvalue())

    return compress


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": arrow_compressed("zstd"),
    ".lz4": arrow_compressed("lz4"),
}


def read(path: Path) -> bytes:
    return b"".join(byte_chunks(path, ignore_bytes))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_is_read_whole_or_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_CHUNK_BYTES", 100)
    path, one = tmp_path / f"a.txt{suffix}", COMPRESS[suffix](TEXT)
    path.write_bytes(one + one)
    assert read(path) == TEXT + TEXT
    damaged = bytearray(one)
    damaged[1] ^= 0xFF
    for content in (one[:-3], one + one[: len(one) // 2], one + bytes(damaged), one + b"tail", b"", bytes(damaged)):
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=rf"a\.txt{suffix} is incomplete or not a valid {suffix} file .*again"):
            read(path)


def test_padding_between_compressed_streams_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(b"one") + bytes(8) + lzma.compress(b"two") + bytes(4))
    assert read(path) == b"onetwo"


def test_unpacking_is_limited_in_memory_and_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for suffix, compress in COMPRESS.items():
        path = tmp_path / f"bomb{suffix}"
        path.write_bytes(compress(bytes(3 << 20)))
        assert max(map(len, byte_chunks(path, ignore_bytes))) <= 1 << 20
    monkeypatch.setattr(files, "_XZ_MEMORY", 1 << 20)
    with pytest.raises(CorpusError, match=r"more than 1 MiB of memory, the limit for \.xz files\. .* xz -9"):
        read(tmp_path / "bomb.xz")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet", "a.bin", "a.arrow", "a.txt.gz"])
def test_pipes_sockets_and_devices_are_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    (tmp_path / f"link-{name}").symlink_to(tmp_path / name)
    for path in (tmp_path / name, tmp_path / f"link-{name}"):
        with pytest.raises(CorpusError, match=rf"{name} is a named pipe; .* as in: tokengeom count - < /"):
            count(path, context=1)


def test_what_else_is_not_a_plain_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(tmp_path)
        listening.bind("s")
        with pytest.raises(CorpusError, match=r"s is a socket; .* Copy its contents"):
            count("s", context=1)
    with pytest.raises(CorpusError, match=r"/dev/zero is a device; "):
        count("/dev/zero", context=1)
    with pytest.raises(CorpusError, match=r"is a folder; .* Name a file inside it"):
        require_plain_file(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CorpusError, match=r"Cannot read .*loop: "):
        require_plain_file(tmp_path / "loop")
    reading, writing = os.pipe()
    with pytest.raises(CorpusError, match=r"as in: COMMAND \| tokengeom count -$"):
        count(f"/dev/fd/{reading}", context=1)
    os.close(reading)
    os.close(writing)


def test_a_pipe_in_a_folder_is_skipped_or_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one two three")
    os.mkfifo(tmp_path / "b")
    assert count(tmp_path, context=1).corpus["skipped_files"] == [str(tmp_path / "b")]
    os.mkfifo(tmp_path / "c.txt")
    with pytest.raises(CorpusError, match=r"c\.txt is a named pipe"):
        count(tmp_path, context=1)


def test_the_standard_input_may_be_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one two three")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
        assert count("-", context=1).n == 2
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(CorpusError, match="standard input is closed"):
        count("-", context=1)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str, errors: str) -> None:
    """Chinese text in UTF-16 has no zero bytes, and would be read as noise with --errors replace."""
    text = "中文。" * 100 if encoding == "utf-16" else "plain text"
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    with pytest.raises(CorpusError, match="UTF-16"):
        list(PlainText(tmp_path / "a.txt", errors=errors).pieces())  # type: ignore[arg-type]


def test_messages_of_libraries_are_shortened() -> None:
    assert shortened(ValueError("two\n lines.")) == "two lines"
    assert len(shortened(ValueError("x" * 10_000))) < 310


def test_an_error_of_reading_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("one")

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "_chunks", lambda stream: iter(fail, b""))
    with pytest.raises(TokengeomError, match=r"Reading .*a\.txt failed: .*Input/output error"):
        read(tmp_path / "a.txt")
