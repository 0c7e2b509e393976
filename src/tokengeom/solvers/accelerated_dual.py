"""NTP-SVM in the Frobenius norm by accelerated projected gradient on the dual, then conjugate gradients.

::

    min_A ||A H^T||_F^2 / 2 - <S, A>  s.t.  1^T A = 0,  A <= 0 off support

The projection on the constraints is column-wise and cheap (``problems.columns``), a gradient costs two
products with H, and ``W = A H^T``. Nesterov's momentum is dropped whenever it points uphill [odonoghue2015].
Once the active pairs repeat, the problem on them is the linear system ``Pi_T(A H^T H) = Pi_T(S)``, T the
supports with the active pairs; conjugate gradients give it the last digits. Nothing of size (V d)^2 or (V
m)^2 is ever formed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.numerics import Bool
from tokengeom.problems.base import Certificate, Solution
from tokengeom.problems.supports import centre_on, project_on_dual_cone

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.ntp_svm import MarginProblem

CHECK_EVERY = 25
# Share of pairs that may still change sides between two checks when conjugate gradients are tried.
SETTLED = 1e-4


def solve_accelerated_dual(
    problem: MarginProblem,
    tolerance: float = 1e-9,
    max_iterations: int = 20_000,
    start: Float | None = None,
) -> Solution[Float, Float]:
    """Solve to a certificate within ``tolerance``, or stop unconverged at ``max_iterations``."""
    began = time.perf_counter()
    S, H = problem.S, problem.H
    target = S.astype(np.float64)
    step = 1.0 / float(np.linalg.norm(H, 2) ** 2)
    A = np.zeros(S.shape) if start is None else start
    ahead, momentum, levels, seen = A, 1.0, None, S
    for iteration in range(1, max_iterations + 1):
        gradient = (ahead @ H.T) @ H - target
        found, levels = project_on_dual_cone(ahead - step * gradient, S, levels)
        uphill = np.vdot(ahead - found, found - A) > 0
        longer = 1.0 if uphill else (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = found if uphill else found + ((momentum - 1.0) / longer) * (found - A)
        A, momentum = found, longer
        if iteration % CHECK_EVERY and iteration < max_iterations:
            continue
        certificate = problem.certify(A @ H.T, A)
        T = S | (A < 0)
        if not certificate.holds(tolerance) and np.count_nonzero(seen != T) <= SETTLED * T.size:
            better = _subspace_step(problem, A, T, tolerance)
            if better is not None:
                A, certificate = better
                ahead, momentum = A, 1.0
        seen = T
        if certificate.holds(tolerance):
            break
    done = certificate.holds(tolerance)
    status = "optimal" if done else "stopped at the iteration limit; raise it if the data are separable"
    took = time.perf_counter() - began
    return Solution(np.asarray(A @ H.T), A, certificate, status, iteration, took, done)


def _subspace_step(problem: MarginProblem, A: Float, T: Bool, tolerance: float) -> tuple[Float, Certificate] | None:
    """Find the best multipliers on the active pairs; unless they prove optimality, project and compare."""
    found = solve_on_face(problem, A, T, 0.1 * tolerance)
    certificate = problem.certify(found @ problem.H.T, found)
    if certificate.holds(tolerance):
        return found, certificate
    feasible, _ = project_on_dual_cone(found, problem.S)
    if _objective(problem, feasible) >= _objective(problem, A):
        return None
    return feasible, problem.certify(feasible @ problem.H.T, feasible)


def _objective(problem: MarginProblem, A: Float) -> float:
    return 0.5 * float(np.linalg.norm(A @ problem.H.T) ** 2) - float(np.sum(A, where=problem.S))


def solve_on_face(problem: MarginProblem, A: Float, T: Bool, tolerance: float, max_iterations: int = 150) -> Float:
    """``Pi_T(A H^T H) = Pi_T(S)`` over A in the range of ``Pi_T``, by conjugate gradients from A."""
    H = problem.H
    X = centre_on(T, A)
    target = centre_on(T, problem.S.astype(np.float64))
    residual = target - centre_on(T, (X @ H.T) @ H)
    direction, size = residual, float(np.vdot(residual, residual))
    unseen = 1e-15 * float(np.vdot(H, H))
    for _ in range(max_iterations):
        if np.max(np.abs(residual)) <= tolerance:
            break
        image = centre_on(T, (direction @ H.T) @ H)
        curvature = float(np.vdot(direction, image))
        # On a face with dependent constraints what is left may be a direction that the embeddings do not see.
        if curvature <= unseen * float(np.vdot(direction, direction)):
            break
        length = size / curvature
        X = X + length * direction
        residual = residual - length * image
        smaller = float(np.vdot(residual, residual))
        direction, size = residual + (smaller / size) * direction, smaller
    return X
