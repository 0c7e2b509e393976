"""One point of the regularisation path by accelerated ADMM, in a form that holds down to lambda = 1e-12.

``min CE(L)/lambda + ||L||_*``   by Douglas-Rachford: the loss's proximal map, the singular-value threshold

The proximal map of the loss separates by context. With ``kappa_j = pi_j / (lambda rho)`` and ``l`` the
column's log-sum-exp, every entry solves a scalar equation:

``on support:   d + kappa p expm1(d) = x - log p - l``,  logit ``d + log p + l``
``off support:  t + kappa exp(t) = x - l``,              logit ``t + l``  (t = log q)

and ``l`` is the root of ``sum_on p expm1(d) + sum_off exp(t) = 0``. The unknowns ``d`` and ``t`` are
log-ratios, so that nothing of size kappa ~ 1e12 is ever subtracted.

where ``x`` is the point to move, V x m, ``p`` the probabilities, ``q`` the result's softmax, ``d = log q/p``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from tokengeom.numerics import blas_threads_for
from tokengeom.problems.arrays import Arrays
from tokengeom.problems.base import Solution
from tokengeom.solvers.splitting import MEMORY, RELAXATION, AndersonMemory, rebalanced, singular_value_threshold

if TYPE_CHECKING:
    from tokengeom.numerics import Bool, Float
    from tokengeom.problems.regularised_logits import RegularisedLogits

OUTER_STEPS = 100
INNER_STEPS = 100
LARGEST_FALL = 5.0
"""The level's Newton step is safe upwards (convex, from the left); downwards it may overshoot: it is cut."""


@dataclass(frozen=True)
class PathState:
    """Where a solve ended, to start the next: logits ``Z``, dual ``Y = change pi / lambda``, ``rho``."""

    Z: Float
    Y: Float
    rho: float


@final
@dataclass
class LossProx:
    """Proximal map of ``CE / lambda``; remembers its last roots, where the next search starts."""

    problem: RegularisedLogits
    u: Float | None = None
    level: Float | None = None

    def __call__(self, x: Float, rho: float) -> tuple[Float, Float]:
        """Logits ``argmin CE/lambda + rho/2 ||. - x||^2`` and the change ``softmax - P``, both V x m."""
        P, S, log_P = self.problem.P, self.problem.S, self.problem.log_P
        kappa = self.problem.pi / (self.problem.lam * rho)
        weight = kappa * np.where(S, P, 1.0)
        shift = x - log_P
        level = (P * shift).sum(axis=0) if self.level is None else self.level
        u = np.zeros_like(x) if self.u is None else self.u
        for _ in range(OUTER_STEPS):
            u = _scalar_roots(u, weight, shift - level, S)
            growth = np.where(S, P, 1.0) * np.exp(u)
            change = np.where(S, P * np.expm1(u), growth)
            step = change.sum(axis=0) / (growth / (1.0 + kappa * growth)).sum(axis=0)
            level = level + np.maximum(step, -LARGEST_FALL)
            if np.abs(step).max() <= 1e-12:
                break
        self.u, self.level = u, level
        return u + log_P + level, change


def _scalar_roots(u: Float, weight: Float, right: Float, S: Bool) -> Float:
    """Newton for ``u + weight g(u) = right``, ``g = expm1`` on support and ``exp`` off it.

    The left side is increasing and convex, so that from the right of the root Newton falls monotonically to
    it, and from the left it jumps to the right once; the jump is cut at an upper bound of the root.
    """
    log_weight = np.log(weight)
    positive = np.maximum(right, 0.0)
    on = np.minimum(right / (1.0 + weight), np.where(right > 0, np.log1p(positive / weight), np.inf))
    total = right + log_weight
    off = np.where(total > 1.0, np.log(np.maximum(total, 1.0)) - log_weight, right)
    upper = np.where(S, on, np.minimum(off, right))
    u = np.minimum(u, upper)
    tolerance = 1e-13 * (1.0 + np.abs(right).max())
    for _ in range(INNER_STEPS):
        e = weight * np.exp(u)
        value = u + np.where(S, weight * np.expm1(u), e) - right
        u = np.minimum(u - value / (1.0 + e), upper)
        if np.abs(value).max() <= tolerance:
            break
    return np.asarray(u)


