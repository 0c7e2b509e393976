"""NTP-SVM in the Frobenius norm by accelerated gradient, for large problems: solve the dual, or refute separability.

The dual method solves

::

    min_A ||A H^T||_F^2 / 2 - <S, A>  s.t.  1^T A = 0,  A <= 0 off support

whose solution gives ``W = A H^T``. The projection on the constraints is column-wise and cheap, and a gradient costs
two products with H. Once the active pairs repeat, the problem on them is a linear system (``solve_on_face``), which
conjugate gradients solve to the last digits. Nothing of size (V d)^2 or (V m)^2 is ever formed.

The refutation minimises the violation of the margin constraints,

::

    min_W dist(W H, S + C)^2 / 2,    C = {L : equal on support, not larger off support}

The minimum is attained, and its residual ``A = P(W H) - W H`` lies in the dual cone with ``A H^T = 0`` (the gradient
in W). So ``A = 0`` if the data are separable; otherwise A is a convex combination of constraint normals that
vanishes. On the active pairs the problem is least squares (``fit_on_face``).

Both use Nesterov's momentum, restarted whenever it points uphill [odonoghue2015].
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.base import Certificate, Solution
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.supports import centre_on, cone_levels, project_on_dual_cone
from tokengeom.solvers.conjugate_gradients import fit_on_face, solve_on_face

CHECK_EVERY = 25
CHECK_REFUTATION_EVERY = 50
SETTLED = 1e-4
"""Share of pairs that may still become active or inactive between two checks when conjugate gradients are tried."""


@dataclass
class Momentum:
    """Nesterov's momentum with restarts: the last point ``x``, and the extrapolated point ``ahead``."""

    x: Float
    ahead: Float
    weight: float = 1.0

    @staticmethod
    def at(x: Float) -> Momentum:
        """A start at x, without momentum."""
        return Momentum(x, x)

    def move(self, new: Float) -> None:
        """Move to ``found``, a descent step from ``ahead``; restart where the momentum points uphill."""
        uphill = np.vdot(self.ahead - new, new - self.x) > 0
        longer = 1.0 if uphill else (1.0 + np.sqrt(1.0 + 4.0 * self.weight**2)) / 2.0
        self.ahead = new if uphill else new + ((self.weight - 1.0) / longer) * (new - self.x)
        self.x, self.weight = new, longer


def solve_accelerated_dual(
    problem: MarginProblem,
    tolerance: float = 1e-9,
    max_iterations: int = 20_000,
    start: Float | None = None,
) -> Solution[Float, Float]:
    """W_mm with a certificate within ``tolerance``, or the unconverged state after ``max_iterations``."""
    began = time.perf_counter()
    S, H = problem.S, problem.H
    target = S.astype(np.float64)
    step = 1.0 / float(np.linalg.norm(H, 2) ** 2)
    state, levels, seen = Momentum.at(np.zeros(S.shape) if start is None else start), None, S
    for iteration in range(1, max_iterations + 1):
        gradient = (state.ahead @ H.T) @ H - target
        multipliers, levels = project_on_dual_cone(state.ahead - step * gradient, S, levels)
        state.move(multipliers)
        if iteration % CHECK_EVERY and iteration < max_iterations:
            continue
        certificate = problem.certify(state.x @ H.T, state.x)
        T = S | (state.x < 0)
        if not certificate.holds(tolerance) and np.count_nonzero(seen != T) <= SETTLED * T.size:
            better = _subspace_step(problem, state.x, T, tolerance)
            if better is not None:
                A, certificate = better
                state = Momentum.at(A)
        seen = T
        if certificate.holds(tolerance):
            break
    done = certificate.holds(tolerance)
    status = "optimal" if done else "stopped at the iteration limit; raise it if the data are separable"
    took = time.perf_counter() - began
    return Solution(np.asarray(state.x @ H.T), state.x, certificate, status, iteration, took, done)


def _subspace_step(problem: MarginProblem, A: Float, T: Bool, tolerance: float) -> tuple[Float, Certificate] | None:
    """The best multipliers on the active pairs; unless they prove optimality, their projection if it is better."""
    multipliers = solve_on_face(T, problem.S, problem.H, A, 0.1 * tolerance)
    certificate = problem.certify(multipliers @ problem.H.T, multipliers)
    if certificate.holds(tolerance):
        return multipliers, certificate
    feasible, _ = project_on_dual_cone(multipliers, problem.S)
    if _objective(problem, feasible) >= _objective(problem, A):
        return None
    return feasible, problem.certify(feasible @ problem.H.T, feasible)


def _objective(problem: MarginProblem, A: Float) -> float:
    return 0.5 * float(np.linalg.norm(A @ problem.H.T) ** 2) - float(np.sum(A, where=problem.S))


def refute_by_least_violation(
    problem: MarginProblem, start: Float, max_iterations: int, tolerance: float = 1e-10
) -> tuple[Float | None, Float]:
    """Multipliers that prove non-separability (or ``None``), and the last W (V x d) for a later start."""
    S, H = problem.S, problem.H
    target = S.astype(np.float64)
    step = 1.0 / float(np.linalg.norm(H, 2) ** 2)
    state, levels = Momentum.at(start), None
    for iteration in range(1, max_iterations + 1):
        Y = state.ahead @ H - target
        levels, T = cone_levels(Y, S, levels)
        descent = np.where(T, levels - Y, 0.0) @ H.T
        state.move(state.ahead + step * descent)
        if iteration % CHECK_REFUTATION_EVERY == 0:
            A = fit_on_face(T, centre_on(T, target - state.x @ H), H, 0.1 * tolerance, 60, restarts=1).residual
            if _refutes(problem, A, tolerance):
                return A, state.x
    return None, state.x


def _refutes(problem: MarginProblem, A: Float, tolerance: float) -> bool:
    # A tiny residual means that the data are separable and nearly separated, not that they are refuted.
    if float(np.max(np.abs(A))) < 1e-6:
        return False
    certificate = problem.refute(A)
    return max(certificate.primal_residual, certificate.dual_residual) <= tolerance
