"""Every kind of file gives the same documents, and bad files give one clear sentence."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tokengeom import NextTokenStatistics, ReadingSettings, count
from tokengeom.core.errors import CorpusError, TokengeomError
from tokengeom.corpus.locate import find_files, open_corpus, skipped_files

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "a mat"]


@pytest.fixture(scope="module")
def expected() -> NextTokenStatistics:
    return count(TEXTS, context=2)


def zstandard(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


def lz4(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", zstandard),
        (".lz4", lz4),
    ],
)
def test_compressed_text(
    tmp_path: Path, expected: NextTokenStatistics, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress("\n\n".join(TEXTS).encode()))
    assert count(path, context=2).equals(expected)


def test_json_lines(tmp_path: Path, expected: NextTokenStatistics) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = [json.dumps({"id": i, "body": text}) for i, text in enumerate(TEXTS)]
    path.write_bytes(gzip.compress(("\n".join([*lines, ""])).encode()))
    assert count(path, context=2, column="body").equals(expected)


def test_a_line_separator_inside_a_string_does_not_end_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "one\u2028two three"}, ensure_ascii=False))
    assert count(path, context=1).n == 2


def test_folders_globs_and_lists(
    tmp_path: Path, expected: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_text(text)
    (tmp_path / ".hidden").write_text("noise noise noise noise")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    monkeypatch.chdir(tmp_path)
    assert count(tmp_path, context=2).equals(expected)
    assert count(str(tmp_path / "*.txt"), context=2).equals(expected)
    assert count(["0.txt", "1.txt", "2.txt"], context=2).equals(expected)
    assert count([Path("*.txt")], context=2).equals(expected)


def test_a_folder_of_any_text_files_is_read_and_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "deep/NOTES").write_text("naïve text without a suffix")
    (tmp_path / "b.c.gz").write_bytes(gzip.compress(b"int main"))
    (tmp_path / "latin.log").write_bytes("naïve".encode("latin-1"))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8bnothing")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/a.pyc").write_bytes(b"\0\0")
    found = find_files([tmp_path])
    assert [path.name for path in found.read] == ["a.py", "b.c.gz", "NOTES"]
    assert [path.name for path in found.skipped] == ["broken.gz", "latin.log", "picture.png"]
    assert skipped_files(tmp_path) == skipped_files([str(tmp_path)]) == found.skipped
    stats = count(tmp_path, context=1)
    assert stats.corpus["documents"] == 3
    said = "3 files are not text in UTF-8, and they were skipped: broken.gz, latin.log, picture.png."
    assert said in stats.summary()
    assert "skipped" not in count(tmp_path / "a.py", context=1).summary()
    assert skipped_files(["a b", "c d"]) == skipped_files(None) == ()


def test_text_beside_files_of_data_is_not_part_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a b c"}')
    (tmp_path / "LICENSE").write_text("free as in beer")
    assert [path.name for path in find_files([tmp_path]).read] == ["a.jsonl"]


def test_standard_input(expected: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("\n\n".join(TEXTS).encode())))
    assert count("-", context=2).equals(expected)


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.jsonl", b'{"body": "x"}', {}, "line 1 has no key 'text'; it has: body"),
        ("a.jsonl", b'{"text": "x y"}\n{', {}, "line 2 cannot be read as JSON"),
        ("a.jsonl", b'{"text": 5}', {}, "'text' must be a string; it is of type int"),
        ("a.jsonl", b"[1]", {}, "it must be an object and is a list"),
        ("a.parquet", b"nonsense", {}, "cannot be read as Parquet"),
        ("a.bin", b"abc", {}, "1 bytes more than a multiple of 2"),
        ("a.bin", b"abcd", {"dtype": "float32"}, "must be one of uint16"),
        ("a.bin", b"\xff\xff\xff\xff", {"dtype": "int32"}, "has -1. Check the dtype"),
        ("a.txt.gz", b"not compressed", {}, "not a valid .gz file"),
        ("a.txt.xz", lzma.compress(b"x" * 1000)[:-20], {}, "is incomplete"),
        ("a.txt", b"", {}, "empty: no token"),
        ("a.txt", b" \n\n \n", {}, "empty: no token"),
        ("a.txt", b"one two", {}, "No document is long enough: 1 document with 2 tokens"),
    ],
)
def test_bad_files_are_refused(
    tmp_path: Path, name: str, content: bytes, options: dict[str, Any], message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TokengeomError, match=message):
        count(tmp_path / name, **options)


def test_text_and_ids_are_not_counted_together(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b c")
    np.arange(4, dtype="uint16").tofile(tmp_path / "b.bin")
    with pytest.raises(CorpusError, match="cannot be counted together"):
        open_corpus(tmp_path, ReadingSettings())


def test_a_bpe_needs_text_that_can_be_read_twice() -> None:
    with pytest.raises(CorpusError, match="can be read only once"):
        count(iter(TEXTS), tokenizer="bpe:300")


def test_reading_settings_are_keywords_of_count(tmp_path: Path, expected: NextTokenStatistics) -> None:
    (tmp_path / "notes").write_text("#".join(TEXTS))
    assert count(tmp_path / "notes", context=2, format="text", separator="#").equals(expected)
    settings = ReadingSettings(format="text", separator="#")
    assert count(tmp_path / "notes", context=2, **vars(settings)).equals(expected)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("manifest.json", "story.txt"), "holds a saved result"),
        (("arrays.safetensors", "vocabulary.parquet"), "without their manifest"),
    ],
)
def test_a_saved_result_is_not_taken_for_a_corpus(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    for name in names:
        (tmp_path / name).write_text("once upon a time")
    with pytest.raises(CorpusError, match=said):
        find_files([tmp_path])
