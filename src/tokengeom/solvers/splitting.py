"""Accelerated ADMM for ``min f(X) + ||X||_*``: the loop that every nuclear-norm solver runs.

Over-relaxed Douglas-Rachford splitting, with ``||.||_*`` handled by the singular-value threshold::

    Z = prox_{f/rho}(w),    X = prox_{||.||_*/rho}(2Z - w),    w <- w + r (X - Z)

where

``w``      state of the iteration, any matrix; ``rho`` the penalty; ``r`` in (0, 2) the relaxation
``Z``      minimises f near w; at a fixed point Z = X is optimal, and ``rho (Z - w)`` is a subgradient of ``||.||_*``

This is ADMM written in one variable, so acceleration (``anderson``), restarts and a change of rho act on one matrix.
At every second check rho moves towards equal primal and dual residuals.

The singular-value threshold needs no SVD of a wide or tall matrix, only the eigenvectors of its smaller Gram matrix:
``prox_{tau ||.||_*}(M) = Q diag((1 - tau/s)_+) Q^T M`` with ``M M^T = Q diag(s^2) Q^T``. Singular values below 1e-8
of the largest are rounding, but the threshold removes them.

Matrices are in blocks of columns (``problems.columns``). An iteration goes through the blocks three times: Z of each
block and the Gram matrix; the residual of each block, with its inner products; and the new state.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar, cast, final

from tokengeom.core.errors import ProblemError
from tokengeom.problems.backend import Array, Backend, Blocks
from tokengeom.problems.base import Certificate, Solution
from tokengeom.problems.columns import Columns, Computed, kept, mapped
from tokengeom.solvers.anderson import MEMORY, AndersonMemory

X = TypeVar("X")
Y = TypeVar("Y")
RELAXATION = 1.6
LARGEST_RHO_CHANGE = 2.5
SMALLEST_RHO_CHANGE = 2.0
STOP = 0.99
"""Share of the tolerance at which the estimated gap ends the loop, so that the certificate is within the tolerance."""
LONGEST_WAIT = 3
"""Largest number of multiples of `check_every` between two checks."""
SMALLEST_SIDE = 256
"""Smaller side of a matrix below which an eigendecomposition costs less than the products that can replace it."""
LARGEST_EXPANSION_ERROR = 1e-2
"""Relative error of the threshold above which it is computed exactly."""
EXPANSION_SHARE = 0.3
"""Error of an expanded threshold as a share of the relative residual of the iteration."""

Observer = Callable[[int, float, float], None]
"""Called at each check with iterations, seconds and the estimated relative gap."""


@dataclass(frozen=True)
class Thresholded:
    """A matrix after the singular-value threshold, its rank and nuclear norm, and the spectral norm before.

    ``X`` is an array, or blocks that are computed when they are used, as the matrix was given.
    """

    X: Array
    rank: int
    nuclear_norm: float
    spectral_norm: float


@final
class Threshold:
    """The singular-value threshold of matrices that change little from one call to the next.

    ``prox_{tau ||.||_*}(M) = h(M M^T) M`` with ``h(x) = (1 - tau / sqrt x)_+``. An eigendecomposition costs as much as
    many products, so the eigenvectors Q of an earlier call are kept. With ``A = Q^T M M^T Q = D + E``, D its diagonal,

    ``h(M M^T) = Q (h(D) + K o E) Q^T + O(E^2)``,   ``K_ij = (h(d_i) - h(d_j)) / (d_i - d_j)``

    (Daleckii and Krein), where ``o`` is the entrywise product. This is used while E, relative to D, is small enough.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.decompositions = 0
        self._Q: Array | None = None

    def __call__(self, M: Array | Blocks, tau: float, accuracy: float = 0.0) -> Thresholded:
        """M with every singular value lowered by tau, to within a relative error of about ``accuracy``."""
        if not self.backend.by_rows(M):
            turned = self(mapped(lambda block: block.T, M), tau, accuracy)
            X = mapped(lambda block: block.T, turned.X)
            return Thresholded(X, turned.rank, turned.nuclear_norm, turned.spectral_norm)
        G = self.backend.gram(M)
        expanded = self._from_last(G, tau, accuracy) if accuracy > 0.0 and G.shape[0] >= SMALLEST_SIDE else None
        if expanded is None:
            return self._exact(G, M, tau)
        operator, high, largest = expanded
        X = mapped(lambda block: operator @ block, M)
        return Thresholded(X, int(high.shape[0]), float((high - tau).sum()), largest)

    def operator(self, G: Array, tau: float, accuracy: float = 0.0) -> Array:
        """``h(G)`` of a Gram matrix, to within a relative error of about ``accuracy``."""
        expanded = self._from_last(G, tau, accuracy) if accuracy > 0.0 and G.shape[0] >= SMALLEST_SIDE else None
        if expanded is not None:
            return expanded[0]
        eigenvalues, Q = self.backend.eigh(G)
        self._Q, self.decompositions = Q, self.decompositions + 1
        s = self.backend.at_least(eigenvalues, tau**2) ** 0.5
        return (Q * (1.0 - tau / s)) @ Q.T

    def _exact(self, G: Array, M: Array | Blocks, tau: float) -> Thresholded:
        eigenvalues, Q = self.backend.eigh(G)
        self._Q, self.decompositions = Q, self.decompositions + 1
        s = self.backend.at_least(eigenvalues, 0.0) ** 0.5
        rank = int((s > tau).sum())
        kept = s[s.shape[0] - rank :]
        Q = Q[:, Q.shape[1] - rank :]
        shrunk = Q * (1.0 - tau / kept)
        # Two thin products cost 4 V r m, the V x V operator and one product 2 V^2 (r + m): use the cheaper.
        if 2 * rank > G.shape[0]:
            operator = shrunk @ Q.T
            X = mapped(lambda block: operator @ block, M)
        else:
            X = mapped(lambda block: shrunk @ (Q.T @ block), M)
        return Thresholded(X, rank, float((kept - tau).sum()), float(s[-1]))

    def _from_last(self, G: Array, tau: float, accuracy: float) -> tuple[Array, Array, float] | None:
        """``h(G)`` by the expansion about the last eigenvectors, with the singular values above tau and the largest.

        None where they are too far away.
        """
        xp, backend, Q = self.backend.xp, self.backend, self._Q
        if Q is None or Q.shape != G.shape:
            return None
        E = Q.T @ G @ Q
        s = backend.at_least(1.0 * xp.diagonal(E), 0.0) ** 0.5
        above = s > tau
        # Relative to the singular values, or to tau where they are smaller and are removed.
        size = backend.at_least(s, tau)
        E /= size[:, None]
        E /= size[None, :]
        backend.set_diagonal(E, backend.full((E.shape[0],), 0.0))
        error = float(backend.agree(float(xp.linalg.norm(E)) / float(s.shape[0]) ** 0.5))
        if not error**2 <= min(accuracy, LARGEST_EXPANSION_ERROR):
            return None
        high, low, upper, lower = s[above], s[~above], Q[:, above], Q[:, ~above]
        h = 1.0 - tau / high
        # Divided differences of h, without cancellation: both above tau, and one above and one below.
        middle = E[above][:, above] * (tau / (high[:, None] + high[None, :]))
        backend.set_diagonal(middle, h)
        across = (h * high)[:, None] * tau / (high[:, None] ** 2 - low[None, :] ** 2)
        coupled = upper @ (E[above][:, ~above] * across) @ lower.T
        return upper @ middle @ upper.T + coupled + coupled.T, high, float(s.max())


