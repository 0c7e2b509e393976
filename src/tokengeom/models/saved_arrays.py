"""W and H of a model of any framework, from plain arrays: one safetensors file, or W.npy and H.npy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import CheckpointError
from tokengeom.factors import Factors

_NAMES = ("W", "H", "bias")


def load_arrays(path: str | Path) -> Factors:
    """Read W (V x d), H (d x m) and, where there is one, bias (V).

    ``path`` is a ``.safetensors`` file with tensors of these names, a folder with ``W.npy`` and ``H.npy`` (and
    ``bias.npy``), or the path of that ``W.npy``, beside which the others lie. Nothing is unpickled.
    """
    path = Path(path)
    if path.is_file() and path.suffix == ".safetensors":
        found = _tensors(path)
    elif path.is_dir() or (path.is_file() and path.name == "W.npy"):
        folder = path if path.is_dir() else path.parent
        found = {name: _array(file) for name in _NAMES if (file := folder / f"{name}.npy").is_file()}
    else:
        raise CheckpointError(
            f"W and H come as one .safetensors file with tensors W and H, or as a folder with W.npy and H.npy; {path} "
            f"is {'another kind of file' if path.is_file() else 'not there'}."
        )
    absent = [name for name in ("W", "H") if name not in found]
    if absent:
        raise CheckpointError(
            f"{path} must hold W (V x d, one row a token) and H (d x m, one column a context); {' and '.join(absent)} "
            f"{'is' if len(absent) == 1 else 'are'} not there. It holds: {', '.join(found) or 'neither'}."
        )
    return _checked(path, **{name: found.get(name) for name in _NAMES})


def _checked(path: Path, W: Any, H: Any, bias: Any) -> Factors:
    for name, array, dimensions in (("W", W, 2), ("H", H, 2), ("bias", bias, 1)):
        if array is not None and (array.dtype.kind not in "fiu" or array.ndim != dimensions):
            raise CheckpointError(
                f"{name} in {path} must be {'a matrix' if dimensions == 2 else 'a vector'} of real numbers; it has "
                f"{array.ndim} dimension(s) of {array.dtype}."
            )
    if W.shape[1] != H.shape[0] or (bias is not None and bias.shape != W.shape[:1]):
        hint = " H looks transposed: save H.T." if W.shape[1] == H.shape[1] else ""
        raise CheckpointError(
            f"W (V x d), H (d x m) and bias (V) in {path} must fit together; got W {W.shape}, H {H.shape}"
            f"{'' if bias is None else f', bias {bias.shape}'}.{hint}"
        )
    return Factors(W.astype(np.float64), H.astype(np.float64), None if bias is None else bias.astype(np.float64))


def _tensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    # NumPy has no bfloat16, which the library meets with a KeyError or a TypeError.
    except (SafetensorError, OSError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} cannot be read as safetensors: {error}. Likely cut off, or in bfloat16: save it as float32."
        ) from error


def _array(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read as an array of numbers: {error}. Save it with numpy.save; pickled objects are "
            "refused."
        ) from error
