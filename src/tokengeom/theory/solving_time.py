"""Estimates of predictions: operations of a solver times their speed, which is measured on the device that solves.

One iteration on a merged problem of V' x m' entries, with ``k <= n`` its sides, is counted as

``products k^2 n + squares k^3``   multiplications of matrix products
``eigen k^3``                      for eigendecompositions
``passes k n``                     for passes over arrays

The counts follow from the code and were compared with measured iterations. The number of iterations depends on the
data: the range given here is that of natural text, built-in stories and random supports.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.core.numerics import blas_threads_for
from tokengeom.core.resources import LONG, Estimate
from tokengeom.problems.columns import DEVICE_SHARE, STATE_BYTES, Layout
from tokengeom.solvers.splitting import SMALLEST_SIDE

if TYPE_CHECKING:
    from tokengeom.problems.backend import Array, Backend
    from tokengeom.problems.nuclear_svm import NuclearSVM
    from tokengeom.solvers.nuclear_admm import NuclearADMM

TIMED = 0.05
"""Seconds of one measurement of a speed."""
FIRST_SIDE, LARGEST_SIDE = 256, 4096
"""Sides of the matrices with which speeds are measured: doubled until a measurement takes long enough."""
LARGEST_ARRAY = 2**22
"""Entries of the largest array with which the speed of a pass is measured. Arrays of 32 MiB and more get new memory
from the system for every result, so larger ones take the same time per entry."""


@dataclass(frozen=True)
class Speed:
    """Seconds per multiplication in a product, per k^3 of an eigendecomposition, and per entry of a pass."""

    product: float
    eigen: float
    entry: float


@dataclass(frozen=True)
class Work:
    """Operations of one iteration, in the units of this module, and the range of the number of iterations.

    ``digits``
        The proven gap, in decimal digits, at which iterations were counted: their number grows in proportion.
    ``arrays``, ``square_arrays``
        V' x m' arrays and k x k arrays of float64 that are held at the peak.
    """

    products: float
    squares: float
    eigen: float
    passes: float
    iterations: tuple[int, int]
    digits: float
    arrays: int
    square_arrays: int

    def seconds(self, rows: int, columns: int, speed: Speed) -> float:
        """Expected seconds of one iteration."""
        k, n = sorted((rows, columns))
        multiplications = self.products * k**2 * n + (self.squares * k**3 if k >= SMALLEST_SIDE else 0.0)
        eigen = self.eigen if k >= SMALLEST_SIDE else max(self.eigen, 1.0)
        return multiplications * speed.product + eigen * k**3 * speed.eigen + self.passes * k * n * speed.entry

    def needed(self, rows: int, columns: int, backend: Backend) -> list[tuple[int, str | None]]:
        """Bytes that one process holds at the peak, on the device and, where that is too small, on the machine."""
        places = memory_needed(backend, rows, columns, self.arrays)
        return [(places[0][0] + 8 * self.square_arrays * min(rows, columns) ** 2, places[0][1]), *places[1:]]

    def estimate(
        self,
        what: str,
        shape: tuple[int, int],
        backend: Backend,
        *,
        tolerance: float,
        most: int,
        solves: int = 1,
        only_if_long: bool = False,
    ) -> Estimate:
        """Time and memory of ``solves`` solves with at most ``most`` iterations each.

        With ``only_if_long``, work that is short even on a slow machine is not worth a measurement, and is estimated
        for such a machine.
        """
        rows, columns = shape
        digits = max(-math.log10(tolerance), 0.5) / self.digits
        fewest, highest = (solves * min(round(count * digits), most) for count in self.iterations)
        short = only_if_long and highest * self.seconds(rows, columns, SLOW) < LONG
        speed = SLOW if short else measure_speed(backend, rows, columns)
        each = self.seconds(rows, columns, speed) / backend.world
        return Estimate(what, fewest * each, highest * each, sum(size for size, _ in self.needed(*shape, backend)))


SLOW = Speed(product=2e-10, eigen=1.5e-9, entry=2e-9)
"""A slow machine: 10 billion operations per second in products."""
LIMIT = Work(1.5, 3.5, 0.2, 75.0, iterations=(45, 150), digits=6.0, arrays=32, square_arrays=10)
"""NTP-SVM*, the prediction in the limit."""
NUCLEAR_AT_LOSS = Work(1.5, 3.5, 0.6, 320.0, iterations=(45, 90), digits=4.0, arrays=46, square_arrays=10)
"""The search for the point of the path at a loss, in the nuclear norm: iterations are those of all its solves."""
NUCLEAR_FITTED = Work(0.05, 0.02, 0.012, 12.0, iterations=(170, 350), digits=3.0, arrays=46, square_arrays=10)
"""The same at a high loss on large problems, to which factors of low rank are fitted in single precision."""
GAMMA2_AT_LOSS = Work(2.7, 0.0, 1.4, 300.0, iterations=(45, 90), digits=4.0, arrays=50, square_arrays=10)
"""The same in the gamma_2 norm at `GAMMA2_SHARE` of the loss gap of a uniform guess, by splitting."""
GAMMA2_SHARE, GAMMA2_PER_DECADE = 0.01, 0.2
"""Where these were counted, and by how much they grow per factor of 10 in the loss gap. The size hardly matters."""
GAMMA2_FITTED = replace(GAMMA2_AT_LOSS, products=1.7, eigen=0.85, passes=190.0, iterations=(50, 150))
"""The same at a high loss, to which factors are fitted: many iterations are steps of the fit, which cost less."""


def work_at_loss(norm: str, share: float, *, fitted: bool) -> Work:
    """The work of a prediction at a loss gap, a share of that of a uniform guess, to which factors are fitted or not.

    In the gamma_2 norm it grows where a low loss falls.
    """
    if norm == "nuclear":
        return NUCLEAR_FITTED if fitted else NUCLEAR_AT_LOSS
    if fitted:
        return GAMMA2_FITTED
    growth = 1.0 + GAMMA2_PER_DECADE * max(math.log10(GAMMA2_SHARE / max(share, 1e-300)), 0.0)
    fewest, most = GAMMA2_AT_LOSS.iterations
    return replace(GAMMA2_AT_LOSS, iterations=(round(fewest * growth), round(most * growth)))


def estimate_limit(
    problem: NuclearSVM, solver: NuclearADMM, random_starts: int, *, only_if_long: bool = False
) -> Estimate:
    """Time and memory of the prediction in the limit, with its solves from random starts."""
    rows, columns = problem.shape
    return LIMIT.estimate(
        f"L_mm of {rows:,} x {columns:,} (merged)",
        problem.shape,
        problem.backend,
        tolerance=solver.tolerance,
        most=solver.max_iterations,
        solves=1 + random_starts,
        only_if_long=only_if_long,
    )


@cache
def measure_speed(backend: Backend, rows: int, columns: int) -> Speed:
    """Speeds of a device at the sizes of a problem (at least 1 x 1), in about a second; measured once."""
    rows, columns = max(rows, 1), max(columns, 1)
    side = min(rows, columns, LARGEST_SIDE)

    def multiply(size: int) -> Callable[[], object]:
        A, B = _symmetric(backend, size), _symmetric(backend, size)
        return lambda: A @ B

    def decompose(size: int) -> Callable[[], object]:
        A = _symmetric(backend, size)
        return lambda: backend.xp.linalg.eigh(A)

    with blas_threads_for(rows, columns) if backend.device is None else nullcontext():
        product, eigen = _per_cube(backend, side, multiply), _per_cube(backend, side, decompose)
        entry = _seconds_per_entry(backend, min(rows * columns, LARGEST_ARRAY))
    return Speed(product, eigen, entry)


def _seconds_per_entry(backend: Backend, size: int) -> float:
    """Seconds per entry of one pass over an array, measured over four passes."""
    x = backend.full((size,), -0.5)
    # As in a solver, where many arrays are alive: one stays above those that are freed, so their memory is used again.
    above = [1.0 * x for _ in range(6)][-1]

    def four_passes() -> object:
        y = backend.at_least(x, -0.25)
        return backend.xp.where(y < 0.0, y * x, above)

    return _seconds(backend, four_passes) / (4.0 * size)


def _symmetric(backend: Backend, size: int) -> Array:
    A = np.random.default_rng(0).standard_normal((size, size))
    return backend.asarray(A + A.T)


def _per_cube(backend: Backend, largest: int, prepare: Callable[[int], Callable[[], object]]) -> float:
    """Seconds per cube of the side, at the smallest side that takes long enough."""
    size = min(FIRST_SIDE, largest)
    while True:
        seconds = _seconds(backend, prepare(size))
        if seconds >= TIMED or size == largest:
            return seconds / float(size) ** 3
        size = min(2 * size, largest)


def _seconds(backend: Backend, run: Callable[[], object]) -> float:
    """Mean seconds of a call, over as many calls as take `TIMED` together, after one that loads what is needed."""
    run()
    backend.synchronise()
    calls, began = 0, time.perf_counter()
    while True:
        run()
        backend.synchronise()
        calls, spent = calls + 1, time.perf_counter() - began
        if spent >= TIMED:
            return spent / calls


def memory_needed(backend: Backend, rows: int, columns: int, arrays: float) -> list[tuple[int, str | None]]:
    """Bytes that each process needs for a solve, and where: on a device, or (None) in the machine's own memory.

    ``arrays`` whole matrices are alive at the peak of a solve in one block.
    """
    entries = rows * -(-columns // backend.world)
    if not Layout.of(backend, rows, columns).several:
        return [(int(8 * arrays * entries), backend.device)]
    block, state = int(8 * arrays * backend.block_entries), STATE_BYTES * entries
    if state <= DEVICE_SHARE * backend.free_on_device():
        return [(block + state, backend.device)]
    return [(block, backend.device), (state, None)]