@dataclass(frozen=True)
class Iterate:
    """One iteration: state ``w`` and penalty ``rho`` before it, and both halves of the step."""

    w: Blocks
    rho: float
    Z: Blocks
    X: Blocks
    nuclear_norm: float


@dataclass(frozen=True)
class Bounds:
    """A value of the objective with the answer that has it, and a lower bound with the dual that proves it.

    Answer and dual are blocks, or dataclasses with blocks in them.
    """

    value: float
    answer: Any
    bound: float
    dual: Any


class AbstractTerm(ABC):
    """The convex function f of ``min f(X) + ||X||_*``, as the loop needs it.

    ``exact_at_checks``
        Whether `bounds` needs the threshold exactly, and not only to the accuracy of the iteration.
    """

    exact_at_checks: ClassVar[bool] = True

    @abstractmethod
    def prox(self, k: int, w: Array, rho: float) -> Array:
        """``argmin_Z f(Z) + rho/2 ||Z - w||^2`` of block k."""

    @abstractmethod
    def bounds(self, at: Iterate) -> Bounds:
        """What an iterate proves."""


@dataclass(frozen=True)
class AbstractSplitting:
    """Settings of the loop, and the loop.

    ``tolerance``
        Proven relative gap to stop at.
    ``memory``
        Steps that Anderson acceleration remembers, two arrays each; 0 is plain ADMM.
    ``check_every``
        Smallest number of iterations between two computations of the gap, each of which costs one iteration or two.
        While the gap is far above the tolerance it is computed at every second or third multiple only.
    ``largest_gap``
        Proven gap up to which a solve has converged, in tolerances.
    """

    largest_gap: ClassVar[float] = 1.01
    tolerance: float = 1e-6
    max_iterations: int = 5000
    memory: int = MEMORY
    relaxation: float = RELAXATION
    check_every: int = 10
    time_limit: float = float("inf")

    def __post_init__(self) -> None:
        if not self.tolerance > 0 or not 0 < self.relaxation < 2 or self.memory < 0 or self.check_every < 1:
            raise ProblemError(
                "A solver needs tolerance > 0, relaxation in (0, 2), memory >= 0 and check_every >= 1; got "
                f"tolerance={self.tolerance}, relaxation={self.relaxation}, memory={self.memory}, "
                f"check_every={self.check_every}. Leave them out to use the measured defaults."
            )
        if self.max_iterations < 1:
            raise ProblemError(f"A solver needs max_iterations >= 1; got max_iterations={self.max_iterations}.")

    def iterate(self, term: AbstractTerm, w: Columns, rho: float, observer: Observer | None = None) -> SplittingRun:
        """Iterate from state ``w`` until the estimated gap is small enough, or iterations or seconds run out."""
        run = SplittingRun(term, self, w, rho)
        for checked in self.steps(run):
            if checked and observer is not None:
                observer(run.iterations, run.seconds, run.gap)
        return run

    def steps(self, run: AbstractSolve) -> Iterator[bool]:
        """The loop of every solve: after each iteration, whether the gap was computed."""
        while not run.gap <= run.stop * self.tolerance and run.iterations < self.max_iterations:
            yield run.step()
            if math.isfinite(self.time_limit) and float(run.backend.agree(run.seconds)) > self.time_limit:
                return

    def _status(self, iterations: int, gap: float, converged: bool) -> str:
        """How a solve ended, as a sentence."""
        if converged:
            # The last digit shown is rounded up: a gap just above the tolerance is not stated as the tolerance.
            return (
                f"proven gap within {self.tolerance:.0e}" if gap <= self.tolerance else f"proven gap {1.005 * gap:.2e}"
            )
        return (
            f"stopped after {iterations} iterations with a proven gap of {gap:.1e}, above "
            f"{self.tolerance:.0e}: raise max_iterations or time_limit, or accept this gap"
        )

    def solution(
        self, x: X, dual: Y, certificate: Certificate, iterations: int, began: float, backend: Backend
    ) -> Solution[X, Y]:
        """A certified answer with its status, and the seconds since ``began``."""
        backend.synchronise()
        gap, seconds = certificate.relative_gap, time.perf_counter() - began
        converged = gap <= self.largest_gap * self.tolerance
        return Solution(x, dual, certificate, self._status(iterations, gap, converged), iterations, seconds, converged)


