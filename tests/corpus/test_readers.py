"""Every kind of input gives the same documents, and bad input one clear sentence."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counting_oracle import as_pairs, dictionary_count
from tokengeom import NextTokenStatistics, ReadingOptions, count
from tokengeom.corpus.locate import open_corpus
from tokengeom.errors import CorpusError, TokengeomError

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "a mat"]


@pytest.fixture(scope="module")
def expected() -> NextTokenStatistics:
    return count(TEXTS, context=2)


def zstandard(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def lz4(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


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
def test_compressed_text(tmp_path: Path, expected: NextTokenStatistics, suffix: str, compress) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress("\n\n".join(TEXTS).encode()))
    assert count(path, context=2).equals(expected)


def test_json_lines(tmp_path: Path, expected: NextTokenStatistics) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = [json.dumps({"id": i, "body": text}) for i, text in enumerate(TEXTS)]
    path.write_bytes(gzip.compress(("\n".join([*lines, ""])).encode()))
    assert count(path, context=2, column="body").equals(expected)


def test_a_line_separator_inside_a_string_is_no_end_of_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "one\u2028two three"}, ensure_ascii=False))
    assert count(path, context=1).n == 2


def test_parquet_text(tmp_path: Path, expected: NextTokenStatistics) -> None:
    pq.write_table(pa.table({"body": [*TEXTS, None, ""]}), tmp_path / "a.parquet")
    assert count(tmp_path / "a.parquet", context=2, column="body").equals(expected)


def test_folders_globs_and_lists(
    tmp_path: Path, expected: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_text(text)
    (tmp_path / "ignored.log").write_text("noise noise noise noise")
    monkeypatch.chdir(tmp_path)
    assert count(tmp_path, context=2).equals(expected)
    assert count(str(tmp_path / "*.txt"), context=2).equals(expected)
    assert count(["0.txt", "1.txt", "2.txt"], context=2).equals(expected)
    assert count([Path("*.txt")], context=2).equals(expected)


def test_standard_input(expected: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("\n\n".join(TEXTS).encode())))
    assert count("-", context=2).equals(expected)


def test_iterables_of_text(expected: NextTokenStatistics) -> None:
    assert count(iter(TEXTS), context=2).equals(expected)
    assert count(tuple(TEXTS), context=2).equals(expected)


def test_hugging_face_data_sets(tmp_path: Path, expected: NextTokenStatistics) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra 'huggingface'")
    dataset = datasets.Dataset.from_dict({"body": TEXTS, "n": [1, 2, 3]})
    assert count(dataset, context=2, column="body").equals(expected)
    assert count(dataset.to_iterable_dataset(), context=2, column="body").equals(expected)
    dataset.save_to_disk(str(tmp_path / "saved"))
    assert count(tmp_path / "saved", context=2, column="body").equals(expected)
    with pytest.raises(CorpusError, match="has no column 'text'; it has: body, n"):
        count(dataset, context=2)
    with pytest.raises(CorpusError, match=r"with splits \(train\)"):
        count(datasets.DatasetDict({"train": dataset}), context=2)


IDS = [[0, 1, 2, 1], [2, 2, 0, 1, 1], [1], [0, 1]]


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32", "int64"])
def test_token_files(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "a.bin"
    np.concatenate([[*ids, 9] for ids in IDS]).astype(dtype).tofile(path)
    statistics = count(path, context=1, dtype=dtype, separator_id=9)
    assert as_pairs(statistics) == dictionary_count(IDS, 1, "sliding", False)
    assert statistics.corpus["documents"] == 4
    assert statistics.corpus["short_documents"] == 1
    kept = count(path, context=1, dtype=dtype, separator_id=9, keep_separator=True)
    assert as_pairs(kept) == dictionary_count([[*ids, 9] for ids in IDS], 1, "sliding", False)
    joined = count(path, context=1, dtype=dtype)
    assert as_pairs(joined) == dictionary_count([[token for ids in IDS for token in [*ids, 9]]], 1, "sliding", False)


def test_documents_across_chunks_of_a_token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokengeom.corpus import token_files as token_file

    path = tmp_path / "a.bin"
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 4, size).tolist() for size in rng.integers(0, 9, 60)]
    np.concatenate([[*ids, 9] for ids in documents]).astype("uint16").tofile(path)
    for chunk in (1, 2, 3, 7):
        monkeypatch.setattr(token_file, "_CHUNK_TOKENS", chunk)
        statistics = count(path, context=3, pad=True, separator_id=9)
        assert as_pairs(statistics) == dictionary_count(documents, 3, "sliding", True)


def test_parquet_ids_are_counted_where_they_lie(tmp_path: Path) -> None:
    for shard in range(2):
        pq.write_table(pa.table({"ids": [*IDS[shard::2], None, []]}), tmp_path / f"{shard}.parquet")
    statistics = count(tmp_path, context=2, column="ids", windows="prefixes", pad=True)
    assert as_pairs(statistics) == dictionary_count(IDS, 2, "prefixes", True)
    assert (statistics.V, statistics.corpus["documents"], statistics.corpus["tokens"]) == (3, 4, 12)
    with pytest.raises(TokengeomError, match=r"lie in 0\.\.1, below the vocabulary size; in .* they lie in 0\.\.2"):
        count(tmp_path, context=2, column="ids", vocabulary_size=2)


def test_a_saved_tokenizer_gives_ids_their_words(tmp_path: Path) -> None:
    count(["red green blue"], context=1).save(tmp_path / "words")
    statistics = count([[0, 1, 2]], context=1, tokenizer=tmp_path / "words")
    assert statistics.context_text(0) == "red"
    assert statistics.next_tokens(0) == [("green", 1.0)]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.jsonl", b'{"body": "x"}', {}, "line 1 has no key 'text'; it has: body"),
        ("a.jsonl", b'{"text": "x y"}\n{', {}, "line 2 cannot be read as JSON"),
        ("a.jsonl", b'{"text": 5}', {}, "'text' must be a string; it is a int"),
        ("a.jsonl", b"[1]", {}, "it has: a list"),
        ("a.parquet", b"nonsense", {}, "cannot be read as Parquet"),
        ("a.bin", b"abc", {}, "1 bytes more than a multiple of 2"),
        ("a.bin", b"abcd", {"dtype": "float32"}, "must be one of uint16"),
        ("a.bin", b"\xff\xff\xff\xff", {"dtype": "int32"}, "has -1. Is the dtype right"),
        ("a.txt.gz", b"not compressed", {}, "not a valid .gz file"),
        ("a.txt.xz", lzma.compress(b"x" * 1000)[:-20], {}, "breaks off"),
        ("a.txt", b"", {}, "empty: no token"),
        ("a.txt", b" \n\n \n", {}, "empty: no token"),
        ("a.txt", b"one two", {}, "No document is long enough: 1 documents with 2 tokens"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, options: dict[str, str], message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TokengeomError, match=message):
        count(tmp_path / name, **options)


def test_a_missing_column_of_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"], "b": [1.5]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="no column 'text'; it has: a, b"):
        count(tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="must hold strings or lists of integers; it holds double"):
        count(tmp_path / "a.parquet", column="b")


def test_bad_iterables(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="yielded no document"):
        count([])
    with pytest.raises(CorpusError, match=r"Document 1 of .* must be a string like the first; it is int"):
        count(["a b c", 5])
    with pytest.raises(CorpusError, match="must be integers"):
        count([[0.5, 1.0]])
    with pytest.raises(CorpusError, match=r"its shape is \(1, 2\)"):
        count([[[1, 2]]])
    with pytest.raises(CorpusError, match="no file, folder or match for 'missing"):
        count(["missing.txt"])
    with pytest.raises(CorpusError, match="no file, folder or match"):
        count(tmp_path / "missing")
    with pytest.raises(CorpusError, match="has no file that ends in"):
        count(tmp_path)


def test_text_and_ids_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b c")
    np.arange(4, dtype="uint16").tofile(tmp_path / "b.bin")
    with pytest.raises(CorpusError, match="cannot be counted together"):
        open_corpus(tmp_path, ReadingOptions())


def test_a_bpe_needs_text_that_can_be_read_twice() -> None:
    with pytest.raises(CorpusError, match="can be read only once"):
        count(iter(TEXTS), tokenizer="bpe:300")
