"""The margin problem in the spectral and the nuclear norm: ADMM, then Newton's method on the augmented Lagrangian.

ADMM (`margin_splitting`) is fast far from the solution, and on well-conditioned data to the end. Where it is slow the
method of multipliers takes over [chen2016]: with duals Y, A and penalties sigma, tau fixed, minimise over W the smooth
convex function

::

    psi(W) = min_X ||X|| + sigma/2 ||W + Y/sigma - X||^2  +  tau/2 dist(W R - A/tau, K)^2

    gradient    Y+ - A+ R^T,    Y+ = sigma P(W + Y/sigma),    A+ = tau (P_K - I)(W R - A/tau)
    Hessian     sigma P'(X) + tau Pi_T(X R) R^T

where P projects on the ball of the dual norm of radius ``1/sigma``, P' is its derivative (`Shrunk`), and
``Pi_T`` centres each column on its support and active pairs. Newton's equations are solved by a Cholesky factorisation
where V r is small, otherwise by conjugate gradients. Then Y+ and A+ replace Y and A, and the penalties grow while
Newton's method converges quickly. Y+ and A+ are dual feasible, so each of these steps proves a bound. Where Newton's
method does not converge the penalties shrink, and after some failures ADMM continues.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tokengeom.core.numerics import Bool, Float, blas_threads_for
from tokengeom.core.resources import require_memory
from tokengeom.problems.base import Solution
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.supports import centre_on
from tokengeom.solvers.conjugate_gradients import conjugate_gradients
from tokengeom.solvers.margin_splitting import MEMORY, Point, ScaledMargin, Shrunk, split
from tokengeom.solvers.ntp_svm import orthonormal_factor

FIRST_SPLITTING = 500
"""Iterations of ADMM after which its progress is judged; the number doubles when Newton's method fails."""
RESIDUALS = 1e-8
"""Residuals of a solution, all of which are rounding."""
MOST_MULTIPLIER_STEPS = 40
MOST_NEWTON_STEPS = 30
MOST_GROWTH = 1e9
"""Of the penalties in one run of the method of multipliers."""
MOST_FAILURES = 4
MOST_INNER_ITERATIONS = 500
MOST_UNKNOWNS_DIRECT = 700
"""V * r up to which the Hessian is factored; beyond it, conjugate gradients are faster."""


@dataclass(frozen=True, eq=False)
class _Lagrangian:
    """psi at one decoder: its value and gradient, the updated duals, and what its Hessian is made of."""

    value: float
    gradient: Float
    Y: Float
    A: Float
    shrunk: Shrunk
    T: Bool

    @staticmethod
    def at(scaled: ScaledMargin, start: Point, W: Float) -> _Lagrangian:
        sigma, tau = start.sigma, start.tau
        shrunk = Shrunk.of(W + start.Y / sigma, scaled.problem.norm.name, 1.0 / sigma)
        shifted = W @ scaled.R - start.A / tau
        L, _, T = scaled.project(shifted)
        Y, A = sigma * shrunk.projection, tau * (L - shifted)
        kept = shrunk.s - shrunk.g
        size = float(kept.sum() if scaled.problem.norm.name == "nuclear" else kept.max())
        value = size + 0.5 * sigma * float(shrunk.g @ shrunk.g) + 0.5 / tau * float(np.vdot(A, A))
        return _Lagrangian(value, Y - A @ scaled.R.T, Y, A, shrunk, T)

    def change(self, start: Point) -> float:
        """Distance of the updated duals from the old ones, in the metric of the proximal point method."""
        return math.hypot(
            float(np.linalg.norm(self.Y - start.Y)) / math.sqrt(start.sigma),
            float(np.linalg.norm(self.A - start.A)) / math.sqrt(start.tau),
        )


def solve_singular_margin(
    problem: MarginProblem, W: Float, A: Float, tolerance: float = 1e-6, max_iterations: int = 10_000
) -> Solution[Float, Float]:
    """The solution in the spectral or the nuclear norm for separable data, to a proven relative gap of ``tolerance``.

    ``W`` (V x d) and ``A`` (V x m) are the decoder and the multipliers of any other norm, to start from. If
    ``max_iterations`` of ADMM do not suffice, the best answer is returned with the gap that it proves.
    """
    began = time.perf_counter()
    V, m = problem.S.shape
    R, U = orthonormal_factor(problem.H)
    require_memory(
        8 * V * (m + R.shape[0]) * (2 * MEMORY + 12),
        f"The margin in the {problem.norm.name} norm of {V} tokens and {m} contexts",
        "Use the Frobenius norm, or fewer contexts.",
    )
    with blas_threads_for(V, max(m, R.shape[0])):
        scaled, point = ScaledMargin.of(MarginProblem(problem.S, R, problem.norm), W @ U, A)
        iterations = _solve(scaled, point, tolerance, max_iterations)
    best = scaled.best
    decoder = W if best.W is None else best.W @ U.T
    certificate = problem.certify(decoder, A if best.A is None else best.A)
    done = certificate.relative_gap <= tolerance and certificate.holds(max(tolerance, RESIDUALS))
    status = "optimal" if done else (
        f"stopped after {iterations} iterations with a proven gap of {certificate.relative_gap:.1e}, above "
        f"{tolerance:.0e}: raise max_iterations, or accept this gap"
    )  # fmt: skip
    return Solution(decoder, best.A, certificate, status, iterations, time.perf_counter() - began, done)