class AbstractSolve(ABC):
    """State of one solve, and the best value and the best lower bound so far with what attains them.

    ``stop``
        Share of the tolerance at which the estimated gap ends the loop.
    """

    stop: ClassVar[float] = STOP

    def __init__(self, settings: AbstractSplitting, w: Columns, rho: float) -> None:
        self.settings, self.layout, self.backend = settings, w.layout, w.layout.backend
        self.w, self.rho, self.Z = w, rho, self.layout.kept(w)
        self.memory = AndersonMemory(self.backend, settings.memory, self.layout)
        self.best = Bounds(math.inf, None, -math.inf, None)
        self.iterations = 0
        self._wait, self._next_check = 1, max(settings.check_every, 2)
        self._began = time.perf_counter()

    @abstractmethod
    def step(self) -> bool:
        """One iteration; returns whether the gap was computed."""

    @property
    def seconds(self) -> float:
        """Seconds since the solve began."""
        return time.perf_counter() - self._began

    @property
    def gap(self) -> float:
        """Estimated gap relative to the best value (`certify` proves it); infinite before the first check."""
        value = self.best.value
        return (value - self.best.bound) / max(value, 1e-300) if math.isfinite(value) else math.inf

    def keep_best(self, new: Bounds) -> None:
        """Take over a value or a bound that is better than the best so far."""
        best = self.best
        if new.value < best.value:
            best = replace(best, value=new.value, answer=None)
            best = replace(best, answer=kept(new.answer))
        if new.bound > best.bound:
            best = replace(best, bound=new.bound, dual=None)
            best = replace(best, dual=kept(new.dual))
        self.best = best

    def is_check(self, iteration: int) -> bool:
        """Whether the gap is computed in an iteration."""
        return iteration in (1, self._next_check, self.settings.max_iterations)

    def check(self, new: Bounds) -> None:
        """Take over what an iterate proves, and plan the next check."""
        before = self.gap
        self.keep_best(new)
        if self.iterations > 1:
            self._wait = self._next_wait(before)
            self._next_check = self.iterations + self.settings.check_every * self._wait

    def _next_wait(self, before: float) -> int:
        """Multiples of `check_every` until the next check: half of those that the last fall of the gap predicts."""
        if not 0.0 < self.gap < before < math.inf:
            return 1
        left = self._wait * math.log(self.gap / self.settings.tolerance) / math.log(before / self.gap)
        return min(max(int(left / 2.0), 1), LONGEST_WAIT)

    def find_Z(self, prox: Callable[[int, Array, float], Array], measured: bool) -> float:
        """Compute Z of every block; where ``measured``, the norm of its change since the last iteration."""
        moved = 0.0
        for k in range(len(self.layout)):
            new = prox(k, self.w[k], self.rho)
            if measured:
                moved += float(self.backend.xp.linalg.norm(new - self.Z[k])) ** 2
            self.Z[k] = new
        return math.sqrt(float(self.backend.total(moved)))

    @property
    def reflected(self) -> Blocks:
        """``2 Z - w``, whose threshold is the other half of a step."""
        return Computed(self.layout, lambda k: 2.0 * self.Z[k] - self.w[k])

    def dual(self) -> Columns:
        """``Y = rho (w - Z)``, kept."""
        return self.layout.kept(Computed(self.layout, lambda k: self.rho * (self.w[k] - self.Z[k])))

    def rebalance(self, apart: float, moved: float, forgiven: float = 1.0) -> bool:
        """Change rho when the residuals are out of balance, keeping Z and the dual; returns whether it changed.

        ``apart``, ``moved``
            Norms of X - Z, and of the change of Z in the last iteration.
        ``forgiven``
            How many times larger the dual residual may be.
        """
        dual = Computed(self.layout, lambda k: self.w[k] - self.Z[k])
        norm = self.backend.norm
        primal, residual = apart / max(norm(self.Z), 1e-300), moved / max(norm(dual), 1e-300)
        rho = rebalanced(self.rho, primal, min(residual, max(primal, residual / forgiven)))
        if rho == self.rho:
            return False
        for k in range(len(self.layout)):
            Z = self.Z[k]
            self.w[k] = Z + (self.w[k] - Z) * (self.rho / rho)
        self.rho = rho
        self.memory.restart()
        return True


