"""Arrays are written as the library reads them, and what no honest file has is refused when it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from tokengeom.core.errors import InputError
from tokengeom.statistics.arrays_file import SavedArrays, save_arrays, sparse_fault


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


def test_every_single_change_of_indices_is_what_scipy_says_it_is() -> None:
    """`sparse_fault` accepts exactly the matrices that scipy's full check accepts with sorted, distinct rows."""
    rng = np.random.default_rng(0)
    accepted = refused = 0
    for _ in range(400):
        made = sparse.random_array((4, 5), density=0.5, rng=rng, format="csc")
        arrays = {"indices": made.indices.astype(np.int64), "indptr": made.indptr.astype(np.int64)}
        array = arrays[str(rng.choice(["indices", "indptr"]))]
        array[rng.integers(array.size)] = rng.choice([-(2**40), -1, 0, 1, 2, 3, 4, 5, 2**40])
        fault = sparse_fault(made.data, arrays["indices"], arrays["indptr"], (4, 5))
        assert (fault is None) == scipy_accepts(made.data, arrays["indices"], arrays["indptr"])
        accepted, refused = accepted + (fault is None), refused + (fault is not None)
    assert min(accepted, refused) > 50


def scipy_accepts(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any]) -> bool:
    if indptr[0] != 0 or (np.diff(indptr) < 0).any() or indptr[-1] != data.size:
        return False
    try:
        made = sparse.csc_array((data, indices, indptr), shape=(4, 5))
        made.check_format(full_check=True)
    except ValueError:
        return False
    return bool(made.has_canonical_format)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.ones(3, np.float32), "float64, 3; got float32"),
        (np.ones(4), r"got float64 of shape \(4,\)"),
        (np.array([1.0, np.nan, 1.0]), "entries from nan"),
        (np.array([1.0, np.inf, 1.0]), "to inf"),
        (np.array([1.0, 1e200, 1.0]), r"to 1e\+200"),
    ],
)
def test_numbers_of_another_kind_are_refused(tmp_path: Path, array: NDArray[Any], says: str) -> None:
    save_file({"a": array}, tmp_path / "x.safetensors")
    with pytest.raises(InputError, match=rf"{tmp_path} is damaged: a must .*{says}"):
        SavedArrays(tmp_path / "x.safetensors").floats("a", (3,))


def test_arrays_that_are_missing_or_too_many_are_refused(tmp_path: Path) -> None:
    save_file({"a": np.ones(3), "b": np.arange(3)}, tmp_path / "x.safetensors")
    found = SavedArrays(tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="has no array c"):
        found.floats("c", (None,))
    with pytest.raises(InputError, match="'b', which does not belong there"):
        found.only("a")
    with pytest.raises(InputError, match=r"b must lie in 1\.\.2"):
        found.wholes("b", (3,), 1, 2)
    with pytest.raises(InputError, match="a must be positive and sum to 1"):
        found.shares("a", 3)
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="cannot be read"):
        SavedArrays(tmp_path / "x.safetensors")
