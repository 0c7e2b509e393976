"""NTP-SVM* by accelerated ADMM between the singular-value threshold and the projection on the constraints.

``min ||X||_* + indicator_C(Z)  s.t.  X = Z``   stopped by the proven gap of ``NuclearSVM``

where C is the set of (scaled) logits with equal in-support entries and margins >= 1, V' x g.

Start: ``S~`` with dual ``U V^T`` and ``rho = 1 / rms(s)``, already optimal when the proxy is exact. Every
``Z`` is feasible and every ``-Y = rho (Z - w)`` satisfies all dual constraints but the spectral norm: one
nuclear and one spectral norm a check prove a gap; the best value and the best bound over all checks count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tokengeom.errors import ProblemError
from tokengeom.numerics import blas_threads_for
from tokengeom.problems.base import Solution
from tokengeom.solvers.splitting import MEMORY, RELAXATION, AndersonMemory, rebalanced, singular_value_threshold

if TYPE_CHECKING:
    from tokengeom.problems.arrays import Array
    from tokengeom.problems.nuclear_svm import NuclearSVM

Observer = Callable[[int, float, float], None]
"""Called at each check with iterations, seconds and the proven relative gap."""

FINE_TOLERANCE = 1e-7
"""Below it the nuclear norm must not come from a Gram matrix, which blurs small singular values by 1e-8."""


@final
@dataclass(frozen=True)
class NuclearADMM:
    """A configured solver: call it with a ``NuclearSVM``.

    ``tolerance``
        Proven relative gap to stop at.
    ``memory``
        Steps that Anderson acceleration remembers, two V' x g arrays each; 0 is plain ADMM.
    ``check_every``
        Iterations between two proofs; a proof costs about one iteration.
    """

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

    def __call__(
        self, problem: NuclearSVM, *, start: Array | None = None, observer: Observer | None = None
    ) -> Solution[Array, Array]:
        """Solve to merged logits and dual; ``start`` (scaled, V' x g) replaces the proxy."""
        began = time.perf_counter()
        if 0 in problem.shape:
            nothing = problem.arrays.full(problem.shape, 0.0)
            done = problem.certify(nothing, nothing)
            return Solution(nothing, nothing, done, "every support is the whole vocabulary: L_mm is 0", 0, 0.0)
        with blas_threads_for(*problem.shape) if problem.arrays.device is None else nullcontext():
            return self._solve(problem, start, observer, began)

    def _solve(
        self, problem: NuclearSVM, start: Array | None, observer: Observer | None, began: float
    ) -> Solution[Array, Array]:
        state = _Run(problem, self, start)
        while not state.proven and state.iterations < self.max_iterations:
            state.step()
            if state.checked and observer is not None:
                observer(state.iterations, time.perf_counter() - began, state.gap)
            if time.perf_counter() - began > self.time_limit:
                break
        L = problem.unscale(state.best_Z)
        certificate = problem.certify(L, state.best_G)
        converged = certificate.relative_gap <= self.tolerance
        problem.arrays.synchronise()
        return Solution(
            L, state.best_G, certificate, self._status(converged, state), state.iterations,
            time.perf_counter() - began, converged,
        )  # fmt: skip

    def _status(self, converged: bool, state: _Run) -> str:
        if converged:
            return f"proven gap within {self.tolerance:.0e}"
        return (
            f"stopped after {state.iterations} iterations with a proven gap of {state.gap:.1e}, above "
            f"{self.tolerance:.0e}; the answer is feasible. Raise max_iterations or time_limit, or accept it"
        )


class _Run:
    """State of one solve: ``w``, ``rho``, the acceleration's memory, and the best proven answers so far."""

    def __init__(self, problem: NuclearSVM, solver: NuclearADMM, start: Array | None) -> None:
        self.problem, self.solver, self.arrays = problem, solver, problem.arrays
        Z = problem.proxy() if start is None else self.arrays.asarray(start)
        self.memory = AndersonMemory(self.arrays, solver.memory)
        self.Z, self.level = problem.project(Z)
        polar, self.rho = self._polar_factor(self.Z)
        self.w = self.Z - polar / self.rho
        self.best_value, self.best_bound = float("inf"), float("-inf")
        self.best_Z = self.best_G = self.Z
        self.iterations, self.checked = 0, False

    def _polar_factor(self, M: Array) -> tuple[Array, float]:
        """``U V^T`` of M without an SVD, and 1 / (root mean square of its nonzero singular values)."""
        tall = M.shape[0] > M.shape[1]
        eigenvalues, Q = self.arrays.xp.linalg.eigh(self.arrays.gram(M))
        s = self.arrays.at_least(eigenvalues, 0.0) ** 0.5
        kept = s > 1e-7 * float(s[-1])
        Q, s = Q[:, kept], s[kept]
        polar = M @ ((Q / s) @ Q.T) if tall else ((Q / s) @ Q.T) @ M
        return polar, 1.0 / float((s**2).mean()) ** 0.5

    @property
    def gap(self) -> float:
        return (self.best_value - self.best_bound) / self.best_value

    @property
    def proven(self) -> bool:
        return self.best_value < float("inf") and self.gap <= self.solver.tolerance

    def step(self) -> None:
        previous = self.Z
        self.Z, self.level = self.problem.project(self.w, self.level)
        X = singular_value_threshold(self.arrays, 2.0 * self.Z - self.w, 1.0 / self.rho).X
        self.iterations += 1
        self.checked = self.iterations % self.solver.check_every == 0 or self.iterations == 1
        if self.checked:
            self._prove()
            if not self.proven and self._rebalance(X, previous):
                return
        X -= self.Z
        X *= self.solver.relaxation
        self.w = self.memory.advance(self.w, X)

    def _prove(self) -> None:
        """One feasible value and one bound; keep each if it is the best so far."""
        G = self.rho * (self.Z - self.w)
        fine = self.solver.tolerance < FINE_TOLERANCE
        values = self.arrays.singular_values if fine else self.arrays.fast_singular_values
        value = float(values(self.Z).sum())
        spectral = float(self.arrays.fast_singular_values(G)[-1])
        bound = self.arrays.dot(self.problem.B, G) / max(1.0, spectral)
        if value < self.best_value:
            self.best_value, self.best_Z = value, self.Z
        if bound > self.best_bound:
            self.best_bound, self.best_G = bound, G / max(1.0, spectral)

    def _rebalance(self, X: Array, previous: Array) -> bool:
        """Change rho when the residuals are out of balance, keeping Z and the dual; every second check."""
        if (self.iterations // self.solver.check_every) % 2 == 1 or self.iterations == 1:
            return False
        norm, dual_norm = self.arrays.norm, self.arrays.norm(self.w - self.Z)
        primal = norm(X - self.Z) / norm(self.Z)
        rho = rebalanced(self.rho, primal, norm(self.Z - previous) / max(dual_norm, 1e-300))
        if rho == self.rho:
            return False
        self.w = self.Z + (self.w - self.Z) * (self.rho / rho)
        self.rho = rho
        self.memory.restart()
        return True
