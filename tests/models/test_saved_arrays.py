"""W and H of a model of any framework are read from plain arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tokengeom.errors import CheckpointError
from tokengeom.models.saved_arrays import load_arrays

RNG = np.random.default_rng(0)
W, H, BIAS = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 7)), RNG.normal(size=5)


def test_safetensors_and_npy_give_the_same_arrays(tmp_path: Path) -> None:
    save_file({"W": W, "H": H, "bias": BIAS}, tmp_path / "model.safetensors")
    for name, array in (("W", W), ("H", H), ("bias", BIAS)):
        np.save(tmp_path / f"{name}.npy", array)
    for path in (tmp_path / "model.safetensors", tmp_path, tmp_path / "W.npy"):
        found = load_arrays(path)
        np.testing.assert_allclose(found.logits, W @ H + BIAS[:, None])
    (tmp_path / "bias.npy").unlink()
    assert load_arrays(tmp_path).bias is None


def test_float16_becomes_float64(tmp_path: Path) -> None:
    save_file({"W": W.astype(np.float16), "H": H.astype(np.float32)}, tmp_path / "a.safetensors")
    assert load_arrays(tmp_path / "a.safetensors").W.dtype == np.float64


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"W": W}, "H is missing. It has: W"),
        ({"weights": W}, "W and H are missing"),
        ({"W": W, "H": H.T.copy()}, "H looks transposed"),
        ({"W": W, "H": H, "bias": BIAS[:3]}, r"bias must have V=5 entries; got shape \(3,\)"),
        ({"W": W, "H": H[0]}, "H must be a matrix"),
        ({"W": W * np.nan, "H": H}, "W must be finite"),
        ({"W": W > 0, "H": H}, "must have real numbers; it has bool"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, tensors: dict[str, Any], reason: str) -> None:
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match=reason):
        load_arrays(tmp_path / "a.safetensors")


def test_pickles_and_broken_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "W.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "H.npy", H)
    with pytest.raises(CheckpointError, match="pickled objects are refused"):
        load_arrays(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="cannot be read as safetensors"):
        load_arrays(tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="does not exist"):
        load_arrays(tmp_path / "absent.safetensors")
    with pytest.raises(CheckpointError, match="another kind of file"):
        load_arrays(tmp_path / "H.npy")
