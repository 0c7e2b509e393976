"""The reduced loss by Newton's method, with conjugate gradients for the Newton step.

The Hessian maps X to ``sum_j pi_j (diag q_j - q_j q_j^T) X h_j h_j^T``, two products with H. From ``W = 0`` every
gradient, and so every step, stays in ``F^``, where the loss is strictly convex and the minimum is attained
(docs/theory.md 2.2).
"""

from __future__ import annotations

import time

import numpy as np

from tokengeom.core.numerics import Float
from tokengeom.problems.base import Solution
from tokengeom.problems.effective_support import ReducedLoss
from tokengeom.solvers.compatibility import project_on_data_subspace
from tokengeom.solvers.conjugate_gradients import conjugate_gradients
from tokengeom.solvers.ntp_svm import orthonormal_factor


def solve_reduced_loss(
    problem: ReducedLoss, start: Float | None = None, tolerance: float = 1e-15, max_iterations: int = 200
) -> Solution[Float, Float]:
    """The minimiser, to a moment residual within ``tolerance``; its dual is the distribution on effective supports."""
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
        # At the level of rounding the residual stops falling, and further steps do not improve it.
        rounding = size < 1e-10 and size > 0.5 * best_size
        if size < best_size:
            best, best_size = W, size
        if size <= tolerance or rounding:
            break
        # The gradient is a sum of terms that cancel, so it has noise of 1e-16 along directions without curvature;
        # conjugate gradients to a smaller residual would divide that noise by 0.
        noise = 1e-15 / size
        step = _newton_step(reduced, q, gradient, min(0.1, max(size, noise)))
        W = W + _length(reduced, W, step, gradient) * step
    # Rounding leaves F^ in directions that change no logit; the same logits have one representative inside.
    decoder = project_on_data_subspace(best, problem.S, R) @ U.T
    certificate = problem.certify(decoder, problem.distribution(decoder))
    done = certificate.holds(1e-8)
    status = "optimal" if done else "stopped at the iteration limit: the minimiser is very large"
    dual = problem.distribution(decoder)
    return Solution(decoder, dual, certificate, status, iteration, time.perf_counter() - began, done)


def _newton_step(problem: ReducedLoss, q: Float, gradient: Float, tolerance: float) -> Float:
    H, weight = problem.H, q * problem.pi

    def hessian(X: Float) -> Float:
        L = X @ H
        mean = np.sum(q * L, axis=0)
        return np.asarray((weight * (L - mean)) @ H.T)

    small = tolerance**2 * float(np.vdot(gradient, gradient))
    return conjugate_gradients(
        hessian,
        -gradient,
        stop=lambda residual, _: float(np.vdot(residual, residual)) <= small,
        flat=1e-14 * float(problem.pi @ np.einsum("dj,dj->j", H, H)),
        max_iterations=2 * gradient.size + 50,
    ).x


def _length(problem: ReducedLoss, W: Float, step: Float, gradient: Float) -> float:
    """Length of the step, halved until the slope at its end is at most 0.9 of its size at the start."""
    slope = float(np.vdot(gradient, step))
    length = 1.0
    for _ in range(60):
        there = float(np.vdot(problem.gradient(W + length * step), step))
        if there <= 0.9 * abs(slope):
            break
        length *= 0.5
    return length
