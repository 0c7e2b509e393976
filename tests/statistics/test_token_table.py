"""The token table: lengths of short documents, limits of ids, and shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tokengeom.core.errors import ResourceError, StatisticsError
from tokengeom.corpus.documents import TokenBatch
from tokengeom.statistics import token_table
from tokengeom.statistics.token_table import SHORT_LENGTHS, TokenTableWriter, disk_errors


def batch(*lengths: int, continues: bool = False) -> TokenBatch:
    return TokenBatch(np.zeros(sum(lengths), np.int32), np.array(lengths), continues)


def test_lengths_of_documents_are_recorded_however_they_are_split(tmp_path: Path) -> None:
    with TokenTableWriter(tmp_path, 4) as writer:
        writer.add(batch(1, 3, 0, 70), "a")
        writer.add(batch(2, continues=True), "a")
        writer.add(batch(3, 2), "a")
        writer.add(batch(1, continues=True), "a")
    totals = writer.totals
    assert (totals.documents, totals.tokens, totals.highest_id) == (5, 82, 0)
    assert [totals.shorter_than(tokens) for tokens in (1, 2, 3, 4, SHORT_LENGTHS)] == [0, 1, 1, 4, 4]


def test_rows_repeat_the_context_of_the_row_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_table, "ROW_TOKENS", 4)
    with TokenTableWriter(tmp_path, 2) as writer:
        writer.add(TokenBatch(np.arange(9, dtype=np.int32), np.array([9])), "a")
    rows = pq.read_table(tmp_path).to_pylist()
    assert [row["tokens"] for row in rows] == [[0, 1, 2, 3], [2, 3, 4, 5, 6, 7], [6, 7, 8]]
    assert [(row["start"], row["lead"]) for row in rows] == [(True, 0), (False, 2), (False, 2)]


def test_a_full_shard_is_closed_and_the_next_one_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_table, "_ROW_GROUP_TOKENS", 10)
    monkeypatch.setattr(token_table, "_SHARD_TOKENS", 20)
    with TokenTableWriter(tmp_path, 2) as writer:
        for _ in range(5):
            writer.add(batch(10), "a")
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"tokens-0000{i}.parquet" for i in range(3)]
    assert pq.read_table(tmp_path).num_rows == 5


def test_an_id_that_is_too_large_is_named_with_its_position(tmp_path: Path) -> None:
    with TokenTableWriter(tmp_path, 2, vocabulary=5) as writer:
        writer.add(batch(4), "a")
        with pytest.raises(StatisticsError, match="size 5; a has 7, and the first id that is too large is token 6"):
            writer.add(TokenBatch(np.array([1, 2, 7], np.int32), np.array([3])), "a")


def test_a_full_disk_is_a_sentence() -> None:
    message = "The token table could not be written: No space left on device. Free some space"
    with pytest.raises(ResourceError, match=message), disk_errors("The token table could not be written"):
        raise OSError(28, "No space left on device")
