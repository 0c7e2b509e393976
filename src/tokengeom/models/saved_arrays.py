"""W and H of a model of any framework from plain arrays: one safetensors file, or W.npy and H.npy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import CheckpointError, ProblemError
from tokengeom.factors import Factors

_NAMES = ("W", "H", "bias")


def load_arrays(path: str | Path) -> Factors:
    """W (V x d), H (d x m) and, where there is one, bias (V).

    ``path`` is a ``.safetensors`` file with tensors of these names, a folder with ``W.npy`` and ``H.npy`` (and
    ``bias.npy``), or the path of that ``W.npy``. Nothing is unpickled.
    """
    path = Path(path)
    if path.is_file() and path.suffix == ".safetensors":
        found = _tensors(path)
    elif path.is_dir() or (path.is_file() and path.name == "W.npy"):
        folder = path if path.is_dir() else path.parent
        found = {name: _array(file) for name in _NAMES if (file := folder / f"{name}.npy").is_file()}
    else:
        raise CheckpointError(
            f"W and H must be in one .safetensors file with tensors W and H, or in a folder with W.npy and H.npy; "
            f"{path} {'is another kind of file' if path.is_file() else 'does not exist'}."
        )
    absent = [name for name in ("W", "H") if name not in found]
    if absent:
        raise CheckpointError(
            f"{path} must have W (V x d, one row per token) and H (d x m, one column per context); "
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing. "
            f"It has: {', '.join(found) or 'neither'}."
        )
    return _checked(path, **{name: found.get(name) for name in _NAMES})


def _checked(path: Path, W: Any, H: Any, bias: Any) -> Factors:
    for name, array in (("W", W), ("H", H), ("bias", bias)):
        if array is not None and array.dtype.kind not in "fiu":
            raise CheckpointError(f"{name} in {path} must have real numbers; it has {array.dtype}.")
    try:
        return Factors.of(Factors(W, H, bias))
    except ProblemError as error:
        raise CheckpointError(f"{path} has no usable W and H: {error}") from error


def _tensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    # NumPy has no bfloat16, for which the library raises a KeyError or a TypeError.
    except (SafetensorError, OSError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} cannot be read as safetensors: {error}. Likely truncated, or in bfloat16: save it as float32."
        ) from error


def _array(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read as an array of numbers: {error}. Save it with numpy.save; pickled objects are "
            "refused."
        ) from error
