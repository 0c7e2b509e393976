"""The compiled sort orders rows as NumPy's lexsort does, and moves counts with their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tokengeom.statistics.sorting import radix_sort

LARGE = 2**62


@pytest.mark.parametrize("keys", [1, 2, 3])
@pytest.mark.parametrize("highest", [1, 3, 300, LARGE])
@pytest.mark.parametrize("most", [None, 5, 2**40])
def test_rows_are_sorted_as_by_lexsort(keys: int, highest: int, most: int | None) -> None:
    rng = np.random.default_rng(keys)
    columns = [rng.integers(0, highest, 1000) for _ in range(keys)]
    token = rng.integers(0, 2**31 - 1 if highest == LARGE else 4, 1000, dtype=np.int32)
    count = None if most is None else rng.integers(1, most, 1000)
    sorted_by: list[NDArray[Any]] = [token, *reversed(columns)]
    order = np.lexsort(sorted_by)
    found, found_token, found_count = radix_sort(columns, token, count)
    for column, sorted_column in zip(columns, found, strict=True):
        np.testing.assert_array_equal(sorted_column, column[order])
    np.testing.assert_array_equal(found_token, token[order])
    assert (found_count is None) == (count is None)
    if count is not None and found_count is not None:
        np.testing.assert_array_equal(np.sort(found_count), np.sort(count))
        rows = np.stack([*columns, token, count])
        moved = np.stack([*found, found_token, found_count])
        assert sorted(map(tuple, rows.T.tolist())) == sorted(map(tuple, moved.T.tolist()))
    assert found_token.dtype == np.int32
    assert {column.dtype for column in found} == {np.dtype(np.int64)}


def test_no_rows_are_sorted_into_none() -> None:
    keys, token, count = radix_sort([np.empty(0, np.int64)], np.empty(0, np.int32), None)
    assert keys[0].size == token.size == 0
    assert count is None
