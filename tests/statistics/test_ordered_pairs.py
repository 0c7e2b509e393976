"""Ordered shards: what is written is read in order, and adds up as an engine adds it up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tokengeom import CountedPairs
from tokengeom.core.errors import ResourceError
from tokengeom.statistics import ordered_pairs
from tokengeom.statistics.count import count_pairs
from tokengeom.statistics.engines import open_engine
from tokengeom.statistics.ordered_pairs import (
    build_statistics,
    number_of_pairs,
    pair_rows,
    read_ordered_shards,
    write_ordered_shards,
)
from tokengeom.statistics.sorting import PairRows

NAMES = ["context_0", "next", "count"]


def part(*rows: tuple[int, int, int]) -> PairRows:
    key, token, number = np.array(rows).T
    return PairRows([key.astype(np.int64)], token.astype(np.int32), number.astype(np.int64))


def test_parts_are_row_groups_and_come_back_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_pairs, "_SHARD_ROWS", 3)
    parts = [part((1, 0, 5), (1, 2, 1)), part((2, 0, 9)), part((3, 1, 1), (3, 2, 2), (4, 0, 1)), part((9, 9, 9))]
    write_ordered_shards(parts, NAMES, tmp_path / "shards")
    assert len(list((tmp_path / "shards").iterdir())) == 3
    assert number_of_pairs([str(tmp_path / "shards")]) == 7
    found = list(map(pair_rows, read_ordered_shards([str(tmp_path / "shards")], NAMES)))
    assert [one.size for one in found] == [2, 1, 3, 1]
    for one, other in zip(found, parts, strict=True):
        for column, expected in zip(one.columns, other.columns, strict=True):
            np.testing.assert_array_equal(column, expected)


def test_totals_and_statistics_are_those_of_the_engine(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 9, 200) for _ in range(20)]
    count_pairs(documents, tmp_path / "pairs", context=2)
    pairs = CountedPairs.load(tmp_path / "pairs")
    assert pairs.ordered
    unordered = replace(pairs, ordered=False)
    with open_engine(tmp_path) as engine:
        one, other = pairs.with_totals(engine).totals, unordered.with_totals(engine).totals
        assert (one.n, one.m, one.V) == (other.n, other.m, other.V)
        assert one.entropy == pytest.approx(other.entropy, rel=1e-13)
        assert build_statistics(pairs, engine).equals(build_statistics(unordered, engine))
        merged = pairs.merge(pairs, engine=engine, folder=tmp_path / "merged")
        assert not merged.ordered
        assert build_statistics(merged, engine).n == 2 * one.n


def test_shards_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    def full() -> object:
        yield part((1, 0, 1))
        raise OSError(28, "No space left on device")

    with pytest.raises(ResourceError, match=r"No space left on device. Free some space"):
        write_ordered_shards(full(), NAMES, tmp_path / "shards")  # type: ignore[arg-type]
