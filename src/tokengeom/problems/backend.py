"""The array operations that the nuclear-norm code needs, over NumPy or PyTorch.

An algorithm is written once with a `Backend`. It runs on NumPy by default, and on PyTorch when a device such as
``"cuda"`` is given. Everything is float64: a proven gap of 1e-6 does not survive float32.

A matrix is one array or, where it is large, a sequence of blocks of columns (``columns``). Gram matrices, norms, inner
products and proven norms take either.

Columns can be spread over several processes (`Backend.over_processes`). Each process then holds a block of the columns
of every V x m matrix, and of every vector of length m. Products, norms and sums over columns are added up over the
processes, and factorisations of V x V matrices are computed by the first process and sent to the others, so all
processes take the same decisions.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tokengeom.core.errors import ProblemError, ResourceError, missing_extra
from tokengeom.core.numerics import Float
from tokengeom.core.system import Processes, join_processes, launched_processes

if TYPE_CHECKING:
    from tokengeom.problems.columns import Layout

Array = Any
"""A NumPy array or a PyTorch tensor; both share the operators and methods that are used here."""

UNIT = float(np.finfo(np.float64).eps) / 2
"""Unit of rounding of float64."""
SVD_SIDE = 1500
"""Up to this smaller side an SVD takes seconds; beyond it the Gram matrix is used."""
DENSE = 0.2
"""Share of entries that are not 0 from which on a matrix is kept dense: its products are then faster."""
GRAM_RANK_TOLERANCE = 1e-7
"""Singular values from a Gram matrix that are below this share of the largest are rounding."""
CPU_BLOCK = 2**20
GPU_BLOCK = 2**25
"""Entries of a matrix from which on it is cut into blocks of columns. With 400 tokens and 20,000 contexts, an iteration
at a loss takes half as long in blocks as on whole matrices, since more of it stays in the cache."""


class Blocks(ABC):
    """The blocks of columns of a matrix, float64 on the device.

    ``layout``
        How the matrix is cut.
    """

    layout: Layout

    def __len__(self) -> int:
        return len(self.layout)

    @abstractmethod
    def __getitem__(self, k: int) -> Array:
        """Block k."""


def blocks_of(x: Array | Blocks) -> Sequence[Array]:
    """The blocks of a matrix: itself, where it is one array."""
    return cast("Sequence[Array]", x) if isinstance(x, Blocks) else [x]


@dataclass(frozen=True)
class Backend:
    """One array library on one device.

    ``device``
        ``None`` for NumPy; otherwise a PyTorch device (``"cpu"``, ``"cuda"``, ``"cuda:1"``).
    ``processes``
        The processes over which columns are spread; None where this process holds all columns.
    ``largest_block``, ``device_memory``
        Entries of one block of columns, and bytes that are taken to be free on the device; by default measured values
        and what is free.
    """

    device: str | None
    xp: Any
    processes: Processes | None = None
    largest_block: int | None = None
    device_memory: int | None = None

    @staticmethod
    def on(device: str | None = None) -> Backend:
        """NumPy for ``None``, else PyTorch on that device; a device that does not exist is refused."""
        if device is None:
            return Backend(None, np)
        if device.split(":")[0] not in ("cpu", "cuda"):
            raise ProblemError(f"device must be 'cpu', 'cuda' or 'cuda:N'; got device={device!r}.")
        try:
            import torch
        except ImportError:
            missing_extra("torch", "torch", f"Solving on the device '{device}'")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ResourceError(
                f"The device must exist; got device={device!r}, and PyTorch finds no CUDA device. Likely a machine "
                "without a GPU, or a CPU build of PyTorch. Leave device out to use the CPU."
            )
        return Backend(device, torch)

    @staticmethod
    def over_processes(device: str | None = None) -> Backend:
        """PyTorch with columns spread over the processes that a launcher has started; without one, as `on`.

        Every process must then make the same calls. With ``"cuda"`` each process uses the GPU of its local rank.
        """
        if launched_processes() == 1:
            return Backend.on(device)
        here = Backend.on(device or "cpu")
        joined = join_processes(here.xp, device or "cpu")
        return replace(here, device=joined.device, processes=joined)

    @property
    def world(self) -> int:
        """Number of processes over which columns are spread."""
        return 1 if self.processes is None else self.processes.world

    def columns(self, size: int) -> slice:
        """The columns, of ``size``, that this process holds."""
        return slice(0, size) if self.processes is None else self.processes.part(size)

    @property
    def on_gpu(self) -> bool:
        """Whether arrays are in the memory of a GPU."""
        return self.device is not None and self.device.startswith("cuda")

    @property
    def block_entries(self) -> int:
        """Entries of one block of columns."""
        return self.largest_block or (GPU_BLOCK if self.on_gpu else CPU_BLOCK)

    def free_on_device(self) -> float:
        """Bytes that are free on the device; infinite where the device is the host itself."""
        if self.device_memory is not None:
            return float(self.device_memory)
        if not self.on_gpu:
            return float("inf")
        free, _ = self.xp.cuda.mem_get_info(self.device)
        return float(free + self.xp.cuda.memory_reserved(self.device) - self.xp.cuda.memory_allocated(self.device))

    def asarray(self, x: Any) -> Array:
        """Float64 on this device; a boolean array stays boolean."""
        if self.device is None:
            return np.asarray(x, dtype=None if getattr(x, "dtype", None) == np.bool_ else np.float64)
        tensor = self.xp.as_tensor(x, device=self.device)
        return tensor if tensor.dtype == self.xp.bool else tensor.to(self.xp.float64)

    def indices(self, x: Any) -> Array:
        """Whole numbers on this device, to choose entries with."""
        return np.asarray(x) if self.device is None else self.xp.as_tensor(x, device=self.device).long()

    def sparse(self, x: Any) -> Any:
        """A sparse matrix of SciPy on this device, for products with dense ones; a dense one where most of it is."""
        if x.nnz > DENSE * x.shape[0] * x.shape[1]:
            return self.asarray(x.toarray())
        rows = x.tocsr().astype(np.float64)
        if self.device is None:
            return rows
        parts = (self.xp.as_tensor(part, device=self.device) for part in (rows.indptr, rows.indices, rows.data))
        with warnings.catch_warnings():
            # PyTorch says once that its compressed rows are new.
            warnings.simplefilter("ignore", UserWarning)
            return self.xp.sparse_csr_tensor(*parts, size=rows.shape)

    def to_numpy(self, x: Array) -> Float:
        """The array as a NumPy array."""
        return x if isinstance(x, np.ndarray) else cast("Float", x.cpu().numpy())

    def full(self, shape: tuple[int, ...], value: float) -> Array:
        """An array that holds one value everywhere."""
        if self.device is None:
            return np.full(shape, value)
        return self.xp.full(shape, value, device=self.device, dtype=self.xp.float64)

    def as_float(self, mask: Array) -> Array:
        """A boolean array as zeros and ones, for use in a product."""
        return mask.astype(np.float64) if self.device is None else mask.to(self.xp.float64)

    def at_least(self, x: Array, low: float) -> Array:
        """``max(x, low)``, entry by entry."""
        return np.maximum(x, low) if self.device is None else x.clamp(min=low)

    def at_most(self, x: Array, high: float) -> Array:
        """``min(x, high)``, entry by entry."""
        return np.minimum(x, high) if self.device is None else x.clamp(max=high)

    def set_diagonal(self, A: Array, values: Array) -> None:
        """Overwrite the diagonal of a square matrix."""
        if self.device is None:
            np.fill_diagonal(A, values)
        else:
            A.diagonal().copy_(values)

    def total(self, x: Array) -> Array:
        """The sum over all processes of each process's array."""
        if self.processes is None:
            return x
        summed = self.xp.as_tensor(x, device=self.device, dtype=self.xp.float64).clone()
        self.xp.distributed.all_reduce(summed)
        return summed

    def largest(self, x: Array) -> float:
        """The largest entry of an array of all processes; ``-inf`` where it has none."""
        top = float(x.max()) if 0 not in x.shape else -np.inf
        if self.processes is None:
            return top
        shared = self.full((1,), top)
        self.xp.distributed.all_reduce(shared, op=self.xp.distributed.ReduceOp.MAX)
        return float(shared)

    def all_finite(self, x: Array) -> bool:
        """Whether a matrix of all processes holds neither NaN nor infinity."""
        return max(self.largest(~self.xp.isfinite(block)) for block in blocks_of(x)) <= 0

    def agree(self, x: Array) -> Array:
        """The first process's array or number, on every process."""
        if self.processes is None:
            return x
        shared = self.xp.as_tensor(x, device=self.device, dtype=self.xp.float64).contiguous()
        # What the others hold may be part of another array, which must not be overwritten.
        shared = shared if self.processes.rank == 0 else self.xp.empty_like(shared)
        self.xp.distributed.broadcast(shared, 0)
        return shared

    def whole(self, x: Array) -> Float:
        """All columns of a matrix as a NumPy array, on every process."""
        blocks = blocks_of(x)
        if self.processes is None and len(blocks) == 1:
            return self.to_numpy(blocks[0])
        if self.processes is None:
            edges = np.cumsum([0, *(block.shape[-1] for block in blocks)])
            filled = np.empty((*blocks[0].shape[:-1], edges[-1]))
            for i, j, block in zip(edges[:-1], edges[1:], blocks, strict=True):
                filled[..., i:j] = self.to_numpy(block)
            return filled
        x = blocks[0] if len(blocks) == 1 else self.xp.concatenate(list(blocks), -1)
        mine = self.as_float(x).contiguous()
        size = round(float(self.total(float(x.shape[-1]))))
        blocks = []
        for rank in range(self.world):
            part = replace(self.processes, rank=rank).part(size)
            here = rank == self.processes.rank
            block = mine if here else self.full((*x.shape[:-1], part.stop - part.start), 0.0)
            self.xp.distributed.broadcast(block, rank)
            blocks.append(self.to_numpy(block))
        return np.concatenate(blocks, axis=-1)

    def norm(self, x: Array) -> float:
        """Frobenius norm."""
        norms = [float(self.xp.linalg.norm(block)) for block in blocks_of(x)]
        own = norms[0] if len(norms) == 1 else float(np.linalg.norm(norms))
        return own if self.processes is None else float(self.total(own**2)) ** 0.5

    def by_rows(self, x: Array) -> bool:
        """Whether the smaller Gram matrix is ``x x^T``; in blocks, or on several processes, it is always used."""
        blocks = blocks_of(x)
        return self.processes is not None or len(blocks) > 1 or blocks[0].shape[0] <= blocks[0].shape[1]

    def gram(self, x: Array) -> Array:
        """``x x^T`` or ``x^T x``, whichever is smaller."""
        blocks = blocks_of(x)
        if not self.by_rows(x):
            return blocks[0].T @ blocks[0]
        G: Array = None
        for block in blocks:
            G = block @ block.T if G is None else G + block @ block.T
        return self.total(G)

    def _size(self, x: Array) -> tuple[int, int, int]:
        """Rows, columns on all processes, and blocks of a matrix."""
        shapes = [tuple(block.shape) for block in blocks_of(x)]
        return shapes[0][0], round(float(self.total(float(sum(shape[1] for shape in shapes))))), len(shapes)

    def eigh(self, G: Array) -> tuple[Array, Array]:
        """Eigenvalues, rising, and eigenvectors of a symmetric matrix that every process holds."""
        if self.processes is None or self.processes.rank == 0:
            eigenvalues, Q = self.xp.linalg.eigh(G)
        else:
            eigenvalues, Q = G[0], G
        return self.agree(eigenvalues), self.agree(Q)

    def fast_singular_values(self, x: Array) -> Array:
        """Singular values, rising, from the smaller Gram matrix; those below 1e-8 of the largest are rounding."""
        return self.at_least(self._eigenvalues(self.gram(x)), 0.0) ** 0.5

    def _eigenvalues(self, G: Array) -> Array:
        first = self.processes is None or self.processes.rank == 0
        return self.agree(self.xp.linalg.eigvalsh(G) if first else G[0])

    def is_positive_definite(self, A: Array) -> bool:
        """Whether the Cholesky factorisation of a symmetric matrix runs to its end."""
        if self.device is not None:
            return int(self.xp.linalg.cholesky_ex(A).info) == 0
        try:
            np.linalg.cholesky(A)
        except np.linalg.LinAlgError:
            return False
        return True

    def proven_spectral_norm(self, x: Array) -> float:
        """An upper bound of the spectral norm that holds in spite of rounding.

        With K the computed smaller Gram matrix (n x n, sums of k products in any order, over blocks and processes too),
        ``||x||^2 <= lambda_max(K) + gamma_k ||x||_F^2``. If the Cholesky factorisation of ``t I - K`` runs to its end,
        then ``lambda_max(K) <= t + gamma_{n+1} trace(t I - K) / (1 - gamma_{n+1})`` [rump2006]; here ``gamma_k = k u /
        (1 - k u)`` and u is the unit of rounding. t starts just above the computed eigenvalue and is raised until the
        factorisation succeeds.
        """
        rows, columns, blocks = self._size(x)
        k, n = (columns + blocks + self.world, rows) if self.by_rows(x) else (rows, columns)
        size = self.norm(x) ** 2 * (1.0 + 4.0 * k * UNIT)
        if not size > 0.0:
            return 0.0
        K = self.gram(x)
        top = max(float(self._eigenvalues(K)[-1]), 0.0)
        margin = 8.0 * n * UNIT
        identity = self.asarray(np.eye(n))
        while True:
            t = top * (1.0 + margin) + 1e-300
            if self.is_positive_definite(t * identity - K):
                break
            margin *= 4.0
        trace = n * t
        squared = t + 2.0 * (n + 2) * UNIT * trace + 2.0 * k * UNIT * size
        return float(self.agree(float(np.sqrt(squared)) * (1.0 + 4.0 * UNIT)))

    def proven_nuclear_norm(self, x: Array) -> float:
        """An upper bound of the nuclear norm that holds in spite of rounding.

        For any Q and Y (n x n and n x k, with n <= k), ``||x||_* <= sum_i ||q_i|| ||y_i|| + sqrt(n) ||x - Q Y||_F``,
        with ``q_i`` the columns of Q and ``y_i`` the rows of Y: a sum of matrices of rank 1, and the rest. With Q the
        eigenvectors of the Gram matrix and ``Y = Q^T x`` this is the nuclear norm up to rounding; singular values below
        1e-8 of the largest, which the Gram matrix loses, are counted too. The computed rest is within ``gamma_{n+1}
        (||x||_F + ||Q||_F ||Y||_F)`` of the exact one.
        """
        n, k, count = self._size(x)
        if 0 in (n, k):
            return 0.0
        if not self.by_rows(x):
            return self.proven_nuclear_norm(blocks_of(x)[0].T)
        _, Q = self.eigh(self.gram(x))
        squares: Array = 0.0
        rest: list[float] = []
        size: list[float] = []
        moved: list[float] = []
        for block in blocks_of(x):
            Y = Q.T @ block
            squares = squares + (Y * Y).sum(1)
            for norms, part in ((rest, block - Q @ Y), (size, block), (moved, Y)):
                norms.append(float(self.xp.linalg.norm(part)))
        lengths = self.total(squares) ** 0.5 * (Q * Q).sum(0) ** 0.5
        rest_norm, norm, norm_of_Y = (float(self.total(float(np.square(x).sum()))) ** 0.5 for x in (rest, size, moved))
        rounding = 2.0 * (n + 2) * UNIT * (norm + float((Q * Q).sum()) ** 0.5 * norm_of_Y)
        relative = 1.0 + 8.0 * (n + k + count + self.world) * UNIT
        return float(self.agree((float(lengths.sum()) + float(n) ** 0.5 * (rest_norm + rounding)) * relative))

    def polar_root(self, x: Array) -> tuple[Array, Array]:
        """``(x x^T)^{-1/2}`` on the range of x, and the nonzero singular values, rising, from the smaller Gram matrix.

        Its product with x is the polar factor of x. Where ``x^T x`` is smaller, its root is given, and ``x R`` is.
        """
        eigenvalues, Q = self.eigh(self.gram(x))
        s = self.at_least(eigenvalues, 0.0) ** 0.5
        kept = s > GRAM_RANK_TOLERANCE * float(s[-1])
        Q, s = Q[:, kept], s[kept]
        return (Q / s) @ Q.T, s

    def polar_factor(self, x: Array) -> tuple[Array, Array]:
        """``U V^T`` of ``x = U diag(s) V^T`` and the nonzero ``s``, rising, from the smaller Gram matrix."""
        root, s = self.polar_root(x)
        return (root @ x if self.by_rows(x) else x @ root), s

    def synchronise(self) -> None:
        """Wait for the device to finish, before a clock is read."""
        if self.on_gpu:
            self.xp.cuda.synchronize()
