"""Arrays that are written without a copy are read by the library as they were, and the file is the library's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tokengeom.statistics.arrays_file import save_arrays


def test_the_library_reads_the_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, NDArray[Any]] = {
        "data": rng.integers(0, 2**60, 7),
        "indices": rng.integers(0, 9, 7).astype(np.int32),
        "contexts": rng.integers(0, 9, (5, 3)).astype(np.int32)[::2],
        "pi": rng.random(3),
        "empty": np.empty(0, np.int64),
    }
    save_arrays(arrays, tmp_path / "ours.safetensors")
    found = load_file(tmp_path / "ours.safetensors")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, tmp_path / "theirs.safetensors")
    assert (tmp_path / "ours.safetensors").stat().st_size < (tmp_path / "theirs.safetensors").stat().st_size + 100
