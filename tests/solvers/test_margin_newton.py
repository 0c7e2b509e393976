"""Spectral and nuclear margins of tight clusters against cvxpy, and Newton's method on the augmented Lagrangian."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse

from linear_instances import clusters, overparameterised
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.ntp_svm import NORMS, MarginProblem
from tokengeom.solvers import margin_newton
from tokengeom.solvers.least_distance import equality_rows, margin_rows
from tokengeom.solvers.margin import solve_margin
from tokengeom.solvers.margin_newton import solve_singular_margin
from tokengeom.solvers.margin_splitting import Point, ScaledMargin, split
from tokengeom.solvers.ntp_svm import orthonormal_factor, solve_ntp_svm

OBJECTIVE = {"spectral": cp.sigma_max, "nuclear": cp.normNuc}
# Tokens, spread of the clusters, norm, and the value that cvxpy + Clarabel found (test_clarabel_finds_these_values).
CLUSTERS = [
    (10, 0.1, "spectral", 2.4082734),
    (10, 0.1, "nuclear", 16.1003948),
    (15, 0.1, "spectral", 2.1209004),
    (15, 0.1, "nuclear", 23.4701991),
]


def by_clarabel(data: LinearData, norm: str) -> float:
    W = cp.Variable((data.V, data.d))
    w = cp.vec(W, order="C")
    constraints = [sparse.csr_array(margin_rows(data.S, data.H)) @ w >= 1]
    equal = equality_rows(data.S, data.H)
    if len(equal):
        constraints.append(sparse.csr_array(equal) @ w == 0)
    problem = cp.Problem(cp.Minimize(OBJECTIVE[norm](W)), constraints)
    # At its default of 1e-8 Clarabel says that its answer may be inaccurate.
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-7, tol_gap_rel=1e-7, tol_feas=1e-7)
    return float(problem.value)


@pytest.mark.parametrize(("V", "spread", "norm", "value"), CLUSTERS)
def test_tight_clusters_are_solved_to_a_proven_gap(V: int, spread: float, norm: str, value: float) -> None:
    data = clusters(V, 25, 50, spread)
    solution = solve_margin(MarginProblem(data.S, data.H, NORMS[norm])).solution
    assert solution.converged
    assert solution.certificate.holds(1e-6)
    assert solution.certificate.value == pytest.approx(value, rel=2e-6)


@pytest.mark.slow
# Clarabel stops short of its own tolerance on these, with an answer that is correct to seven digits.
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize(("V", "spread", "norm", "value"), CLUSTERS)
def test_clarabel_finds_these_values(V: int, spread: float, norm: str, value: float) -> None:
    assert by_clarabel(clusters(V, 25, 50, spread), norm) == pytest.approx(value, rel=2e-6)


# Whether Clarabel says so depends on the version of NumPy; its value is compared all the same.
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("norm", OBJECTIVE)
def test_clarabel_finds_the_same_margin_of_small_clusters(norm: str) -> None:
    data = clusters(10, 10, 5)
    certificate = solve_margin(MarginProblem(data.S, data.H, NORMS[norm])).solution.certificate
    assert certificate.holds(1e-6)
    assert certificate.value == pytest.approx(by_clarabel(data, norm), rel=5e-6)


@pytest.mark.parametrize("norm", OBJECTIVE)
@pytest.mark.parametrize("spread", [0.01, 0.3])
def test_wider_and_tighter_clusters_are_solved_too(norm: str, spread: float) -> None:
    data = clusters(10, 25, 50, spread)
    assert solve_margin(MarginProblem(data.S, data.H, NORMS[norm])).solution.certificate.holds(1e-6)


@pytest.mark.parametrize("norm", OBJECTIVE)
def test_ten_thousand_unknowns_are_solved(norm: str) -> None:
    data = overparameterised(0, V=100, d=100, m=100, size=5, n=1000)
    solution = solve_margin(MarginProblem(data.S, data.H, NORMS[norm])).solution
    assert solution.certificate.holds(1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("norm", OBJECTIVE)
@pytest.mark.parametrize(("V", "d", "per_token"), [(200, 100, 5), (500, 40, 2)])
def test_twenty_thousand_unknowns_are_solved(norm: str, V: int, d: int, per_token: int) -> None:
    data = clusters(V, d, per_token, 0.02)
    assert solve_margin(MarginProblem(data.S, data.H, NORMS[norm])).solution.certificate.holds(1e-6)


def test_at_the_iteration_limit_the_best_answer_is_returned_with_its_gap() -> None:
    data = clusters(10, 25, 20)
    problem = MarginProblem(data.S, data.H, NORMS["spectral"])
    start = solve_ntp_svm(MarginProblem(data.S, data.H)).solution
    assert start.dual is not None
    solution = solve_singular_margin(problem, start.x, start.dual, max_iterations=30)
    assert not solution.converged
    assert "stopped after 30 iterations with a proven gap of" in solution.status
    assert solution.certificate.primal_residual < 1e-9
    assert 1e-6 < solution.certificate.relative_gap < 0.5


def halfway(norm: str) -> tuple[ScaledMargin, Point]:
    """A point that ADMM has not finished."""
    data = overparameterised(1, V=7, d=9, m=12, size=3, n=100)
    R, U = orthonormal_factor(data.H)
    start = solve_ntp_svm(MarginProblem(data.S, data.H)).solution
    assert start.dual is not None
    scaled, point = ScaledMargin.of(MarginProblem(data.S, R, NORMS[norm]), start.x @ U, start.dual)
    return scaled, split(scaled, point, 1e-6, 30)[0]


@pytest.mark.parametrize("norm", OBJECTIVE)
def test_the_gradient_of_the_augmented_lagrangian_is_the_limit_of_differences(norm: str) -> None:
    scaled, point = halfway(norm)
    X = np.random.default_rng(0).standard_normal(point.W.shape)
    step = 1e-6
    after, before = (
        margin_newton._Lagrangian.at(scaled, point, point.W + sign * step * X).value for sign in (1.0, -1.0)
    )
    gradient = margin_newton._Lagrangian.at(scaled, point, point.W).gradient
    size = float(np.linalg.norm(gradient) * np.linalg.norm(X))
    assert float(np.vdot(gradient, X)) == pytest.approx((after - before) / (2 * step), abs=1e-5 * size + 1e-8)


@pytest.mark.parametrize("norm", OBJECTIVE)
def test_the_factored_newton_step_is_the_one_of_conjugate_gradients(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scaled, point = halfway(norm)
    now = margin_newton._Lagrangian.at(scaled, point, point.W)
    direct = margin_newton._newton_step(scaled, point, now)
    monkeypatch.setattr(margin_newton, "MOST_UNKNOWNS_DIRECT", 0)
    iterative = margin_newton._newton_step(scaled, point, now)
    assert np.vdot(direct, iterative) >= 0.99 * np.linalg.norm(direct) * np.linalg.norm(iterative)


@pytest.mark.parametrize("norm", OBJECTIVE)
def test_newtons_method_alone_finishes_what_admm_has_begun(norm: str) -> None:
    scaled, point = halfway(norm)
    assert scaled.best.gap > 1e-6
    margin_newton._multiply(scaled, point, 1e-8)
    assert scaled.best.gap <= 1e-8
