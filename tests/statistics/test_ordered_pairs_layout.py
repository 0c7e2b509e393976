"""Pairs in order become the columns of a sparse matrix, however they are divided into batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tokengeom.statistics.ordered_pairs import PairLayout
from tokengeom.statistics.windows import ContextPacking


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_context_may_continue_in_the_next_batch(size: int) -> None:
    packing = ContextPacking(3, 2)
    contexts = np.array([[0, 1], [0, 1], [0, 1], [0, 2], [2, 0], [2, 0]], np.int64)
    (keys,) = packing.pack(list(contexts.T))
    table = pa.table(
        {
            "context_0": keys,
            "next": np.array([0, 1, 2, 1, 0, 2], np.int32),
            "count": [5, 1, 2, 7, 1, 1],
            "windows": [9, 9, 9, 7, 4, 4],
        }
    )
    layout = PairLayout(6, packing, has_windows=True)
    for begin in range(0, 6, size):
        layout.add(table.slice(begin, size))
    layout.add(table.slice(6))
    np.testing.assert_array_equal(layout.indptr, [0, 3, 4, 6])
    np.testing.assert_array_equal(layout.contexts, [[0, 1], [0, 2], [2, 0]])
    np.testing.assert_array_equal(layout.next, [0, 1, 2, 1, 0, 2])
    np.testing.assert_array_equal(layout.count, [5, 1, 2, 7, 1, 1])
    assert layout.text_counts is not None
    np.testing.assert_array_equal(layout.text_counts, [9, 7, 4])
