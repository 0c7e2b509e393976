"""Keys of contexts are one to one, keep the order, and fit in 63 bits; windows say what they need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokengeom.core.errors import StatisticsError
from tokengeom.statistics.windows import ABSENT, START, ContextPacking, Windows


@given(st.integers(1, 2**31 - 2), st.integers(1, 12), st.data())
def test_packing_is_one_to_one_and_keeps_order(vocabulary: int, length: int, data: st.DataObject) -> None:
    packing = ContextPacking(vocabulary, length)
    field = st.one_of(st.just(ABSENT), st.just(START), st.integers(0, vocabulary - 1), st.just(vocabulary - 1))
    rows = data.draw(st.lists(st.tuples(*[field] * length), min_size=2, max_size=6))
    keys = [packing.pack(row) for row in rows]
    assert all(0 <= key < 2**63 for row in keys for key in row)
    columns = [np.array(column, np.int64) for column in zip(*keys, strict=True)]
    assert [tuple(row) for row in packing.unpack(columns).tolist()] == rows
    assert sorted(range(len(rows)), key=lambda i: rows[i]) == sorted(range(len(rows)), key=lambda i: keys[i])


def test_arrays_and_integers_have_the_same_keys() -> None:
    packing = ContextPacking(50_257, 7)
    rows = np.random.default_rng(0).integers(0, 50_257, (20, 7))
    together = packing.pack(list(rows.T))
    assert [list(keys) for keys in zip(*together, strict=True)] == [packing.pack(row.tolist()) for row in rows]


def test_four_tokens_of_gpt2_fit_into_one_key() -> None:
    assert len(ContextPacking(50_257, 4).columns) == 1
    assert len(ContextPacking(50_257, 5).columns) == 2


@pytest.mark.parametrize(("vocabulary", "length"), [(0, 3), (5, 0)])
def test_an_empty_context_or_vocabulary_is_refused(vocabulary: int, length: int) -> None:
    with pytest.raises(StatisticsError, match="at least one"):
        ContextPacking(vocabulary, length)


@pytest.mark.parametrize(
    ("windows", "lengths", "padding", "shortest"),
    [
        (Windows(3), [3], 0, 4),
        (Windows(3, pad=True), [3], 3, 1),
        (Windows(3, "prefixes"), [1, 2, 3], 0, 2),
        (Windows(3, "prefixes", pad=True), [1, 2, 3], 1, 1),
    ],
)
def test_windows_say_what_they_need(windows: Windows, lengths: list[int], padding: int, shortest: int) -> None:
    assert (list(windows.lengths), windows.padding, windows.shortest_document) == (lengths, padding, shortest)


def test_an_unknown_kind_of_windows_is_refused() -> None:
    with pytest.raises(StatisticsError, match="must be 'sliding' or 'prefixes'; got 'all'"):
        Windows(3, "all")  # type: ignore[arg-type]
