"""Token files and Parquet: documents, separators, and columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counting_oracle import as_pairs, dictionary_count
from tokengeom import count
from tokengeom.core.errors import CorpusError, TokengeomError
from tokengeom.corpus import token_files
from tokengeom.corpus.token_files import TokenFile

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "a mat"]
IDS = [[0, 1, 2, 1], [2, 2, 0, 1, 1], [1], [0, 1]]


def read_in_chunks(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    """Let a file be read in chunks of so many ids; those of more than one id need not end where an id does."""
    monkeypatch.setattr(token_files, "_CHUNK_TOKENS", tokens)
    monkeypatch.setattr("tokengeom.corpus.files._CHUNK_BYTES", 2 * tokens + (tokens > 1))


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
    path = tmp_path / "a.bin"
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 4, size).tolist() for size in rng.integers(0, 9, 60)]
    np.concatenate([[*ids, 9] for ids in documents]).astype("uint16").tofile(path)
    for chunk in (1, 2, 3, 7):
        read_in_chunks(monkeypatch, chunk)
        statistics = count(path, context=3, pad=True, separator_id=9)
        assert as_pairs(statistics) == dictionary_count(documents, 3, "sliding", True)


def test_parquet_ids_are_counted_without_a_copy(tmp_path: Path) -> None:
    for shard in range(2):
        pq.write_table(pa.table({"ids": [*IDS[shard::2], None, []]}), tmp_path / f"{shard}.parquet")
    statistics = count(tmp_path, context=2, column="ids", windows="prefixes", pad=True)
    assert as_pairs(statistics) == dictionary_count(IDS, 2, "prefixes", True)
    assert (statistics.V, statistics.corpus["documents"], statistics.corpus["tokens"]) == (3, 4, 12)
    with pytest.raises(TokengeomError, match=r"below the vocabulary size 2; .*parquet has 2"):
        count(tmp_path, context=2, column="ids", vocabulary_size=2)


def test_a_saved_tokenizer_gives_ids_their_texts(tmp_path: Path) -> None:
    count(["red green blue"], context=1).save(tmp_path / "tokens")
    statistics = count([[0, 1, 2]], context=1, tokenizer=tmp_path / "tokens")
    assert statistics.context_text(0) == "red"
    assert statistics.next_tokens(0) == [("green", 1.0)]


def test_a_missing_column_of_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"], "b": [1.5]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="no column 'text'; it has: a, b"):
        count(tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="must hold strings or lists of integers; it holds double"):
        count(tmp_path / "a.parquet", column="b")


def test_parquet_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": [*TEXTS, None, ""]}), tmp_path / "a.parquet")
    assert count(tmp_path / "a.parquet", context=2, column="body").equals(count(TEXTS, context=2))


def stream(tmp_path: Path, ids: list[int]) -> TokenFile:
    np.array(ids, "uint16").tofile(tmp_path / "a.bin")
    source = TokenFile(tmp_path / "a.bin")
    assert sum(batch.tokens.size for batch in source.batches()) == len(ids)
    return source


def documents(separator: int, number: int = 20, length: int = 30, largest: int = 400) -> list[int]:
    rng = np.random.default_rng(0)
    return [token for _ in range(number) for token in [*rng.integers(0, largest, length).tolist(), separator]]


@pytest.mark.parametrize("chunk", [1, 2, 7, 1 << 22])
def test_an_id_between_documents_looks_like_a_separator(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_chunks(monkeypatch, chunk)
    assert stream(tmp_path, documents(499)).likely_separator == 499


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
@pytest.mark.parametrize(
    "ids",
    [
        documents(499, number=9),
        [*documents(499), 600],
        documents(5),
        [token % 50 for token in range(1000)],
        [*documents(499), *[499] * 5],
        np.random.default_rng(1).integers(0, 50, 5000).tolist(),
        [*np.random.default_rng(2).zipf(1.5, 5000).clip(max=500).tolist(), 501],
    ],
    ids=["rare", "one larger id", "not the largest", "periodic", "follows itself", "uniform", "natural frequencies"],
)
def test_an_ordinary_id_does_not_look_like_a_separator(
    tmp_path: Path, ids: list[int], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_chunks(monkeypatch, chunk)
    assert stream(tmp_path, ids).likely_separator is None


def test_a_given_separator_is_not_questioned(tmp_path: Path) -> None:
    np.array(documents(499), "uint16").tofile(tmp_path / "a.bin")
    source = TokenFile(tmp_path / "a.bin", separator=7)
    list(source.batches())
    assert source.likely_separator is None
