from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokengeom.errors import StatisticsError
from tokengeom.statistics.windows import ABSENT, START, ContextPacking


@given(st.integers(1, 2**31 - 2), st.integers(1, 12), st.data())
def test_packing_is_one_to_one_and_keeps_order(vocabulary: int, length: int, data: st.DataObject) -> None:
    packing = ContextPacking(vocabulary, length)
    field = st.one_of(st.just(ABSENT), st.just(START), st.integers(0, vocabulary - 1), st.just(vocabulary - 1))
    rows = data.draw(st.lists(st.tuples(*[field] * length), min_size=2, max_size=6))
    words = [packing.pack(row) for row in rows]
    assert all(0 <= word < 2**63 for row in words for word in row)
    columns = [np.array(column, np.int64) for column in zip(*words, strict=True)]
    assert [tuple(row) for row in packing.unpack(columns).tolist()] == rows
    assert sorted(range(len(rows)), key=lambda i: rows[i]) == sorted(range(len(rows)), key=lambda i: words[i])


def test_arrays_and_integers_pack_alike() -> None:
    packing = ContextPacking(50_257, 7)
    rows = np.random.default_rng(0).integers(0, 50_257, (20, 7))
    together = packing.pack(list(rows.T))
    assert [list(words) for words in zip(*together, strict=True)] == [packing.pack(row.tolist()) for row in rows]


def test_four_tokens_of_gpt2_fit_into_one_word() -> None:
    assert len(ContextPacking(50_257, 4).columns) == 1
    assert len(ContextPacking(50_257, 5).columns) == 2


@pytest.mark.parametrize(("vocabulary", "length"), [(0, 3), (5, 0)])
def test_nothing_cannot_be_packed(vocabulary: int, length: int) -> None:
    with pytest.raises(StatisticsError, match="at least one"):
        ContextPacking(vocabulary, length)
