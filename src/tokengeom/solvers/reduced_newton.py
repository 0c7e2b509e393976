"""Reduced loss by Newton's method with conjugate gradients inside.

The Hessian maps X to ``sum_j pi_j (diag q_j - q_j q_j^T) X h_j h_j^T``, two products with H. From ``W = 0``
every gradient, and with it every step, stays in ``F^``, where the loss is strictly convex; the minimum is
attained there (docs/theory.md 2.2).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.problems.base import Solution
from tokengeom.problems.effective_support import ReducedLoss
from tokengeom.solvers.compatibility import project_on_data_subspace
from tokengeom.solvers.ntp_svm import orthonormal_factor

if TYPE_CHECKING:
    from tokengeom.numerics import Float


def solve_reduced_loss(
    problem: ReducedLoss, start: Float | None = None, tolerance: float = 1e-15, max_iterations: int = 200
) -> Solution[Float, Float]:
    """Minimise to a moment residual within ``tolerance``; the dual answer is the distribution itself."""
    began = time.perf_counter()
    R, U = orthonormal_factor(problem.H)
    reduced = ReducedLoss(problem.S, problem.P, problem.pi, R)
    W = np.zeros((R.shape[0], problem.S.shape[0])).T if start is None else start @ U
    scale = float(problem.pi @ np.linalg.norm(R, axis=0))
    best, best_size, iteration = W, np.inf, 0
    while iteration < max_iterations:
        iteration += 1
        q = reduced.distribution(W)
        gradient = ((q - problem.P) * problem.pi) @ R.T
        size = float(np.linalg.norm(gradient)) / scale
        # At rounding level the residual stops falling, and one more step would only stir it.
        stirred = size < 1e-10 and size > 0.5 * best_size
        if size < best_size:
            best, best_size = W, size
        if size <= tolerance or stirred:
            break
        # The gradient is a sum of cancelling terms, so it carries noise of 1e-16 in directions of no curvature;
        # conjugate gradients asked to go below that noise would divide it by zero.
        noise = 1e-15 / size
        step = _newton_step(reduced, q, gradient, min(0.1, max(size, noise)))
        W = W + _length(reduced, W, step, gradient) * step
    # Rounding leaks out of F^ where nothing sees it; the same logits have one representative inside.
    decoder = project_on_data_subspace(best, problem.S, R) @ U.T
    certificate = problem.certify(decoder, problem.distribution(decoder))
    done = certificate.holds(1e-8)
    status = "optimal" if done else "iteration limit reached; the minimum lies far out"
    dual = problem.distribution(decoder)
    return Solution(decoder, dual, certificate, status, iteration, time.perf_counter() - began, done)


def _newton_step(problem: ReducedLoss, q: Float, gradient: Float, tolerance: float) -> Float:
    H, weight = problem.H, q * problem.pi

    def hessian(X: Float) -> Float:
        L = X @ H
        mean = np.sum(q * L, axis=0)
        return np.asarray((weight * (L - mean)) @ H.T)

    step, residual = np.zeros(gradient.shape), -gradient
    direction, size = residual, float(np.vdot(residual, residual))
    small = tolerance**2 * size
    # Directions that no context sees have no curvature; rounding must not be divided by it.
    flat = 1e-14 * float(problem.pi @ np.einsum("dj,dj->j", H, H))
    for _ in range(2 * gradient.size + 50):
        image = hessian(direction)
        curvature = float(np.vdot(direction, image))
        if curvature <= flat * float(np.vdot(direction, direction)):
            break
        length = size / curvature
        step, residual = step + length * direction, residual - length * image
        smaller = float(np.vdot(residual, residual))
        if smaller <= small:
            break
        direction, size = residual + (smaller / size) * direction, smaller
    return step


def _length(problem: ReducedLoss, W: Float, step: Float, gradient: Float) -> float:
    """Backtrack until the slope along the step is no longer uphill by more than rounding: convex, so safe."""
    slope = float(np.vdot(gradient, step))
    length = 1.0
    for _ in range(60):
        there = float(np.vdot(problem.gradient(W + length * step), step))
        if there <= 0.9 * abs(slope):
            break
        length *= 0.5
    return length
