"""NTP-SVM* by accelerated ADMM: the singular-value threshold and the projection on the constraints in turn.

``min ||X||_* + indicator_C(X)``   stopped by the proven gap of ``NuclearSVM``

where C is the set of (scaled) logits with equal in-support entries and margins >= 1, V' x g. The loop is that of
``splitting``.

Start: ``S~`` with dual ``U V^T`` and ``rho = 1 / rms(s)``, already optimal when the proxy is exact. Every ``Z`` is
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
from tokengeom.solvers.splitting import AbstractSplitting, AbstractTerm, Bounds, Iterate, Observer

if TYPE_CHECKING:
    from tokengeom.problems.backend import Array
    from tokengeom.problems.nuclear_svm import NuclearSVM

FINE_TOLERANCE = 1e-7
"""Below it the nuclear norm must not come from a Gram matrix, whose small singular values are wrong by 1e-8."""


@final
class _Constraints(AbstractTerm):
    """Indicator of C: its proximal map is the projection, which starts at the level of the last one."""

    def __init__(self, problem: NuclearSVM, fine: bool, level: Array) -> None:
        self.problem, self.fine, self.level = problem, fine, level

    def prox(self, w: Array, rho: float) -> Array:
        Z, self.level = self.problem.project(w, self.level)
        return Z

    def bounds(self, at: Iterate) -> Bounds:
        backend = self.problem.backend
        G = at.rho * (at.Z - at.w)
        singular_values = backend.singular_values if self.fine else backend.fast_singular_values
        scale = max(1.0, float(backend.fast_singular_values(G)[-1]))
        return Bounds(float(singular_values(at.Z).sum()), at.Z, backend.dot(self.problem.B, G) / scale, G / scale)


@final
@dataclass(frozen=True)
class NuclearADMM(AbstractSplitting):
    """A configured solver: call it with a ``NuclearSVM``."""

    def __call__(
        self, problem: NuclearSVM, *, start: Array | None = None, observer: Observer | None = None
    ) -> Solution[Array, Array]:
        """Merged logits and dual with their certificate; ``start`` (scaled, V' x g) replaces the proxy."""
        if 0 in problem.shape:
            nothing = problem.backend.full(problem.shape, 0.0)
            done = problem.certify(nothing, nothing)
            return Solution(nothing, nothing, done, "every support is the whole vocabulary: L_mm is 0", 0, 0.0)
        with blas_threads_for(*problem.shape) if problem.backend.device is None else nullcontext():
            return self._solve(problem, start, observer)

    def _solve(self, problem: NuclearSVM, start: Array | None, observer: Observer | None) -> Solution[Array, Array]:
        began, backend = time.perf_counter(), problem.backend
        Z, level = problem.project(problem.proxy() if start is None else backend.asarray(start))
        polar, s = backend.polar_factor(Z)
        rho = 1.0 / float((s**2).mean()) ** 0.5
        term = _Constraints(problem, self.tolerance < FINE_TOLERANCE, level)
        run = self.iterate(term, backend, Z - polar / rho, rho, observer)
        L = problem.unscale(run.best.answer)
        certificate = problem.certify(L, run.best.dual)
        converged = certificate.relative_gap <= self.tolerance
        backend.synchronise()
        status, seconds = self._status(run, converged), time.perf_counter() - began
        return Solution(L, run.best.dual, certificate, status, run.iterations, seconds, converged)
