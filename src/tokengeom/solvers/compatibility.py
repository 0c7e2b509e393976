"""The compatibility system: W_star, or the proof that it does not exist.

Small systems are solved by a dense SVD of the ``sum_j (|S_j| - 1)`` equations, whose rank is then exact to rounding;
large ones by conjugate gradients on the same equations (``fit_on_face``). A linear program, ``min ||y||_1  s.t.  y^T
E = 0, y^T b = 1``, makes a refutation of a small system sparse: it then names few contexts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.base import Solution
from tokengeom.problems.compatibility import CompatibilitySystem
from tokengeom.problems.supports import centre_on
from tokengeom.solvers.conjugate_gradients import fit_on_face
from tokengeom.solvers.least_distance import equality_multipliers, equality_rows
from tokengeom.solvers.ntp_svm import orthonormal_factor

CONSISTENT = 1e-9
"""Log-probabilities have relative errors of 1e-16: a relative residual above this is a contradiction, not rounding."""
MOST_DENSE_ENTRIES = 2_000_000
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
    W, Y, residual, iterations = _dense(S, B, R) if _is_small(S, R) else _iterative(S, B, R)
    if float(np.linalg.norm(residual)) <= CONSISTENT * max(float(np.linalg.norm(B)), 1e-300):
        found = W @ U.T
        certificate = problem.certify(found, Y)
        solution = Solution(found, Y, certificate, "solved", iterations, time.perf_counter() - began)
        return CompatibilityAnswer(True, solution)
    few = _is_small(S, R) and int(S.sum()) - S.shape[1] <= MOST_ROWS_SPARSE
    refutation = _sparsest(problem, residual, R) if few else residual
    zero = np.zeros((S.shape[0], problem.H.shape[0]))
    took = time.perf_counter() - began
    solution = Solution(zero, refutation, problem.refute(refutation), "contradictory", iterations, took)
    return CompatibilityAnswer(False, solution)


def project_on_data_subspace(W: Float, S: Bool, R: Float) -> Float:
    """Projection of W (V x r) on ``F = span{(e_z - e_z') h_j^T : z, z' in S_j}``, for embeddings R (r x m)."""
    B = centre_on(S, W @ R)
    return _dense(S, B, R)[0] if _is_small(S, R) else _iterative(S, B, R)[0]


def _is_small(S: Bool, R: Float) -> bool:
    rows = int(S.sum()) - S.shape[1]
    return bool(rows * S.shape[0] * R.shape[0] <= MOST_DENSE_ENTRIES)


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
    found = [-np.diff(B[S[:, j], j]) for j in range(S.shape[1])]
    return np.concatenate(found)


def _sparsest(problem: CompatibilitySystem, residual: Float, R: Float) -> Float:
    E, b = equality_rows(problem.S, R), pair_differences(problem.S, problem.target)
    scale = float(np.max(np.abs(E)))
    equations = np.vstack([E.T / scale, b])
    right = np.zeros(len(equations))
    right[-1] = 1.0
    from scipy.optimize import linprog

    found = linprog(np.ones(2 * len(E)), A_eq=np.hstack([equations, -equations]), b_eq=right, method="highs")
    if found.x is None:
        return residual
    y = found.x[: len(E)] - found.x[len(E) :]
    Y = equality_multipliers(problem.S, np.where(np.abs(y) > 1e-9 * np.max(np.abs(y)), y, 0.0))
    T = problem.S & Y.any(axis=0)
    Y = fit_on_face(T, centre_on(T, Y), R).residual
    certificate = problem.refute(Y)
    proven = certificate.primal_residual <= 1e-12 and abs(certificate.value) > 1e-6
    return Y if proven else residual
