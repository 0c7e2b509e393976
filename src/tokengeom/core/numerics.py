"""Types of arrays, and arithmetic that every package shares: sums of exponentials, centring, cosines, the jackknife.

Small matrices are multiplied with one BLAS thread (`blas_threads_for`): starting threads costs more than they save.
Measured at V = 104, m = 400 on 2 cores: 0.13 s with one thread and 2.3 s with two while another process was running;
the two are equal on an idle machine.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokengeom.core.errors import InputError

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
MOST_BLOCKS = 200
"""Units up to which each is left out alone; more are put into this many blocks at random."""
BLOCK_PAIRS = 100
"""Pairs of blocks that are left out together, to correct the jackknife, by at most a quarter of its variance."""
FEWEST_UNITS = 5
"""Smallest number of units, and of trainings, that are left out in turn."""
NEAR_ONE = 1.0 - 1e-12
SAME_COSINE = 9
"""Decimals to which cosines are compared: beyond them the order would be that of rounding errors."""
COSINES_AT_ONCE = 4_000_000
"""Cosines in one block of pairs: 32 MB."""


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


def seen_tokens(P: sparse.csc_array) -> Int:
    """Rows of a sparse matrix that have entries, in order: with probabilities, tokens that follow some context."""
    return np.unique(P.indices).astype(np.int64)


def refuse_dropped_parts(given: Any) -> None:
    """Refuse masks and imaginary parts, which NumPy would drop, and times and truth values, which it would count."""
    if np.ma.is_masked(given):
        masked = int(np.sum(np.ma.getmaskarray(given)))
        raise InputError(
            f"numbers must not be masked; {masked:,} of {np.size(given):,} are. Fill them, such as with "
            "array.filled(0), or leave their rows or columns out."
        )
    if np.iscomplexobj(given):
        raise InputError("numbers must be real; these are complex. Pass array.real if the imaginary parts are 0.")
    kind = {"m": "times", "M": "times", "b": "truth values"}.get(getattr(getattr(given, "dtype", None), "kind", ""))
    if kind:
        raise InputError(f"numbers must be real; these are {kind}. Pass array.astype(float) if that is what is meant.")


def dense(matrix: Matrix) -> Float:
    """A float64 array from an array or a scipy sparse matrix."""
    refuse_dropped_parts(matrix)
    plain = np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)
    refuse_dropped_parts(plain)
    return np.asarray(plain, dtype=np.float64)


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


def reliability_of_mean(x: Float) -> tuple[float, float]:
    """Reliability of the mean of R rows, R x n, and the root mean square of its standard error; NaN for one row.

    The reliability is the correlation with the mean of R other rows, ``R rho / (1 + (R - 1) rho)`` [spearman1910,
    brown1910], where rho is the mean correlation of two rows; 0 where that is negative, and NaN where n < 2.
    """
    R, n = x.shape
    if R < 2 or n < 2:
        return float("nan"), float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = np.maximum(np.atleast_2d(np.corrcoef(x))[np.triu_indices(R, 1)].mean(), 0.0)
    return float(R * rho / (1 + (R - 1) * rho)), float(np.sqrt(x.var(axis=0, ddof=1).mean() / R))


def x_log_x(x: Float) -> Float:
    """``x log x`` with the limit 0 at 0."""
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))


def excess_exponential(u: Any, xp: Any = np) -> Any:
    """``exp(u) - 1 - u >= 0``, without the cancellation at small u; for arrays of NumPy, or of PyTorch (``xp``).

    A Kullback-Leibler divergence is ``sum p (exp(u) - 1 - u)`` with ``u = log q - log p``. Every term is positive, so
    a divergence of 1e-30 is computed to full relative precision.
    """
    small = abs(u) < 1e-2
    v = xp.where(small, u, 0.0)
    series = v * v * (0.5 + v * (1 / 6 + v * (1 / 24 + v * (1 / 120 + v * (1 / 720 + v / 5040)))))
    return xp.where(small, series, xp.expm1(u) - u)


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


def leave_out_blocks(units: Int, rng: np.random.Generator) -> Float:
    """Selections of items (b x size), each without one block: a unit, or some of very many units."""
    count = int(units.max(initial=-1)) + 1
    blocks = min(count, MOST_BLOCKS)
    block = np.arange(count) if count == blocks else rng.permutation(np.arange(count) % blocks)
    return np.asarray(block[units][None, :] != np.arange(blocks)[:, None], dtype=np.float64)


def block_pairs(blocks: int, rng: np.random.Generator) -> Int:
    """Pairs of different blocks, drawn at random, p x 2; none where there are too few blocks for an interval."""
    if blocks < FEWEST_UNITS:
        return np.zeros((0, 2), dtype=np.int64)
    first = rng.integers(0, blocks, BLOCK_PAIRS)
    return np.stack([first, (first + rng.integers(1, blocks, BLOCK_PAIRS)) % blocks], axis=1)


def jackknife_interval(
    value: float,
    left_out: Float | None,
    pairs: Int | None = None,
    both: Float | None = None,
    *,
    bounded: bool,
    trainings: Float | None = None,
) -> tuple[float, float]:
    """95% interval of a number from its values without each block.

    The interval is symmetric on the scale of ``atanh`` for numbers in [-1, 1], and always contains the value:

    ``atanh(value) +- t se``,   ``se^2 = (B - 1)/B sum_b (z_b - mean z)^2 - c / 2``
    ``c = (B - 1)^2 / (2 B (B - 2)) mean Q_bc^2``,   ``Q_bc = B z - (B - 1) (z_b + z_c) + (B - 2) z_bc``

    where ``z`` is ``atanh`` of the number, ``z_b`` of the number without block b of the B blocks of units, ``z_bc``
    without b and c, and t the quantile of Student's distribution with B - 1 degrees of freedom. The jackknife counts
    twice the part of the variance that comes from pairs of blocks. Where there is no agreement, that part is the whole
    variance. c estimates it from pairs of blocks drawn at random [efron1981]. Without c, intervals over 20 groups cover
    93 to 99% in simulations, and with all of it 88 to 95%, because standard errors from few blocks are themselves
    uncertain; so half of it is used. For a corrected number, which can exceed 1, z is the number itself, and the whole
    ratio is computed again without each block. From five trainings on, they are left out in turn as well, and both
    variances are added.

    ``pairs``, ``both``  Pairs of blocks (p x 2), and the number without both of them (p), for the correction.
    ``bounded``          Whether the number lies in [-1, 1].
    ``trainings``        The number without each training, where they are left out in turn too.
    """
    from scipy.special import stdtrit

    if left_out is None or not np.isfinite(value):
        return float("nan"), float("nan")
    defined = np.isfinite(left_out)
    known = left_out[defined]
    # Leaving out a block can make a number undefined; too many of them make the interval so.
    if known.size < max(FEWEST_UNITS, left_out.size / 2):
        return float("nan"), float("nan")
    on_line = to_line if bounded else np.asarray
    z, centre, B = on_line(known), float(on_line(np.array(value))), known.size
    variance = (B - 1) / B * float(np.sum((z - z.mean()) ** 2))
    if pairs is not None and both is not None and defined.all() and np.isfinite(both).all() and both.size:
        Q = B * centre - (B - 1) * (z[pairs[:, 0]] + z[pairs[:, 1]]) + (B - 2) * on_line(both)
        counted_twice = (B - 1) ** 2 / (2 * B * (B - 2)) * float(np.mean(Q**2))
        variance -= 0.5 * min(counted_twice, 0.5 * variance)
    reach = float(stdtrit(B - 1, 0.975)) * math.sqrt(variance)
    if trainings is not None and np.isfinite(trainings).all():
        z, k = on_line(trainings), trainings.size
        spread = math.sqrt((k - 1) / k * float(np.sum((z - z.mean()) ** 2)))
        reach = math.hypot(reach, float(stdtrit(k - 1, 0.975)) * spread)
    ends = centre - reach, centre + reach
    low, high = (math.tanh(end) for end in ends) if bounded else ends
    return min(low, value), max(high, value)


def to_line(x: Float) -> Float:
    """Numbers in [-1, 1] on the scale of ``atanh``; 1 itself is finite there."""
    return np.asarray(np.arctanh(np.clip(x, -NEAR_ONE, NEAR_ONE)))


def rounded_percent(share: float, decimals: int = 0) -> str:
    """A share of one as a percentage with so many decimals, which is 0 or 100 only where the share is exactly that."""
    text, step = f"{share:.{decimals}%}", 10.0**-decimals
    if 0.0 < share < 1.0 and float(text[:-1]) in (0.0, 100.0):
        return f"less than {step:.{decimals}f}%" if share < 0.5 else f"more than {100 - step:.{decimals}f}%"
    return text


def closest_pairs(unit: Float, label: NDArray[np.integer[Any]], frequency: Float, k: int) -> tuple[Float, Int]:
    """The k pairs of unit rows with the largest cosines among those with different labels: cosines, and rows (k x 2).

    Of equal cosines the pair whose rarer row is more frequent comes first. There is never a matrix of all cosines.
    """
    # Cosine, frequency of the rarer row, and both rows of the best pairs so far.
    best = np.empty((4, 0))
    step = max(1, COSINES_AT_ONCE // max(len(unit), 1))
    for begin in range(0, len(unit), step):
        value = np.round(unit[begin : begin + step] @ unit[begin:].T, SAME_COSINE)
        after = label[begin:]
        value[(after[: len(value), None] == after) | np.tri(*value.shape, dtype=np.bool_)] = -np.inf
        least = np.partition(value, value.size - k, axis=None)[-k] if value.size > k else -np.inf
        i, j = (one + begin for one in np.nonzero((value >= least) & (value > -np.inf)))
        found = np.array([value[i - begin, j - begin], np.minimum(frequency[i], frequency[j]), i, j])
        best = np.concatenate((best, found), axis=1)
        best = best[:, np.lexsort((best[3], best[2], -best[1], -best[0]))[:k]]
    return np.minimum(best[0], 1.0), best[2:].T.astype(np.int64)
