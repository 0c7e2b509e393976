"""Matrices in blocks of columns: how a matrix is cut, where its blocks are kept, and blocks that are computed.

Of a V x m matrix the nuclear-norm solvers need ``x x^T`` (V x V), norms, inner products, and maps that act on each
column alone. All of these go block by block, so a solve needs a few V x V matrices, the temporaries of one block, and
its state. The state is kept on the device or, where that is too small, in the memory of the host, from which blocks
are copied when they are used.

A matrix of one block is an ordinary array in the functions of `Backend`, and nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast, final, overload

import numpy as np

from tokengeom.problems.backend import GPU_BLOCK, Array, Backend, Blocks

if TYPE_CHECKING:
    from scipy.sparse import csc_array

STATE_BYTES = 128
"""Bytes per entry that a solve in several blocks keeps at most."""
DEVICE_SHARE = 0.8
"""Share of a device's free memory that the state of a solve may take; above it the state is kept by the host."""


@final
@dataclass(frozen=True, eq=False)
class Layout:
    """How the columns that this process holds are cut into blocks, and where blocks are kept.

    ``on_host``
        Whether blocks are kept in the memory of the host, while the device computes.
    """

    backend: Backend
    slices: tuple[slice, ...]
    on_host: bool = False

    @staticmethod
    def of(backend: Backend, rows: int, columns: int) -> Layout:
        """The layout of a rows x columns matrix, of which this process holds its part of the columns.

        All processes have the same number of blocks.
        """
        most = -(-columns // backend.world)
        # Of blocks the Gram matrix is rows x rows, so a tall matrix is cut only where it is very large.
        tall = backend.world == 1 and backend.largest_block is None and rows > columns
        entries = max(backend.block_entries, GPU_BLOCK) if tall else backend.block_entries
        count = min(max(-(-rows * most // entries), 1), max(most, 1))
        own = backend.columns(columns)
        edges = [(own.stop - own.start) * k // count for k in range(count + 1)]
        slices = tuple(slice(i, j) for i, j in pairwise(edges))
        on_host = count > 1 and STATE_BYTES * rows * most > DEVICE_SHARE * backend.free_on_device()
        return Layout(backend, slices, on_host)

    def __len__(self) -> int:
        return len(self.slices)

    @property
    def several(self) -> bool:
        """Whether there is more than one block."""
        return len(self.slices) > 1

    def split(self, x: Array | Blocks) -> Blocks:
        """The blocks of an array, on the device or of NumPy; blocks stay as they are."""
        if isinstance(x, Blocks):
            return x
        given: Array = x
        asarray = self.backend.asarray
        if not self.several:
            return Computed(self, lambda _: asarray(given))
        return Computed(self, lambda k: asarray(given[..., self.slices[k]]))

    def kept(self, blocks: Blocks) -> Columns:
        """A copy of blocks that does not change when what they are computed from does."""
        columns = Columns(self)
        for k in range(len(self)):
            columns[k] = blocks[k]
        return columns

    def plain(self, blocks: Blocks) -> Array:
        """One array, on the CPU or where there is one block; else the blocks."""
        if not self.several:
            return blocks[0]
        return self.backend.whole(blocks) if self.backend.device is None else blocks


@final
class Computed(Blocks):
    """Blocks that are computed when they are used; where there is one, it is computed once."""

    def __init__(self, layout: Layout, function: Callable[[int], Array]) -> None:
        self.layout, self._function = layout, function
        self._only: Array | None = None

    def __getitem__(self, k: int) -> Array:
        if not 0 <= k < len(self):
            raise IndexError(k)
        if self.layout.several:
            return self._function(k)
        if self._only is None:
            self._only = self._function(0)
        return self._only


@final
class Columns(Blocks):
    """Blocks that are kept, each replaced as a whole: ``x[k] = new``.

    ``single``
        Whether they are kept in single precision, for what only guides an iteration.
    """

    def __init__(self, layout: Layout, *, single: bool = False) -> None:
        self.layout, self.single = layout, single
        self._kept: dict[int, Array] = {}

    def __getitem__(self, k: int) -> Array:
        if k not in self._kept:
            raise IndexError(k)
        kept, backend = self._kept[k], self.layout.backend
        if backend.device is None:
            return kept.astype(np.float64) if self.single else kept
        if self.layout.on_host:
            kept = kept.to(backend.device, non_blocking=True)
        return kept.to(backend.xp.float64)

    def __setitem__(self, k: int, x: Array) -> None:
        backend = self.layout.backend
        if backend.device is None:
            self._kept[k] = x.astype(np.float32) if self.single else x
            return
        kept = x.to(backend.xp.float32 if self.single else backend.xp.float64)
        if not self.layout.on_host:
            self._kept[k] = kept
            return
        if k not in self._kept or self._kept[k].shape != kept.shape:
            self._kept[k] = backend.xp.empty(kept.shape, dtype=kept.dtype, pin_memory=backend.on_gpu)
        # Later copies to the device are in the same queue, so they see this one.
        self._kept[k].copy_(kept, non_blocking=True)

    def __contains__(self, k: object) -> bool:
        return k in self._kept

    def copy(self) -> Columns:
        """The same blocks, of which each can be replaced here without a change there."""
        new = Columns(self.layout, single=self.single)
        new._kept = {k: x.clone() if self.layout.on_host else x for k, x in self._kept.items()}
        return new

    def take(self, k: int) -> Array:
        """The block, which is then no longer kept."""
        block = self[k]
        del self._kept[k]
        return block


@final
class SparseColumns(Blocks):
    """A sparse matrix whose blocks become dense on the device when they are used; only nonzeros are kept."""

    def __init__(self, layout: Layout, matrix: csc_array) -> None:
        self.layout, self.matrix = layout, matrix
        self._parts: list[tuple[Array, Array, Array]] = []
        backend = layout.backend
        for part in layout.slices:
            block = matrix[:, part].tocoo()
            places = (backend.indices(where.astype(np.int64)) for where in (block.row, block.col))
            self._parts.append((*places, backend.asarray(block.data)))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return cast("tuple[int, int]", self.matrix.shape)

    def __getitem__(self, k: int) -> Array:
        part = self.layout.slices[k]
        rows, columns, values = self._parts[k]
        block = self.layout.backend.full((self.shape[0], part.stop - part.start), 0.0)
        block[rows, columns] = values
        return block


@overload
def mapped(function: Callable[..., Array], x: Blocks, *vectors: Array) -> Computed: ...
@overload
def mapped(function: Callable[..., Array], x: Any, *vectors: Array) -> Any: ...
def mapped(function: Callable[..., Array], x: Array | Blocks, *vectors: Array) -> Array | Computed:
    """The function of an array, or of each block; and of vectors, or of their entries that belong to the block."""
    if not isinstance(x, Blocks):
        return function(x, *vectors)
    slices = x.layout.slices
    return Computed(x.layout, lambda k: function(x[k], *(vector[slices[k]] for vector in vectors)))


def kept(x: Any) -> Any:
    """An array as it is; blocks, also those in a dataclass, as a copy that does not change when their origin does."""
    return _with_blocks(x, lambda blocks: blocks.layout.kept(blocks))


def plain(x: Any) -> Any:
    """An array as it is; blocks, also those in a dataclass, as one array, where `Layout.plain` makes one."""
    return _with_blocks(x, lambda blocks: blocks.layout.plain(blocks))


def _with_blocks(x: Any, function: Callable[[Blocks], Array]) -> Any:
    if is_dataclass(x) and not isinstance(x, type):
        return replace(x, **{name: _with_blocks(item, function) for name, item in vars(x).items()})
    return function(x) if isinstance(x, Blocks) else x


def per_column(function: Callable[[Array], Array], x: Array | Blocks) -> Array:
    """A vector with one entry per column: the function of an array, or of each block."""
    if not isinstance(x, Blocks):
        return function(x)
    vectors = [function(x[k]) for k in range(len(x))]
    return vectors[0] if len(vectors) == 1 else x.layout.backend.xp.concatenate(vectors)
