"""The gamma_2 norm as a semidefinite program, solved by cvxpy."""

from __future__ import annotations

import cvxpy as cp

from tokengeom.core.numerics import Float


def semidefinite_norm(V: int, m: int) -> tuple[cp.Expression, cp.Expression, list[cp.Constraint]]:
    """A V x m block L, its gamma_2 norm t, and constraints: ``[[A, L], [L^T, B]]`` psd with diagonals at most t."""
    whole, t = cp.Variable((V + m, V + m), PSD=True), cp.Variable()
    return whole[:V, V:], t, [cp.diag(whole) <= t]


def semidefinite_gamma2(given: Float) -> float:
    """``gamma_2`` of a matrix."""
    L, t, constraints = semidefinite_norm(*given.shape)
    return float(cp.Problem(cp.Minimize(t), [*constraints, given == L]).solve(solver="CLARABEL"))


def semidefinite_point(P: Float, pi: Float, lam: float) -> float:
    """Smallest ``CE(L) + lam gamma_2(L)``, with the entropy floor."""
    V, m = P.shape
    L, t, constraints = semidefinite_norm(V, m)
    loss = sum(pi[j] * (cp.log_sum_exp(L[:, j]) - P[:, j] @ L[:, j]) for j in range(m))
    return float(cp.Problem(cp.Minimize(loss + lam * t), constraints).solve(solver="CLARABEL"))
