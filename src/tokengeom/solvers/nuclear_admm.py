"""NTP-SVM* by accelerated ADMM: the singular-value threshold and the projection on the constraints in turn.

``min ||X||_* + indicator_C(X)``   stopped by the proven gap of ``NuclearSVM``

where C is the set of (scaled) logits with equal in-support entries and margins >= 1, V' x g. The loop is that of
``splitting``.

Start: ``S~`` with dual ``U V^T`` and ``rho = 0.5 / rms(s)``, already optimal when the proxy is exact. Every ``Z`` is
feasible, and every ``G = rho (Z - w)`` satisfies all dual constraints except that on the spectral norm. So one
nuclear norm and one spectral norm prove a gap.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tokengeom.numerics import blas_threads_for
from tokengeom.problems.base import Solution
from tokengeom.solvers.splitting import (
    AbstractSplitting,
    AbstractTerm,
    Bounds,
    Iterate,
    Observer,
    singular_value_threshold,
)

if TYPE_CHECKING:
    from tokengeom.problems.backend import Array
    from tokengeom.problems.nuclear_svm import NuclearSVM

START = 0.5
"""Factor of the first rho: the rank of L_mm is below that of the proxy."""
AIM = 0.95
"""Share of the tolerance that a polished dual aims at: the certificate adds what rounding may have changed."""
POLISHED = 0.8
"""Distance of the value from the estimated optimum, in tolerances, from which on a dual is worth polishing."""
FARTHEST_POLISHED = 32.0
"""Gap, in tolerances, up to which polishing can close it."""
MOST_POLISHING = 5
OVERPROJECTION = 1.9
FINE_TOLERANCE = 1e-7
"""Below it the nuclear norm must not come from a Gram matrix, whose small singular values are wrong by 1e-8."""


@final
class _Constraints(AbstractTerm):
    """Indicator of C: its proximal map is the projection, which starts at the level of the last one."""

    exact_at_checks = False

    def __init__(self, problem: NuclearSVM, tolerance: float, level: Array) -> None:
        self.problem, self.tolerance, self.level = problem, tolerance, level

    def prox(self, w: Array, rho: float) -> Array:
        Z, self.level = self.problem.project(w, self.level)
        return Z

    def bounds(self, at: Iterate) -> Bounds:
        problem, backend = self.problem, self.problem.backend
        answer, _ = problem.project(at.thresholded.X, self.level)
        fine = self.tolerance < FINE_TOLERANCE
        value = backend.proven_nuclear_norm(answer) if fine else float(backend.fast_singular_values(answer).sum())
        G = at.rho * (at.Z - at.w)
        unscaled = backend.dot(problem.B, G)
        norm = max(1.0, float(backend.fast_singular_values(G)[-1]))
        bound, close = unscaled / norm, self.tolerance * value
        # Both are close to the optimum long before G has a spectral norm close to 1.
        optimum = min(at.thresholded.nuclear_norm, unscaled)
        if close < value - bound <= FARTHEST_POLISHED * close and value - optimum <= POLISHED * close:
            bound, G, norm = self._polished(bound, G, norm, value - close)
        return Bounds(value, answer, bound, G / norm)

    def _polished(self, bound: float, G: Array, norm: float, wanted: float) -> tuple[float, Array, float]:
        """The best bound of duals near G, with the dual and its spectral norm.

        By over-relaxed projections on the unit ball of the spectral norm and on the cone of the other constraints in
        turn. Each decomposition gives the norm of the last dual and the part of it outside the ball.
        """
        best, H, level = (bound, G, norm), G, None
        for step in range(MOST_POLISHING + 1):
            outside = singular_value_threshold(self.problem.backend, H, 1.0)
            norm = max(1.0, outside.spectral_norm)
            best = max(best, (self.problem.backend.dot(self.problem.B, H) / norm, H, norm), key=lambda found: found[0])
            if best[0] >= wanted or step == MOST_POLISHING:
                break
            H, level = self.problem.project_dual(H - OVERPROJECTION * outside.X, level)
        return best


@final
@dataclass(frozen=True)
class NuclearADMM(AbstractSplitting):
    """A configured solver: call it with a ``NuclearSVM``."""

    relaxation: float = 1.8

    def __call__(
        self, problem: NuclearSVM, *, start: Array | None = None, observer: Observer | None = None
    ) -> Solution[Array, Array]:
        """Merged logits and dual with their certificate; ``start`` (scaled, V' x g) replaces the proxy."""
        if 0 in problem.shape:
            nothing = problem.backend.full(tuple(problem.S.shape), 0.0)
            done = problem.certify(nothing, nothing)
            return Solution(nothing, nothing, done, "every support is the whole vocabulary: L_mm is 0", 0, 0.0)
        with blas_threads_for(*problem.shape) if problem.backend.device is None else nullcontext():
            return self._solve(problem, start, observer)

    def _solve(self, problem: NuclearSVM, start: Array | None, observer: Observer | None) -> Solution[Array, Array]:
        began, backend = time.perf_counter(), problem.backend
        Z, level = problem.project(problem.proxy() if start is None else backend.asarray(start))
        polar, s = backend.polar_factor(Z)
        rho = START / float((s**2).mean()) ** 0.5
        term = _Constraints(problem, AIM * self.tolerance, level)
        run = self.iterate(term, backend, Z - polar / rho, rho, observer)
        L = problem.unscale(run.best.answer)
        certificate = problem.certify(L, run.best.dual)
        converged = certificate.relative_gap <= self.tolerance
        backend.synchronise()
        status, seconds = self._status(run.iterations, certificate.relative_gap, converged), time.perf_counter() - began
        return Solution(L, run.best.dual, certificate, status, run.iterations, seconds, converged)
