"""W_star, the finite part of the limit of the linear model: from the compatibility system, or from the reduced loss.

**The compatibility system** is solvable, or there is a proof that it is not. Small systems are solved by a dense SVD
of the ``sum_j (|S_j| - 1)`` equations, whose rank is then exact to rounding; large ones by conjugate gradients on the
same equations (``fit_on_face``). A linear program, ``min ||y||_1  s.t.  y^T E = 0, y^T b = 1``, makes a refutation of a
small system sparse: it then names few contexts.

**The reduced loss** of other data is minimised by Newton's method, with conjugate gradients for the step. The Hessian
maps X to ``sum_j pi_j (diag q_j - q_j q_j^T) X h_j h_j^T``, two products with H. From ``W = 0`` every gradient, and so
every step, stays in ``F^``, where the loss is strictly convex and the minimum is attained (docs/theory.md 2.2).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import orth

from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.base import Solution
from tokengeom.problems.linear_limit import CompatibilitySystem, ReducedLoss
from tokengeom.problems.supports import centre_on
from tokengeom.solvers.conjugate_gradients import conjugate_gradients, fit_on_face
from tokengeom.solvers.least_distance import equality_multipliers, equality_rows, in_support_pairs
from tokengeom.solvers.ntp_svm import orthonormal_factor

CONSISTENT = 1e-9
"""Log-probabilities have relative errors of 1e-16: a relative residual above this is a contradiction, not rounding."""
MOST_DENSE_ENTRIES = 4_000_000
MOST_ROWS_SPARSE = 600


@dataclass(frozen=True)
class CompatibilityAnswer:
    """Whether the equations are solvable, and W_star with its dual, or zeros with the Y that refutes them."""

    compatible: bool
    solution: Solution[Float, Float]


def solve_compatibility(problem: CompatibilitySystem) -> CompatibilityAnswer:
    """W_star with its certificate, or a Y with ``Y H^T = 0`` and ``<Y, L_in> != 0``."""
    began = time.perf_counter()
    S, B = problem.S, problem.target
    R, U = orthonormal_factor(problem.H)
    few = has_few_equations(S, R)
    W, Y, residual, iterations = _dense(S, B, R) if few else _iterative(S, B, R)
    if float(np.linalg.norm(residual)) <= CONSISTENT * max(float(np.linalg.norm(B)), 1e-300):
        decoder = W @ U.T
        certificate = problem.certify(decoder, Y)
        solution = Solution(decoder, Y, certificate, "solved", iterations, time.perf_counter() - began)
        return CompatibilityAnswer(True, solution)
    sparse = few and int(S.sum()) - S.shape[1] <= MOST_ROWS_SPARSE
    refutation = _sparsest(problem, residual, R) if sparse else residual
    zero = np.zeros((S.shape[0], problem.H.shape[0]))
    took = time.perf_counter() - began
    solution = Solution(zero, refutation, problem.refute(refutation), "contradictory", iterations, took)
    return CompatibilityAnswer(False, solution)


def projection_on_data_subspace(S: Bool, R: Float) -> Callable[[Float], Float]:
    """Projection of decoders W (V x r) on ``F = span{(e_z - e_z') h_j^T : z, z' in S_j}``, for embeddings R (r x m).

    By a basis of F where its equations are few, otherwise by solving for each W.
    """
    if not has_few_equations(S, R):
        return lambda W: _iterative(S, centre_on(S, W @ R), R)[0]
    E = equality_rows(S, R)
    basis = orth(E.T) if E.size else E.T
    return lambda W: np.reshape(basis @ (basis.T @ W.ravel()), W.shape)


def has_few_equations(S: Bool, H: Float) -> bool:
    """Whether the equations of compatibility are few enough to factor once, in a second or two."""
    rows = int(S.sum()) - S.shape[1]
    return bool(rows * S.shape[0] * min(H.shape) <= MOST_DENSE_ENTRIES)


def _dense(S: Bool, B: Float, R: Float) -> tuple[Float, Float, Float, int]:
    E = equality_rows(S, R)
    shape = (S.shape[0], R.shape[0])
    if len(E) == 0:
        return np.zeros(shape), np.zeros(S.shape), np.zeros(S.shape), 0
    b = pair_differences(S, B)
    left, singular, right = np.linalg.svd(E, full_matrices=False)
    keep = singular > max(E.shape) * np.finfo(np.float64).eps * singular[0]
    coefficients = (left.T @ b)[keep] / singular[keep]
    W = np.reshape(right[keep].T @ coefficients, shape)
    y = left[:, keep] @ (coefficients / singular[keep])
    return W, equality_multipliers(S, y), equality_multipliers(S, b - left[:, keep] @ (left[:, keep].T @ b)), 1


def _iterative(S: Bool, B: Float, R: Float) -> tuple[Float, Float, Float, int]:
    fit = fit_on_face(S, B, R)
    return fit.W, fit.Y, fit.residual, fit.iterations


def pair_differences(S: Bool, B: Float) -> Float:
    """Differences of consecutive in-support entries, in the order of ``equality_rows``."""
    plus, minus, context = in_support_pairs(S)
    return np.asarray(B[plus, context] - B[minus, context])


def _sparsest(problem: CompatibilitySystem, residual: Float, R: Float) -> Float:
    E, b = equality_rows(problem.S, R), pair_differences(problem.S, problem.target)
    scale = float(np.max(np.abs(E)))
    equations = np.vstack([E.T / scale, b])
    right = np.zeros(len(equations))
    right[-1] = 1.0
    from scipy.optimize import linprog

    program = linprog(np.ones(2 * len(E)), A_eq=np.hstack([equations, -equations]), b_eq=right, method="highs")
    if program.x is None:
        return residual
    y = program.x[: len(E)] - program.x[len(E) :]
    Y = equality_multipliers(problem.S, np.where(np.abs(y) > 1e-9 * np.max(np.abs(y)), y, 0.0))
    T = problem.S & Y.any(axis=0)
    Y = fit_on_face(T, centre_on(T, Y), R).residual
    certificate = problem.refute(Y)
    proven = certificate.primal_residual <= 1e-12 and abs(certificate.value) > 1e-6
    return Y if proven else residual


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
    decoder = projection_on_data_subspace(problem.S, R)(best) @ U.T
    dual = problem.distribution(decoder)
    certificate = problem.certify(decoder, dual)
    done = certificate.holds(1e-8)
    status = "optimal" if done else "stopped at the iteration limit: the minimiser is very large"
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
