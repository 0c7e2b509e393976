"""The gamma_2 norm as a semidefinite program, solved by cvxpy."""

from __future__ import annotations

import cvxpy as cp

from tokengeom.core.numerics import Float


def semidefinite_norm(
    V: int, m: int, p: Float | None = None, q: Float | None = None
) -> tuple[cp.Expression, cp.Expression, list[cp.Constraint]]:
    """A V x m block L, its gamma_2 norm t, and constraints: ``[[A, L], [L^T, B]]`` psd with diagonals at most t.

    With p or q, the mean of a diagonal with these weights is at most t instead.
    """
    whole, t = cp.Variable((V + m, V + m), PSD=True), cp.Variable()
    rows, columns = cp.diag(whole)[:V], cp.diag(whole)[V:]
    sides = [rows if p is None else p @ rows, columns if q is None else q @ columns]
    return whole[:V, V:], t, [side <= t for side in sides]


def semidefinite_gamma2(given: Float) -> float:
    """``gamma_2`` of a matrix."""
    L, t, constraints = semidefinite_norm(*given.shape)
    return float(cp.Problem(cp.Minimize(t), [*constraints, given == L]).solve(solver="CLARABEL"))


def semidefinite_point(P: Float, pi: Float, lam: float, p: Float | None = None, q: Float | None = None) -> float:
    """Smallest ``CE(L) + lam gamma_2(L)``, with the entropy floor; with p or q, in the norm that holds them."""
    V, m = P.shape
    L, t, constraints = semidefinite_norm(V, m, p, q)
    loss = sum(pi[j] * (cp.log_sum_exp(L[:, j]) - P[:, j] @ L[:, j]) for j in range(m))
    return float(cp.Problem(cp.Minimize(loss + lam * t), constraints).solve(solver="CLARABEL"))