@final
class SplittingRun(AbstractSolve):
    """One solve of ``min f(X) + ||X||_*``."""

    def __init__(self, term: AbstractTerm, settings: AbstractSplitting, w: Columns, rho: float) -> None:
        super().__init__(settings, w, rho)
        self.term, self.threshold = term, Threshold(self.backend)
        self._residual = 0.0

    def step(self) -> bool:
        """One iteration; returns whether the gap was computed."""
        self.iterations += 1
        balanced = self.iterations % (2 * self.settings.check_every) == 0
        moved = self.find_Z(self.term.prox, balanced)
        checked = self.is_check(self.iterations)
        accuracy = 0.0 if checked and self.term.exact_at_checks else EXPANSION_SHARE * self._residual
        half = self.threshold(self.reflected, 1.0 / self.rho, accuracy)
        X = cast("Blocks", half.X)
        if checked:
            self.check(self.term.bounds(Iterate(self.w, self.rho, self.Z, X, half.nuclear_norm)))
        square = 0.0
        for k in range(len(self.layout)):
            F = X[k] - self.Z[k]
            square += float(self.backend.xp.linalg.norm(F)) ** 2
            self.memory.add(k, self.settings.relaxation * F)
        apart = float(self.backend.total(square)) ** 0.5
        if balanced and self.rebalance(apart, moved):
            return checked
        self._residual = apart / max(self.backend.norm(self.Z), 1e-300)
        self.memory.step(self.w)
        return checked


def rebalanced(rho: float, primal: float, dual: float) -> float:
    """Rho moved towards equal relative residuals: up when X and Z differ more than Z still moves."""
    factor = math.sqrt(primal / max(dual, 1e-300))
    if 1 / SMALLEST_RHO_CHANGE <= factor <= SMALLEST_RHO_CHANGE:
        return rho
    return rho * min(max(factor, 1 / LARGEST_RHO_CHANGE), LARGEST_RHO_CHANGE)
