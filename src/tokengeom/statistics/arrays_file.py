"""Arrays written to a safetensors file one after the other; the library itself copies all of them first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAMES = {"int32": "I32", "int64": "I64", "float64": "F64"}


def save_arrays(arrays: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write arrays of int32, int64 or float64 to a file that ``safetensors.numpy.load_file`` reads.

    The file is the length of a header (8 bytes), the header in JSON (types, shapes and places of the arrays), and the
    arrays, little-endian, those with wider numbers first.
    """
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header, end = {}, 0
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype.name], "shape": array.shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
