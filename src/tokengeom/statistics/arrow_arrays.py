"""Arrow arrays from NumPy arrays and strings, made of their bytes.

`pyarrow.array` does the same, but loads pandas wherever it is installed, which takes longer than counting a short text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.numerics import Bool

if TYPE_CHECKING:
    import pyarrow as pa


def integer_array(values: NDArray[np.integer[Any]]) -> pa.Array:
    """An array of whole numbers, without a copy."""
    import pyarrow as pa

    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, data])


def boolean_array(values: Bool) -> pa.Array:
    """An array of truth values."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.bool_(), values.size, [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def list_array(values: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> pa.Array:
    """An array of lists, of which ``values`` are all entries one after the other."""
    import pyarrow as pa

    ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(integer_array(ends), integer_array(values))


def text_array(texts: Sequence[str]) -> pa.Array:
    """An array of strings."""
    import pyarrow as pa

    encoded = [text.encode("utf-8") for text in texts]
    ends = np.concatenate(([0], np.cumsum([len(text) for text in encoded], dtype=np.int64)))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers).cast(pa.string())


def numbers_of(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Whole numbers or truth values of a column that misses none; numbers in one chunk are not copied."""
    import pyarrow as pa

    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_numbers(chunk) for chunk in chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([_empty(column), *parts])


def _numbers(chunk: pa.Array) -> NDArray[Any]:
    data, begin, end = chunk.buffers()[1], chunk.offset, chunk.offset + len(chunk)
    if not len(chunk):
        return _empty(chunk)
    if chunk.type == "bool":
        bits = np.frombuffer(data, np.uint8)
        return np.unpackbits(bits, count=end, bitorder="little")[begin:].astype(np.bool_)
    return np.frombuffer(data, chunk.type.to_pandas_dtype(), end)[begin:]


def _empty(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    return np.empty(0, column.type.to_pandas_dtype())
