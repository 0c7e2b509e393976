"""One point of the regularisation path of learned features, by accelerated ADMM that holds down to lambda = 1e-12.

``min CE(L)/lambda + ||L||_*``   with the loop of ``splitting``

The proximal map of the loss separates by context. With ``kappa_j = pi_j / (lambda rho)`` and ``l`` the column's
log-sum-exp, every entry solves a scalar equation:

``on support:   d + kappa p expm1(d) = x - log p - l``,  logit ``d + log p + l``
``off support:  t + kappa exp(t) = x - l``,              logit ``t + l``  (t = log q)

and ``l`` is the root of ``sum_on p expm1(d) + sum_off exp(t) = 0``. The unknowns ``d`` and ``t`` are log-ratios, so
nothing of size kappa ~ 1e12 is ever subtracted.

where ``x`` is the point to move, V x m, ``p`` the probabilities, ``q`` the result's softmax, ``d = log q/p``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from tokengeom.numerics import blas_threads_for
from tokengeom.problems.backend import Backend
from tokengeom.problems.base import Solution
from tokengeom.solvers.splitting import AbstractSplitting, AbstractTerm, Bounds, Iterate

if TYPE_CHECKING:
    from tokengeom.numerics import Bool, Float
    from tokengeom.problems.regularised_logits import RegularisedLogits

OUTER_STEPS = 100
INNER_STEPS = 100
LARGEST_FALL = 5.0
"""The level's Newton step is safe upwards (convex, from the left). Downwards it may overshoot, so it is cut at this."""


@dataclass(frozen=True)
class WarmStart:
    """Where a solve ended, for the start of the next: logits ``Z``, dual ``Y = change pi / lambda``, ``rho``."""

    Z: Float
    Y: Float
    rho: float


@final
class RegularisedLoss(AbstractTerm):
    """``CE / lambda`` with its proximal map, which starts at the roots of the last one.

    ``change``
        ``softmax - P`` of the last proximal point, V x m.
    """

    def __init__(self, problem: RegularisedLogits) -> None:
        self.problem = problem
        self.change = np.zeros_like(problem.P)
        self._u = np.zeros_like(problem.P)
        self._level: Float | None = None

    def prox(self, w: Float, rho: float) -> Float:
        """Logits ``argmin CE/lambda + rho/2 ||. - w||^2``, V x m."""
        P, S, log_P = self.problem.P, self.problem.S, self.problem.log_P
        kappa = self.problem.pi / (self.problem.lam * rho)
        weight = kappa * np.where(S, P, 1.0)
        shift = w - log_P
        level = (P * shift).sum(axis=0) if self._level is None else self._level
        u = self._u
        for _ in range(OUTER_STEPS):
            u = _scalar_roots(u, weight, shift - level, S)
            growth = np.where(S, P, 1.0) * np.exp(u)
            change = np.where(S, P * np.expm1(u), growth)
            step = change.sum(axis=0) / (growth / (1.0 + kappa * growth)).sum(axis=0)
            level = level + np.maximum(step, -LARGEST_FALL)
            if np.abs(step).max() <= 1e-12:
                break
        self._u, self._level, self.change = u, level, change
        return np.asarray(u + log_P + level)

    def bounds(self, at: Iterate) -> Bounds:
        """The better of the values at both halves of the step, and the bound of the scaled change."""
        problem, X = self.problem, at.thresholded.X
        at_Z = problem.loss_gap(at.Z) + problem.lam * float(np.linalg.svd(at.Z, compute_uv=False).sum())
        at_X = problem.loss_gap(X) + problem.lam * at.thresholded.nuclear_norm
        value, L = (at_X, X.copy()) if at_X < at_Z else (at_Z, at.Z)
        spectral = float(np.linalg.norm(self.change * problem.pi, 2))
        change = self.change * min(1.0, problem.lam / max(spectral, 1e-300))
        return Bounds(value, L, problem.entropy_gain(change), change)


def _scalar_roots(u: Float, weight: Float, right: Float, S: Bool) -> Float:
    """Newton's method for ``u + weight g(u) = right``, ``g = expm1`` on support and ``exp`` off it.

    The left side is increasing and convex. From the right of the root Newton's method falls monotonically to it; from
    the left it jumps to the right once, and the jump is cut at an upper bound of the root.
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
class LogitADMM(AbstractSplitting):
    """A configured solver for one point of the path: call it with a ``RegularisedLogits``.

    ``tolerance`` is relative to the objective above the entropy floor.
    """

    max_iterations: int = 3000

    def __call__(
        self, problem: RegularisedLogits, start: WarmStart | None = None
    ) -> tuple[Solution[Float, Float], WarmStart]:
        """The solution, whose dual is ``softmax - P``, and the state to start the next point from."""
        with blas_threads_for(*problem.P.shape):
            return self._solve(problem, start or first_state(problem))

    def _solve(self, problem: RegularisedLogits, start: WarmStart) -> tuple[Solution[Float, Float], WarmStart]:
        began, term = time.perf_counter(), RegularisedLoss(problem)
        run = self.iterate(term, Backend.on(), start.Z + start.Y / start.rho, start.rho)
        L, change = run.best.answer, run.best.dual
        certificate = problem.certify(L, change)
        converged = certificate.relative_gap <= self.tolerance
        status, seconds = self._status(run, converged), time.perf_counter() - began
        solution = Solution(L, change, certificate, status, run.iterations, seconds, converged)
        return solution, WarmStart(run.Z, problem.pi * term.change / problem.lam, run.rho)


def first_state(problem: RegularisedLogits) -> WarmStart:
    """Logits 0, whose dual is ``1/V - P``, and rho from the size of the centred support."""
    V = problem.P.shape[0]
    scale = np.linalg.svd(problem.S - problem.S.mean(axis=0), compute_uv=False)
    kept = scale[scale > 1e-9 * max(scale[0], 1e-300)]
    rho = 1.0 / float(kept.mean()) if kept.size else 1.0
    Y = problem.pi * (1.0 / V - problem.P) / problem.lam
    # A subgradient of the nuclear norm has spectral norm at most 1.
    return WarmStart(np.zeros_like(Y), Y / max(1.0, float(np.linalg.norm(Y, 2))), rho)
