"""Arrow arrays made of bytes are those of pyarrow itself, and come back as they were."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from tokengeom.core.numerics import Int
from tokengeom.statistics.arrays_file import boolean_array, integer_array, list_array, numbers_of, text_array

COUNT = """
import sys
import tokengeom as tg
statistics = tg.count(["a b a c"], context=1)
statistics.save(sys.argv[1])
print(*(name for name in ("pandas", "duckdb", "ibis", "numba", "scipy.stats") if name in sys.modules))
"""


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("size", [0, 1, 100])
def test_numbers_and_truth_values_come_back(kind: type, size: int) -> None:
    values: Int = np.random.default_rng(0).integers(0, 2, size).astype(kind)
    made = integer_array(values)
    assert made.equals(pa.array(values))
    np.testing.assert_array_equal(numbers_of(made), values)
    np.testing.assert_array_equal(numbers_of(pa.chunked_array([made, made[3:]])), np.append(values, values[3:]))
    truth = boolean_array(values > 0)
    assert truth.equals(pa.array(values > 0))
    np.testing.assert_array_equal(numbers_of(truth[2:50]), (values > 0)[2:50])
    assert numbers_of(truth).dtype == np.bool_
    assert numbers_of(pa.chunked_array([], made.type)).dtype == kind


def test_lists_and_texts_are_those_of_pyarrow() -> None:
    lists = list_array(np.arange(5, dtype=np.int32), np.array([2, 0, 3]))
    assert lists.equals(pa.array([[0, 1], [], [2, 3, 4]], pa.list_(pa.int32())))
    texts = ["", "a", "ü\n", "日本", "😀"]
    assert text_array(texts).equals(pa.array(texts))
    assert text_array([]).equals(pa.array([], pa.string()))


def test_counting_a_short_text_loads_no_library_that_it_does_not_need(tmp_path: object) -> None:
    done = subprocess.run([sys.executable, "-c", COUNT, f"{tmp_path}/s"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
