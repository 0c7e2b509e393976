"""Types of arrays, and the arithmetic that every package shares: stable sums of exponentials, centring, cosines.

Small matrices are multiplied with one BLAS thread (`blas_threads_for`): starting threads costs more than they save.
Measured at V = 104, m = 400 on 2 cores: 0.13 s with one thread and 2.3 s with two while another process was running;
the two are equal on an idle machine.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from scipy import sparse

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]
Arrays = dict[str, NDArray[Any]]
"""Arrays by name, as safetensors holds them."""
Matrix: TypeAlias = "ArrayLike | sparse.sparray | sparse.spmatrix"
"""A matrix that a user gives: a NumPy array, nested lists, or any scipy sparse format."""

THREADED_WORK = 5e8
"""Multiplications of one Gram product (V^2 m) from which more than one thread pays."""


@dataclass(frozen=True, eq=False)
class SparseProduct:
    """The matrix ``left right``, kept as two sparse factors because it is not sparse itself."""

    left: sparse.csc_array
    right: sparse.csc_array

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.left.shape[0], self.right.shape[1]

    @property
    def T(self) -> SparseProduct:
        """The transposed matrix."""
        return SparseProduct(self.right.T, self.left.T)

    def __matmul__(self, other: Float) -> Float:
        return np.asarray(self.left @ (self.right @ other))

    def toarray(self) -> Float:
        """All entries."""
        return np.asarray((self.left @ self.right).toarray())


def column_norms(matrix: sparse.csc_array | SparseProduct) -> Float:
    """Norms of the columns; of a product with a right factor that is not negative, upper bounds."""
    if isinstance(matrix, SparseProduct):
        return np.asarray(column_norms(matrix.left) @ matrix.right)
    return np.asarray(np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=0))).ravel())


def dense(matrix: Matrix) -> Float:
    """A float64 array from an array or a scipy sparse matrix."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)


def log_sum_exp(x: Float, axis: int = 0) -> Float:
    """``log sum exp(x)`` along an axis; ``-inf`` where every entry is ``-inf`` (an empty sum)."""
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.sum(np.exp(x - top), axis=axis))
    return np.asarray(total + np.squeeze(top, axis=axis))


def centre_columns(x: Float) -> Float:
    """Each column minus its mean: one representative of all logits that have the same softmax."""
    return np.asarray(x - x.mean(axis=0, keepdims=True))


def unit_columns(columns: Float) -> Float:
    """Columns divided by their norms; a column of zeros stays 0."""
    norms = np.linalg.norm(columns, axis=0)
    return np.asarray(columns / np.where(norms > 0, norms, 1.0))


def cosines(columns: Float) -> Float:
    """Cosines between the columns of a matrix; 0 where a column is 0."""
    directions = unit_columns(columns)
    return np.asarray(np.clip(directions.T @ directions, -1.0, 1.0))


def x_log_x(x: Float) -> Float:
    """``x log x`` with the limit 0 at 0."""
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))


def excess_exponential(u: Float) -> Float:
    """``exp(u) - 1 - u >= 0``, without the cancellation at small u.

    A Kullback-Leibler divergence is ``sum p (exp(u) - 1 - u)`` with ``u = log q - log p``. Every term is positive, so
    a divergence of 1e-30 is computed to full relative precision.
    """
    small = np.abs(u) < 1e-2
    v = np.where(small, u, 0.0)
    series = v * v * (0.5 + v * (1 / 6 + v * (1 / 24 + v * (1 / 120 + v * (1 / 720 + v / 5040)))))
    return np.where(small, series, np.expm1(u) - u)


def blas_threads_for(rows: int, columns: int) -> AbstractContextManager[object]:
    """A context in which BLAS uses one thread, where the products of a rows x columns matrix are small."""
    work = float(rows) * columns * min(rows, columns)
    controller = _controller()
    if work >= THREADED_WORK or controller is None:
        return nullcontext()
    limited: AbstractContextManager[object] = controller.limit(limits=1, user_api="blas")
    return limited


@cache
def _controller() -> Any:
    """The loaded BLAS libraries, found once; None without threadpoolctl, which only costs time."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
