"""Counting by sorting gives the rows of a dictionary and of the engine's query, in order, whatever the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counting_oracle import as_pairs, dictionary_count
from tokengeom import count
from tokengeom.core.errors import ResourceError
from tokengeom.statistics import sorting
from tokengeom.statistics.engines import open_engine, temporary_folder
from tokengeom.statistics.sorting import PairRows, Sort, SortingPlan, count_by_sorting, radix_sort, sort_for
from tokengeom.statistics.token_table import TokenRows
from tokengeom.statistics.windows import ContextPacking, WindowKind, Windows, count_windows

KINDS: list[tuple[WindowKind, bool]] = [("sliding", False), ("sliding", True), ("prefixes", False), ("prefixes", True)]
LEXSORT = sort_for(0)


def rows_of(documents: Sequence[Sequence[int]]) -> TokenRows:
    lengths = np.array([len(one) for one in documents], np.int64)
    tokens = np.array([token for one in documents for token in one], np.int32)
    return TokenRows(tokens, lengths, np.zeros(lengths.size, np.int32), np.ones(lengths.size, np.bool_))


def counted(rows: Sequence[TokenRows], plan: SortingPlan, folder: Path) -> list[PairRows]:
    return list(count_by_sorting(rows, plan, folder, lambda _: None))


def as_dictionary(parts: Sequence[PairRows], packing: ContextPacking) -> dict[tuple[tuple[int, ...], int], int]:
    found = {}
    for part in parts:
        contexts = packing.unpack(part.keys)
        for context, token, number in zip(contexts.tolist(), part.next.tolist(), part.count.tolist(), strict=True):
            pair = (tuple(field for field in context if field != -2), token)
            assert pair not in found
            found[pair] = number
    return found


@pytest.mark.parametrize(("kind", "pad"), KINDS)
@pytest.mark.parametrize("sort", [LEXSORT, radix_sort], ids=["lexsort", "radix"])
@settings(max_examples=15, deadline=None)
@given(
    documents=st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=8),
    context=st.integers(1, 4),
    block=st.sampled_from([1, 3, 10, 100]),
    V=st.sampled_from([4, 100_000, 50_000_000]),
)
def test_blocks_of_any_size_count_as_a_dictionary_does(
    sort: Sort, kind: WindowKind, pad: bool, documents: list[list[int]], context: int, block: int, V: int
) -> None:
    packing = ContextPacking(V, context)
    plan = SortingPlan(Windows(context, kind, pad), packing, block, 2, sort)
    with temporary_folder() as folder:
        parts = counted([rows_of(documents[:2]), rows_of(documents[2:])], plan, folder)
        assert list(folder.iterdir()) == [], "the file of runs is deleted"
    assert as_dictionary(parts, packing) == dictionary_count(documents, context, kind, pad)
    rows = [(*keys, token) for part in parts for *keys, token in zip(*part.keys, part.next, strict=True)]
    assert rows == sorted(rows), "pairs come in the order of their keys"
    ends = [tuple(int(key[-1]) for key in part.keys) for part in parts]
    starts = [tuple(int(key[0]) for key in part.keys) for part in parts]
    assert all(end < start for end, start in zip(ends, starts[1:], strict=False)), "no context is divided"


@pytest.mark.parametrize(("kind", "pad"), KINDS)
def test_rows_are_those_of_the_query_that_other_engines_run(kind: WindowKind, pad: bool, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 6, size).tolist() for size in rng.integers(1, 60, 50)]
    windows, packing = Windows(3, kind, pad), ContextPacking(1_000_000, 3)
    lead, start = [0] * 50, [True] * 50
    lead[7], start[7] = 2, False
    table = pa.table({"start": start, "lead": pa.array(lead, pa.int32()), "tokens": documents})
    pq.write_table(table.cast(table.schema.set(2, pa.field("tokens", pa.list_(pa.int32())))), tmp_path / "t.parquet")
    with open_engine(tmp_path) as engine:
        query = count_windows(engine.read([str(tmp_path / "t.parquet")]), windows, packing)
        expected = sorted(tuple(row.values()) for batch in engine.batches(query) for row in batch.to_pylist())
        (batch,) = table.to_batches()
        parts = counted([TokenRows.of(batch)], SortingPlan(windows, packing, 200, 2, radix_sort), tmp_path)
    assert [row for part in parts for row in zip(*(one.tolist() for one in part.columns), strict=True)] == expected


def test_a_context_with_more_next_tokens_than_are_read_at_once_is_not_divided(tmp_path: Path) -> None:
    documents = [[0, token] for token in range(1, 400)] + [[1, 0], [1, 2]]
    packing = ContextPacking(400, 1)
    plan = SortingPlan(Windows(1), packing, 20, 1, LEXSORT)
    parts = counted([rows_of(documents)], plan, tmp_path)
    assert as_dictionary(parts, packing) == dictionary_count(documents, 1, "sliding", False)
    assert max(part.size for part in parts) >= 399


def test_a_plan_fits_its_blocks_into_the_memory_that_it_is_given() -> None:
    windows, packing = Windows(4), ContextPacking(50_000, 4)
    sizes = [SortingPlan.within(memory, 2, windows, packing, 10**9).block for memory in (10**6, 10**8, 10**12)]
    assert sizes[0] == sorting.SMALLEST_BLOCK
    assert sizes[0] < sizes[1] < sizes[2] == sorting.LARGEST_BLOCK
    assert 6 * sizes[1] * sorting.BYTES_PER_ROW <= 10**8
    assert SortingPlan.within(10**9, 8, windows, packing, 1000).threads == 1, "a short text needs one thread"


def test_many_windows_are_sorted_by_compiled_code_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [np.random.default_rng(seed).integers(0, 9, 500) for seed in range(6)]
    few = count(documents, context=3, vocabulary_size=9)
    assert sort_for(sorting.COMPILED_FROM) is radix_sort
    monkeypatch.setattr(sorting, "COMPILED_FROM", 0)
    monkeypatch.setattr(sorting, "LARGEST_BLOCK", 700)
    monkeypatch.setattr(sorting, "SMALLEST_BLOCK", 1)
    many = count(documents, context=3, vocabulary_size=9)
    assert many.equals(few)
    assert as_pairs(many) == dictionary_count([one.tolist() for one in documents], 3, "sliding", False)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *_: opened(Path("/dev/full"), "w+b"))
    plan = SortingPlan(Windows(1), ContextPacking(9, 1), 100, 1, LEXSORT)
    rows = [rows_of([list(range(9)) * 30])] * 3
    with pytest.raises(ResourceError, match="point --temp at a larger disk"):
        counted(rows, plan, tmp_path)
