"""Plain text is split into the right documents, however its bytes are chunked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom.core.errors import CorpusError
from tokengeom.corpus import documents as readers
from tokengeom.corpus import files
from tokengeom.corpus.documents import PlainText


def documents(source: PlainText) -> list[str]:
    """The documents, with their pieces joined."""
    found: list[str] = []
    for piece in source.pieces():
        if piece.starts:
            found.append(piece.text)
        else:
            found[-1] += piece.text
    return found


@pytest.mark.parametrize(
    ("separator", "expected"),
    [
        ("blank", ["one\ntwo", "three", "four"]),
        ("file", ["one\ntwo\n\nthree\n \n\n\nfour"]),
        ("two", ["one", "three\n \n\n\nfour"]),
        ("absent", ["one\ntwo\n\nthree\n \n\n\nfour"]),
    ],
)
def test_separators(tmp_path: Path, separator: str, expected: list[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n\none\r\ntwo\r\n\r\nthree\n \n\n\nfour\n\n")
    assert documents(PlainText(path, separator)) == expected


def test_the_separator_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n\nmore<|endoftext|>two")
    source = PlainText(path)
    assert documents(source) == ["one\n\nmore", "two"]
    assert source.separator == "<|endoftext|>"
    path.write_text("one\n\nmore")
    assert documents(PlainText(path)) == ["one", "more"]


@pytest.mark.parametrize("separator", ["blank", "<|e|>", "file"])
@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet="ab \n<|e>é", max_size=60), chunk=st.integers(1, 9), piece=st.integers(1, 9))
def test_chunks_and_pieces_do_not_change_documents(
    tmp_path_factory: pytest.TempPathFactory, separator: str, text: str, chunk: int, piece: int
) -> None:
    path = tmp_path_factory.mktemp("t") / "a.txt"
    path.write_text(text, newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_CHUNK_BYTES", chunk)
        patch.setattr(readers, "PIECE_CHARACTERS", piece)
        found = documents(PlainText(path, separator))
    pattern = {"blank": r"\n[^\S\n]*\n\s*", "file": r"(?!)"}.get(separator, re.escape(separator))
    expected = [part.strip() for part in re.split(pattern, text) if part.strip()]
    assert found == expected


@pytest.mark.parametrize("word", ["word ", "word"])
def test_a_long_line_is_read_in_pieces(tmp_path: Path, word: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(word * 1_000_000)
    pieces = list(PlainText(path).pieces())
    assert [piece.starts for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert max(len(piece.text) for piece in pieces) < 3 * readers.PIECE_CHARACTERS
    assert "".join(piece.text for piece in pieces) == (word * 1_000_000).strip()


def test_an_empty_separator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="must not be empty"):
        PlainText(tmp_path / "a", "")


def test_invalid_utf8_is_an_error_with_its_position(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("größe".encode() + b"\xff\xfe tail")
    with pytest.raises(CorpusError, match="byte 0xff at position 7"):
        list(PlainText(path).pieces())


@pytest.mark.parametrize("chunk", [1, 2, 3, 1 << 20])
def test_invalid_bytes_are_replaced_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(files, "_CHUNK_BYTES", chunk)
    path = tmp_path / "a.txt"
    path.write_bytes("é\ufffd".encode() + b"\xff ok \xe2\x82")
    source = PlainText(path, errors="replace")
    assert documents(source) == ["é\ufffd\ufffd ok \ufffd\ufffd"]
    assert source.replaced_bytes == 3


def test_the_position_of_a_bad_byte_is_right_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHUNK_BYTES", 4)
    path = tmp_path / "a.txt"
    path.write_bytes(b"abc\xe2\x82" + b"(rest")
    with pytest.raises(CorpusError, match="byte 0xe2 at position 3"):
        list(PlainText(path).pieces())


def test_a_file_with_zero_bytes_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"abc\0def")
    with pytest.raises(CorpusError, match="is not text: byte 3 is zero"):
        list(PlainText(path, errors="replace").pieces())


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffhello".encode())
    assert documents(PlainText(path)) == ["hello"]
