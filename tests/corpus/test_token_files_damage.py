"""Damaged Parquet, Arrow and token files: refused with the name of the file, never half read, never a crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokengeom import count
from tokengeom.core.errors import CorpusError
from tokengeom.corpus.token_files import arrow_errors, strings_of

TEXTS = [f"one two three {number}" for number in range(40)]


def parquet(path: Path, **options: object) -> bytearray:
    pq.write_table(pa.table({"text": TEXTS}), path, row_group_size=20, **options)
    return bytearray(path.read_bytes())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-4] + b"PARE",
        lambda data: data[:-8] + b"\xff\xff\xff\x7f" + data[-4:],
        lambda data: data[:4] + bytes(200) + data[204:],
        lambda data: data[:8],
        lambda data: b"",
    ],
)
def test_damaged_parquet_is_refused(tmp_path: Path, damage: Callable[[bytearray], bytes]) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(damage(parquet(path)))
    with pytest.raises(CorpusError, match=r"a\.parquet cannot be read as Parquet; it is damaged .* again"):
        count(path, context=1)


def test_a_changed_bit_is_found_where_pages_have_checksums(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    data = parquet(path, write_page_checksum=True, compression="none", use_dictionary=False)
    data[data.index(b"three 17")] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorpusError, match=r"could not verify page integrity"):
        count(path, context=1)


def test_text_that_is_not_utf8_in_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    data = parquet(path, compression="none", use_dictionary=False)
    data[data.index(b"three 17")] = 0xFF
    path.write_bytes(data)
    with pytest.raises(CorpusError, match=r"a\.parquet cannot be read as Parquet.*can't decode byte 0xff"):
        count(path, context=1)


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_every_encoding_of_strings_is_read(tmp_path: Path, encoding: str) -> None:
    parquet(tmp_path / "a.parquet", use_dictionary=False, column_encoding={"text": encoding})
    assert count(tmp_path / "a.parquet", context=1).equals(count(TEXTS, context=1))


FOOTER = """
import sys
from pathlib import Path
from tokengeom.corpus.token_files import open_parquet
from tokengeom.core.errors import CorpusError
path = Path(sys.argv[1])
data = path.read_bytes()
footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
refused = 0
for place in range(footer, len(data) - 8, 7):
    damaged = bytearray(data)
    damaged[place] ^= 1 << place % 8
    path.write_bytes(damaged)
    try:
        source = open_parquet(path, "text")
        found = [piece.text for piece in source.pieces()]
        assert len(found) == 40 or not found, found
    except CorpusError:
        refused += 1
print(refused)
"""


def test_damage_of_the_footer_does_not_end_the_process(tmp_path: Path) -> None:
    """Asking pyarrow about a column before it was read ends the process where the metadata of the column is damaged."""
    parquet(tmp_path / "a.parquet", compression="none", use_dictionary=False)
    command = [sys.executable, "-c", FOOTER, str(tmp_path / "a.parquet")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-500:]
    assert int(found.stdout) > 20


def test_rows_that_are_missing_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    parquet(path)
    batches = pq.ParquetFile.iter_batches

    def some(self: pq.ParquetFile, *args: object, **settings: object) -> object:
        return (batch.slice(1) for batch in batches(self, *args, **settings))

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", some)
    with pytest.raises(CorpusError, match=r"should have 40 rows and has 38"):
        count(path, context=1)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[0, None, 1]]), "missing id inside a document. Remove"),
        (pa.array([[0, -5, 1]]), "has -5"),
        (pa.array([[0, 2**40, 1]]), "has 1099511627776"),
        (pa.array([[0, 2**63, 1]], pa.list_(pa.uint64())), "has 9223372036854775808"),
        (pa.array([[[0], [1]]]), "must hold strings or lists of integers"),
        (pa.array([[0.5, 1.0]]), "must hold strings or lists of integers"),
        (pa.array([None, []], pa.list_(pa.int32())), "empty: no token was found in .*a.parquet"),
        (pa.array([], pa.string()), "empty: no token was found in .*a.parquet"),
    ],
)
def test_columns_that_hold_no_ids_are_refused(tmp_path: Path, column: pa.Array, message: str) -> None:
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=message):
        count(tmp_path / "a.parquet", context=1)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table([pa.array(["a b"]), pa.array(["c d"])], names=["text", "text"]), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="several columns 'text'"):
        count(tmp_path / "a.parquet", context=1)


def test_wrong_offsets_in_an_arrow_file_are_not_followed(tmp_path: Path) -> None:
    """Arrow reads a file without checking it; strings would then be taken from anywhere in memory."""
    path = tmp_path / "a.arrow"
    table = pa.table({"text": ["one two three", "four five six"]})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    data = bytearray(path.read_bytes())
    offsets = np.array([0, 13, 26], "int32").tobytes()
    place = data.index(offsets)
    for wrong in ([0, 13, 2**30], [0, 30, 26], [-5, 13, 26]):
        data[place : place + 12] = np.array(wrong, "int32").tobytes()
        path.write_bytes(data)
        with pytest.raises(CorpusError, match=r"a\.arrow cannot be read as Arrow; it is damaged"):
            count(path, context=1)


def test_numpy_files_are_not_read_as_ids(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100, dtype="uint16"))
    with pytest.raises(CorpusError, match=r"a\.npy is a NumPy file, with a header .*tofile"):
        count(tmp_path / "a.npy", context=1, format="bin")


def test_strings_become_pythons_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokengeom.corpus.token_files._BATCH_BYTES", 10)
    texts = ["a" * size for size in (3, 30, 0, 4, 4, 4, 11, 1)]
    array = pa.array([None, *texts, None])
    assert list(strings_of(array)) == texts
    assert list(strings_of(array.slice(3, 4))) == texts[2:6]
    assert list(strings_of(array.slice(0, 1))) == []


def test_errors_of_our_own_pass_unchanged() -> None:
    with pytest.raises(CorpusError, match=r"^mine$"), arrow_errors(Path("a"), "Arrow"):
        raise CorpusError("mine")
