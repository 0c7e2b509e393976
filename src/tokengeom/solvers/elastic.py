"""Proof that nothing separates, for large problems: least violation of the margin constraints.

::

    min_W dist(W H, S + C)^2 / 2,    C = {L : equal on support, not larger off support}

is attained, and its residual ``A = P(W H) - W H`` lies in the dual cone with ``A H^T = 0`` (the gradient in
W). So ``A = 0`` if the data are separable, and otherwise A is a convex combination of constraint normals that
vanishes. Accelerated gradient with restarts finds the active pairs T; on them the problem is least squares,
which conjugate gradients solve to the last digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokengeom.problems.supports import centre_on, cone_levels
from tokengeom.solvers.face_least_squares import fit_on_face

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.ntp_svm import MarginProblem

CHECK_EVERY = 50


def refute_by_least_violation(
    problem: MarginProblem, start: Float, max_iterations: int, tolerance: float = 1e-10
) -> tuple[Float | None, Float]:
    """Multipliers that prove non-separability (or ``None``), and the last W (V x d) for a later start."""
    S, H = problem.S, problem.H
    target = S.astype(np.float64)
    step = 1.0 / float(np.linalg.norm(H, 2) ** 2)
    W, ahead, momentum, levels = start, start, 1.0, None
    for iteration in range(1, max_iterations + 1):
        Y = ahead @ H - target
        levels, T = cone_levels(Y, S, levels)
        descent = np.where(T, levels - Y, 0.0) @ H.T
        found = ahead + step * descent
        uphill = np.vdot(ahead - found, found - W) > 0
        longer = 1.0 if uphill else (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = found if uphill else found + ((momentum - 1.0) / longer) * (found - W)
        W, momentum = found, longer
        if iteration % CHECK_EVERY == 0:
            A = fit_on_face(T, centre_on(T, target - W @ H), H, 0.1 * tolerance, 60, restarts=1).residual
            if _proves(problem, A, tolerance):
                return A, W
    return None, W


def _proves(problem: MarginProblem, A: Float, tolerance: float) -> bool:
    # A residual that is itself tiny says "separable, nearly reached", not "refuted".
    if float(np.max(np.abs(A))) < 1e-6:
        return False
    certificate = problem.refute(A)
    return max(certificate.primal_residual, certificate.dual_residual) <= tolerance
