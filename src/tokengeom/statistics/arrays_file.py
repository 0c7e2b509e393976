"""Arrays in files: in safetensors, written one after the other and checked when they are read; and for Parquet.

The library of safetensors copies all arrays before it writes them. What it reads is not trusted, although hashes fit:
whoever edits a result can write new hashes, and other software can write such files too. `SavedArrays` checks each
array before anything is computed from it. Above all, no sparse matrix is made from arrays that `sparse_fault` has not
seen: compiled code follows indices wherever they lead.

For Parquet, Arrow arrays are made of the bytes of NumPy arrays and strings. `pyarrow.array` does the same, but loads
pandas wherever it is installed, which takes longer than counting a short text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from scipy import sparse

from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Bool, Float
from tokengeom.results.convert import damaged

if TYPE_CHECKING:
    import pyarrow as pa


LARGEST_ENTRY = 1e50
"""Largest number that is read: products of a few larger ones overflow."""
SUM_TOLERANCE = 1e-9
"""How far sums of probabilities may be from 1."""
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


class SavedArrays:
    """The arrays of a safetensors file; one that is not what it must be is refused, with the name of the folder."""

    def __init__(self, path: Path) -> None:
        self.folder, self._file = path.parent, path.name
        try:
            self._arrays: dict[str, NDArray[Any]] = load_file(path)
        except (SafetensorError, OSError) as error:
            raise self.damaged(f"{path.name} cannot be read ({error})") from error

    def damaged(self, what: str) -> InputError:
        """The error that names the folder and what is wrong in it."""
        return damaged(self.folder, what)

    def only(self, *names: str) -> None:
        """Refuse arrays with other names."""
        for name in sorted(set(self._arrays) - set(names)):
            raise self.damaged(f"{self._file} has the array {name!r}, which does not belong there")

    def only_beginning(self, *prefixes: str) -> None:
        """Refuse arrays whose names begin with none of these."""
        self.only(*(name for name in self._arrays if name.startswith(prefixes)))

    def has(self, name: str) -> bool:
        """Whether there is an array of this name."""
        return name in self._arrays

    def beginning(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Arrays whose names begin with a prefix, by the rest of their names."""
        return {name.removeprefix(prefix): array for name, array in self._arrays.items() if name.startswith(prefix)}

    def array(self, name: str, kind: type[np.generic], shape: tuple[int | None, ...]) -> NDArray[Any]:
        """An array of this type and shape, in which None is any size from 0 on."""
        if name not in self._arrays:
            raise self.damaged(f"{self._file} has no array {name}")
        array = self._arrays[name]
        fits = array.ndim == len(shape) and all(
            wanted in (None, size) for wanted, size in zip(shape, array.shape, strict=True)
        )
        if array.dtype != kind or not fits:
            wanted = " x ".join("any" if size is None else str(size) for size in shape)
            raise self.damaged(
                f"{name} must be an array of {np.dtype(kind)}, {wanted}; got {array.dtype} of shape {array.shape}"
            )
        return array

    def floats(
        self, name: str, shape: tuple[int | None, ...], low: float = -LARGEST_ENTRY, high: float = LARGEST_ENTRY
    ) -> Float:
        """An array of 64-bit floating-point numbers between two others; by default finite ones of any usable size."""
        return self._between(name, self.array(name, np.float64, shape), low, high)

    def wholes(
        self, name: str, shape: tuple[int | None, ...], low: int, high: int, kind: type[np.generic] = np.int64
    ) -> NDArray[Any]:
        """An array of whole numbers from ``low`` to ``high``."""
        return self._between(name, self.array(name, kind, shape), low, high)

    def matrix(self, name: str, shape: tuple[int | None, int | None], *, finite: bool = True) -> NDArray[Any]:
        """A matrix of 32- or 64-bit floating-point numbers with rows and columns; None in the shape is any number."""
        array = self._of_either("float", name, shape)
        if not array.size:
            raise self.damaged(f"{name} must have rows and columns; got shape {array.shape}")
        return self._between(name, array, -LARGEST_ENTRY, LARGEST_ENTRY) if finite else array

    def vector(self, name: str, size: int) -> NDArray[Any]:
        """Finite 32- or 64-bit floating-point numbers."""
        return self._between(name, self._of_either("float", name, (size,)), -LARGEST_ENTRY, LARGEST_ENTRY)

    def _of_either(self, kind: str, name: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """An array of 32- or 64-bit numbers of a kind."""
        short, long = np.dtype(f"{kind}32").type, np.dtype(f"{kind}64").type
        return self.array(name, short if name in self._arrays and self._arrays[name].dtype == short else long, shape)

    def _between(self, name: str, array: NDArray[Any], low: float, high: float) -> NDArray[Any]:
        if array.size:
            # The smallest and the largest of numbers with a NaN are NaN, which lies between no others.
            smallest, largest = array.min().item(), array.max().item()
            if not (low <= smallest and largest <= high):
                raise self.damaged(f"{name} must lie in {low:g}..{high:g}; it has entries from {smallest} to {largest}")
        return array

    def shares(self, name: str, size: int) -> Float:
        """Positive numbers that sum to 1."""
        array = self.floats(name, (size,), 0.0, 1.0)
        if not (array > 0).all() or not abs(array.sum() - 1.0) <= SUM_TOLERANCE:
            raise self.damaged(f"{name} must be positive and sum to 1; it sums to {array.sum():.12g}")
        return array

    def table(
        self, prefix: str, kind: type[np.generic], shape: tuple[int, int | None], *, signed: bool = False
    ) -> sparse.csc_array:
        """The sparse matrix with the arrays ``data``, ``indices`` and ``indptr``, after a prefix; no entry is 0.

        Entries are positive, or of either sign where they are ``signed``.
        """
        data = self.array(f"{prefix}data", kind, (None,))
        indices, indptr = (self._of_either("int", f"{prefix}{part}", (None,)) for part in ("indices", "indptr"))
        columns = indptr.size - 1 if shape[1] is None else shape[1]
        fault = sparse_fault(data, indices, indptr, (shape[0], columns))
        if fault is not None:
            raise self.damaged(f"{prefix}data, {prefix}indices and {prefix}indptr make no sparse matrix: {fault}")
        sizes = np.abs(data) if signed else data
        if data.size and not 0 < sizes.min() <= sizes.max() <= (LARGEST_ENTRY if kind is np.float64 else 2**62):
            wanted = "not 0" if signed else "positive"
            raise self.damaged(f"{prefix}data must be finite and {wanted}; it has {data.min()} to {data.max()}")
        return sparse.csc_array((data, indices, indptr), shape=(shape[0], columns))


def sparse_fault(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int]) -> str | None:
    """What is wrong with the arrays of a matrix in CSC form, whose columns have rising rows; None if nothing is."""
    rows, columns = shape
    if data.shape != indices.shape or columns < 1 or indptr.shape != (columns + 1,):
        sizes = f"{data.size}, {indices.size} and {indptr.size}"
        return f"their sizes are {sizes}, for {columns} columns"
    # Compared, not subtracted: differences of extreme numbers wrap around.
    if indptr[0] != 0 or indptr[-1] != indices.size or (indptr[1:] < indptr[:-1]).any():
        return f"indptr must rise from 0 to the number of entries, {indices.size}"
    if indices.size and not 0 <= indices.min() <= indices.max() < rows:
        return f"indices must lie in 0..{rows - 1}; they lie in {indices.min()}..{indices.max()}"
    begins = np.zeros(indices.size + 1, np.bool_)
    begins[indptr] = True
    begins[1:-1] |= indices[1:] > indices[:-1]
    if not begins[:-1].all():
        return "the rows of a column must rise, and no row may occur twice"
    return None


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
