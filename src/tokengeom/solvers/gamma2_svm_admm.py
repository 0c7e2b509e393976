"""NTP-SVM* in the gamma_2 norm, by the ADMM of ``gamma2_admm``: weights are solved for together with the logits.

``min ||diag(r) L diag(c)||_* + indicator_C(L)``   with the projection on the constraints C as the other half of a step

Every ``Z`` is feasible, and every ``G = rho (Z - w)`` satisfies all dual constraints except that on its norm. Many of
the weights fall to 0 here, so it converges more slowly than a point of the path: on the stories (104 tokens, 383
contexts) to a proven gap of 3e-3.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import final

from tokengeom.core.numerics import blas_threads_for
from tokengeom.problems.backend import Array, Blocks
from tokengeom.problems.base import Solution
from tokengeom.problems.columns import Layout, plain
from tokengeom.problems.gamma2 import Gamma2SVM, MaxNormFactors, WeightedDual
from tokengeom.solvers.gamma2_admm import AbstractWeightedTerm, Gamma2Run
from tokengeom.solvers.gamma2_factors import Triplets
from tokengeom.solvers.gamma2_norm import balance
from tokengeom.solvers.logit_admm import WarmStart
from tokengeom.solvers.splitting import AbstractSplitting, Bounds

BALANCE_EVERY = 100
BALANCE_STEPS = 150


@final
class _Constraints(AbstractWeightedTerm):
    """Indicator of C: its proximal map is the projection, which starts at the levels of the last one."""

    def __init__(self, problem: Gamma2SVM) -> None:
        self.problem = problem
        self.level: Array | None = None

    def reweight(self, r: Array, c: Array) -> None:
        self.r, self.c, self.weight = r, c, r[:, None] * c[None, :]

    def prox(self, k: int, w: Array, rho: float) -> Array:
        L, self.level = self.problem.project(w / self.weight, self.r**2, self.level)
        return L * self.weight

    def bounds(self, w: Blocks, rho: float, Z: Blocks, thresholded: Triplets) -> Bounds:
        backend = self.problem.backend
        factors = Triplets.of(backend, Z).factors(self.r, self.c)
        scaled = rho * (Z[0] - w[0])
        G = scaled * self.weight
        inner = float((backend.as_float(self.problem.S) * G).sum())
        bound = inner / max(float(backend.fast_singular_values(scaled)[-1]), 1e-300)
        return Bounds(factors.norm(backend), plain(factors), bound, WeightedDual(G, self.r, self.c))


@final
@dataclass(frozen=True)
class Gamma2MarginADMM(AbstractSplitting):
    """A configured solver: call it with a ``Gamma2SVM``."""

    tolerance: float = 3e-3
    max_iterations: int = 3000
    check_every: int = 5

    def __call__(self, problem: Gamma2SVM) -> Solution[MaxNormFactors, WeightedDual]:
        """Factors and dual with their certificate; starts at the centred supports with equal weights."""
        with blas_threads_for(*problem.S.shape):
            return self._solve(problem)

    def _solve(self, problem: Gamma2SVM) -> Solution[MaxNormFactors, WeightedDual]:
        began, backend, term = time.perf_counter(), problem.backend, _Constraints(problem)
        rows, columns = problem.S.shape
        r, c = backend.full((rows,), rows**-0.5), backend.full((columns,), columns**-0.5)
        S = backend.as_float(problem.S)
        Z = (S - S.sum(0) / rows) * (r[:, None] * c[None, :])
        polar, s = backend.polar_factor(Z)
        rho = 1.0 / float((s**2).mean()) ** 0.5
        # One block: the margin problem in this norm is for smaller sizes.
        layout = Layout(backend, (slice(None),))
        run = Gamma2Run(term, self, WarmStart(layout.split(Z), layout.split(-polar), rho, r=r, c=c))
        for _ in self.steps(run):
            if run.iterations % BALANCE_EVERY == 0:
                self._balance(run)
        x, dual = run.best.answer, run.best.dual
        return self.solution(x, dual, problem.certify(x, dual), run.iterations, began, backend)

    def _balance(self, run: Gamma2Run) -> None:
        """Replace the best factors by shorter ones of the same logits: weights of the best bound need not suit them."""
        to_numpy, dual = run.backend.to_numpy, run.best.dual
        L = to_numpy(run.best.answer.logits)
        better = balance(
            L, to_numpy(dual.r), to_numpy(dual.c), tolerance=0.5 * self.tolerance, max_iterations=BALANCE_STEPS
        ).factors
        factors = MaxNormFactors(run.backend.asarray(better.W), run.backend.asarray(better.H))
        value = factors.norm(run.backend)
        if value < run.best.value:
            run.best = replace(run.best, value=value, answer=factors)