def _solve(scaled: ScaledMargin, point: Point, tolerance: float, max_iterations: int) -> int:
    """ADMM, and Newton's method wherever ADMM becomes slow; what they find is in ``scaled.best``."""
    best, iterations, budget = scaled.best, 0, FIRST_SPLITTING
    before = math.inf
    while best.gap > tolerance and iterations < max_iterations:
        point, used = split(scaled, point, tolerance, min(budget, max_iterations - iterations))
        iterations += used
        # At the rate so far, would twice as many iterations be enough?
        if best.gap > tolerance and best.gap * (best.gap / before) ** 2 > tolerance and iterations > FIRST_SPLITTING:
            multiplied = _multiply(scaled, point, tolerance)
            point = Point(multiplied.W, multiplied.Y, multiplied.A, point.sigma, point.tau)
            budget *= 2
        before = best.gap
    return iterations


def _multiply(scaled: ScaledMargin, point: Point, tolerance: float) -> Point:
    """The method of multipliers from a point, until the gap is proven or Newton's method fails too often."""
    failures, limit = 0, MOST_GROWTH * point.sigma
    for _ in range(MOST_MULTIPLIER_STEPS):
        minimum, steps = _minimise(scaled, point)
        scaled.check(minimum)
        if scaled.best.gap <= tolerance or point.sigma > limit:
            return minimum
        if steps <= MOST_NEWTON_STEPS:
            point = minimum.scaled(10.0 if steps <= 2 else 3.0 if steps <= 10 else 1.0)
            continue
        failures += 1
        if failures > MOST_FAILURES:
            break
        point = Point(minimum.W, point.Y, point.A, 0.2 * point.sigma, 0.2 * point.tau)
    return point


def _minimise(scaled: ScaledMargin, start: Point) -> tuple[Point, int]:
    """The minimiser of psi with its duals, and the Newton steps taken; one more than allowed if it did not converge."""
    W, now = start.W, _Lagrangian.at(scaled, start, start.W)
    steps = 0
    while steps <= MOST_NEWTON_STEPS:
        size = float(np.linalg.norm(now.gradient))
        # The relative error of the bound is about size / ||Y||: it must not hide the progress that is left to make.
        allowed = 0.1 * min(scaled.best.gap, 1.0) * float(np.linalg.norm(now.Y))
        if size <= 1e-10 * float(np.linalg.norm(now.Y)):
            break
        if steps > 0 and size <= min(allowed, 0.05 * math.sqrt(start.sigma) * now.change(start)):
            break
        steps += 1
        if steps > MOST_NEWTON_STEPS:
            break
        move = _newton_step(scaled, start, now)
        slope, length = float(np.vdot(now.gradient, move)), 1.0
        while length > 1e-8:
            tried = _Lagrangian.at(scaled, start, W + length * move)
            if _decreases(now, tried, slope, length, float(np.vdot(tried.gradient, move))):
                break
            length *= 0.5
        W, now = W + length * move, tried
    return Point(W, now.Y, now.A, start.sigma, start.tau), steps


def _decreases(now: _Lagrangian, tried: _Lagrangian, slope: float, length: float, slope_after: float) -> bool:
    """Whether a step decreases psi enough; near the minimum, where values are rounded, slopes decide."""
    if tried.value <= now.value + 1e-4 * length * slope:
        return True
    return slope_after <= -0.9 * slope and tried.value <= now.value + 1e-10 * abs(now.value)


def _newton_step(scaled: ScaledMargin, start: Point, now: _Lagrangian) -> Float:
    size = float(np.linalg.norm(now.gradient))
    # The Hessian is singular along decoders that no active pair and no singular value sees: with this ridge, no step is
    # longer than W, and convergence is still superlinear.
    ridge = size / float(np.linalg.norm(start.W))
    if now.gradient.size <= MOST_UNKNOWNS_DIRECT:
        with suppress(LinAlgError):
            return _direct_step(scaled, start, now, ridge)
    curve = now.shrunk.derivative()

    def hessian(X: Float) -> Float:
        pairs = centre_on(now.T, X @ scaled.R) @ scaled.R.T
        return np.asarray(start.sigma * curve(X) + start.tau * pairs + ridge * X)

    return conjugate_gradients(
        hessian,
        -now.gradient,
        stop=lambda residual, _: bool(np.linalg.norm(residual) <= 0.01 * size),
        flat=0.0,
        max_iterations=MOST_INNER_ITERATIONS,
    ).x


def _direct_step(scaled: ScaledMargin, start: Point, now: _Lagrangian, ridge: float) -> Float:
    """The Newton step from a Cholesky factor of the whole Hessian."""
    shape, n = now.gradient.shape, now.gradient.size
    curve = now.shrunk.derivative()
    hessian = np.stack([curve(X).ravel() for X in np.eye(n).reshape(n, *shape)])
    v, j = np.nonzero(now.T & (now.T.sum(axis=0) > 1))
    rows = np.zeros((len(v), *shape))
    rows[np.arange(len(v)), v] = scaled.R[:, j].T
    # Centring: minus the mean over the tokens of the same column.
    shares = (now.T[:, j] / now.T.sum(axis=0)[j]).T
    rows -= shares[:, :, None] * scaled.R[:, j].T[:, None, :]
    pairs = rows.reshape(len(v), n)
    hessian = start.sigma * hessian + start.tau * (pairs.T @ pairs)
    hessian[np.diag_indices(n)] += ridge + 1e-14 * float(np.trace(hessian)) / n
    return np.asarray(-cho_solve(cho_factor(hessian), now.gradient.ravel()).reshape(shape))
