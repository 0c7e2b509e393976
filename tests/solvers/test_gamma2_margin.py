"""The margin problem in the gamma_2 norm with features, compared with the semidefinite program of cvxpy."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from tokengeom.problems.ntp_svm import NORMS, MarginProblem
from tokengeom.solvers.gamma2_margin import solve_gamma2_margin, weighted_norm
from tokengeom.solvers.margin import solve_margin


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_optimum_of_the_semidefinite_program_lies_between_bound_and_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    V, m = 6, 8
    S = rng.random((V, m)) < 0.3
    S[rng.integers(0, V, m), np.arange(m)] = True
    S[0] &= ~S.all(axis=0)
    Phi = np.vstack([rng.standard_normal((4, m)), np.eye(m)])
    problem = MarginProblem(S, Phi, NORMS["nuclear"])
    start = solve_margin(problem, 3e-2).solution
    assert start.dual is not None
    found = solve_gamma2_margin(problem, start.x, start.dual, 1e-2)
    F = Phi.shape[0]
    square, t, level = cp.Variable((V + F, V + F), PSD=True), cp.Variable(), cp.Variable(m)
    L = square[:V, V:] @ Phi
    margins = [L[z, j] == level[j] if S[z, j] else L[z, j] <= level[j] - 1 for z in range(V) for j in range(m)]
    best = cp.Problem(cp.Minimize(t), [cp.diag(square) <= t, *margins]).solve(solver=cp.SCS, eps=1e-8)
    assert found.certificate.bound - 1e-5 <= best <= found.certificate.value + 1e-5
    assert found.certificate.relative_gap <= 1e-2
    assert found.certificate.primal_residual < 1e-9
    rows, columns = (found.factors.W**2).sum(axis=1), (found.factors.H**2).sum(axis=0)
    assert max(rows.max(), columns.max()) <= found.certificate.value * (1 + 1e-9)
    r, c = map(np.sqrt, found.weights)
    again = MarginProblem(S, Phi, weighted_norm(r, c)).bound(found.dual)
    assert again == pytest.approx(found.certificate.bound)