@final
@dataclass(frozen=True)
class LogitADMM:
    """A configured solver for one point of the path: call it with a ``RegularisedLogits``.

    ``tolerance``
        Duality gap to stop at, relative to the objective above the entropy floor.
    """

    tolerance: float = 1e-6
    max_iterations: int = 3000
    memory: int = MEMORY
    check_every: int = 10

    def __call__(
        self, problem: RegularisedLogits, start: PathState | None = None
    ) -> tuple[Solution[Float, Float], PathState]:
        """Solve to the tolerance: the solution (its dual is ``softmax - P``) and where to go on from."""
        with blas_threads_for(*problem.P.shape):
            return self._solve(problem, start)

    def _solve(self, problem: RegularisedLogits, start: PathState | None) -> tuple[Solution[Float, Float], PathState]:
        began = time.perf_counter()
        run = _Run(problem, self, start or first_state(problem))
        while not run.gap <= self.tolerance and run.iterations < self.max_iterations:
            run.step()
        proof = problem.certify(run.best_L, run.best_change)
        converged = proof.relative_gap <= self.tolerance
        tokens = "duality gap within" if converged else f"stopped after {run.iterations} iterations, gap above"
        status = f"{tokens} {self.tolerance:.0e}" + ("" if converged else "; raise max_iterations")
        seconds = time.perf_counter() - began
        solution = Solution(run.best_L, run.best_change, proof, status, run.iterations, seconds, converged)
        return solution, PathState(run.Z, problem.pi * run.change / problem.lam, run.rho)


def first_state(problem: RegularisedLogits) -> PathState:
    """Start from logits 0, whose dual is ``1/V - P``; rho from the size of the centred support."""
    V = problem.P.shape[0]
    scale = np.linalg.svd(problem.S - problem.S.mean(axis=0), compute_uv=False)
    kept = scale[scale > 1e-9 * max(scale[0], 1e-300)]
    rho = 1.0 / float(kept.mean()) if kept.size else 1.0
    Y = problem.pi * (1.0 / V - problem.P) / problem.lam
    # Starts of spectral norm above 1 are no subgradient of a nuclear norm.
    return PathState(np.zeros_like(Y), Y / max(1.0, float(np.linalg.norm(Y, 2))), rho)


class _Run:
    """State of one solve and the best proven answers so far."""

    def __init__(self, problem: RegularisedLogits, solver: LogitADMM, start: PathState) -> None:
        self.problem, self.solver = problem, solver
        self.prox = LossProx(problem)
        self.memory = AndersonMemory(Arrays.on(), solver.memory)
        self.rho, self.Z = start.rho, start.Z
        self.w = start.Z + start.Y / start.rho
        self.change = np.zeros_like(start.Z)
        self.best_L, self.best_change = self.Z, self.change
        self.best_value, self.best_bound = float("inf"), float("-inf")
        self.iterations = 0

    @property
    def gap(self) -> float:
        return (self.best_value - self.best_bound) / self.best_value if np.isfinite(self.best_value) else np.inf

    def step(self) -> None:
        previous = self.Z
        self.Z, self.change = self.prox(self.w, self.rho)
        found = singular_value_threshold(Arrays.on(), 2.0 * self.Z - self.w, 1.0 / self.rho)
        self.iterations += 1
        if self.iterations % self.solver.check_every == 0 or self.iterations == 1:
            self._prove(found.X, found.nuclear_norm)
            if self.iterations % (2 * self.solver.check_every) == 0 and self._rebalance(found.X, previous):
                return
        self.w = self.memory.advance(self.w, RELAXATION * (found.X - self.Z))

    def _prove(self, X: Float, nuclear_norm: float) -> None:
        """Values at both halves of the splitting, one bound; keep the best of each."""
        problem = self.problem
        at_Z = problem.loss_gap(self.Z) + problem.lam * float(np.linalg.svd(self.Z, compute_uv=False).sum())
        at_X = problem.loss_gap(X) + problem.lam * nuclear_norm
        for value, L in ((at_Z, self.Z), (at_X, X)):
            if value < self.best_value:
                self.best_value, self.best_L = value, L.copy()
        spectral = float(np.linalg.norm(self.change * problem.pi, 2))
        change = self.change * min(1.0, problem.lam / max(spectral, 1e-300))
        bound = problem.entropy_gain(change)
        if bound > self.best_bound:
            self.best_bound, self.best_change = bound, change

    def _rebalance(self, X: Float, previous: Float) -> bool:
        norm = np.linalg.norm
        primal = float(norm(X - self.Z) / max(float(norm(self.Z)), 1e-300))
        dual = float(norm(self.Z - previous) / max(float(norm(self.w - self.Z)), 1e-300))
        rho = rebalanced(self.rho, primal, dual)
        if rho == self.rho:
            return False
        self.w = self.Z + (self.w - self.Z) * (self.rho / rho)
        self.rho = rho
        self.memory.restart()
        return True
