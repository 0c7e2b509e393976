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
from typing import TYPE_CHECKING, ClassVar, final

from tokengeom.core.numerics import blas_threads_for
from tokengeom.problems.backend import Array, Blocks
from tokengeom.problems.base import Solution
from tokengeom.problems.columns import Columns, Computed, mapped
from tokengeom.solvers.splitting import (
    AbstractSplitting,
    AbstractTerm,
    Bounds,
    Iterate,
    Observer,
    Threshold,
)

if TYPE_CHECKING:
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
    """Indicator of C: its proximal map is the projection, which starts at the levels of the last one."""

    exact_at_checks = False

    def __init__(self, problem: NuclearSVM, tolerance: float, levels: list[Array]) -> None:
        self.problem, self.tolerance, self.levels = problem, tolerance, levels

    def prox(self, k: int, w: Array, rho: float) -> Array:
        Z, self.levels[k] = self.problem.part(k).project(w, self.levels[k])
        return Z

    def bounds(self, at: Iterate) -> Bounds:
        problem, backend = self.problem, self.problem.backend
        answer = Computed(problem.layout, lambda k: problem.part(k).project(at.X[k], self.levels[k])[0])
        fine = self.tolerance < FINE_TOLERANCE
        value = backend.proven_nuclear_norm(answer) if fine else float(backend.fast_singular_values(answer).sum())
        G: Blocks = Computed(problem.layout, lambda k: at.rho * (at.Z[k] - at.w[k]))
        unscaled = problem.inner(G)
        norm = max(1.0, float(backend.fast_singular_values(G)[-1]))
        bound, close = unscaled / norm, self.tolerance * value
        # Both are close to the optimum long before G has a spectral norm close to 1.
        optimum = min(at.nuclear_norm, unscaled)
        if close < value - bound <= FARTHEST_POLISHED * close and value - optimum <= POLISHED * close:
            bound, G, norm = self._polished(bound, G, norm, value - close)
        return Bounds(value, answer, bound, mapped(lambda block: block / norm, G))

    def _polished(self, bound: float, G: Blocks, norm: float, wanted: float) -> tuple[float, Blocks, float]:
        """The best bound of duals near G, with the dual and its spectral norm.

        By over-relaxed projections on the unit ball of the spectral norm and on the cone of the other constraints in
        turn. Each decomposition gives the norm of the last dual and the part of it outside the ball.
        """
        problem = self.problem
        best, H = (bound, G, norm), G
        levels: list[Array | None] = [None] * len(problem.layout)
        for step in range(MOST_POLISHING + 1):
            outside = Threshold(problem.backend)(H, 1.0)
            norm = max(1.0, outside.spectral_norm)
            best = max(best, (problem.inner(H) / norm, H, norm), key=lambda candidate: candidate[0])
            if best[0] >= wanted or step == MOST_POLISHING:
                break
            projected = Columns(problem.layout)
            for k in range(len(problem.layout)):
                moved = H[k] - OVERPROJECTION * outside.X[k]
                projected[k], levels[k] = problem.part(k).project_dual(moved, levels[k])
            H = projected
        return best


@final
@dataclass(frozen=True)
class NuclearADMM(AbstractSplitting):
    """A configured solver: call it with a ``NuclearSVM``."""

    largest_gap: ClassVar[float] = 1.0
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
        began, backend, layout = time.perf_counter(), problem.backend, problem.layout
        given = None if start is None else layout.split(start)
        w, levels = Columns(layout), []
        for k in range(len(layout)):
            part = problem.part(k)
            w[k], level = part.project(part.proxy() if given is None else given[k])
            levels.append(level)
        root, s = backend.polar_root(w)
        rho = START / float((s**2).mean()) ** 0.5
        for k in range(len(layout)):
            Z = w[k]
            w[k] = Z - (root @ Z if backend.by_rows(w) else Z @ root) / rho
        run = self.iterate(_Constraints(problem, AIM * self.tolerance, levels), w, rho, observer)
        best, iterations = run.best, run.iterations
        # The state is as large as several matrices, and no longer needed.
        del run, w
        L = layout.kept(problem.each(lambda part, block: part.unscale(block), best.answer))
        certificate, x, dual = problem.certify(L, best.dual), layout.plain(L), layout.plain(best.dual)
        return self.solution(x, dual, certificate, iterations, began, backend)
