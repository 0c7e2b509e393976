"""NTP-SVM against cvxpy, scikit-learn, closed forms, and one method against another."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.svm import LinearSVC

from linear_cases import CERTIFIED, EXACT, INTERIOR, linear_data, margin_constraints, random_data
from linear_instances import LinearInstance, clusters, linear_catalogue, overparameterised
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.solvers.accelerated_gradient import solve_accelerated_dual
from tokengeom.solvers.block_pivoting import solve_by_block_pivoting
from tokengeom.solvers.least_distance import solve_least_distance
from tokengeom.solvers.ntp_svm import orthonormal_factor, solve_ntp_svm


@given(data=linear_data())
@settings(max_examples=40, deadline=None)
def test_cvxpy_finds_the_same_norm_or_the_same_infeasibility(data: LinearData) -> None:
    answer = solve_ntp_svm(MarginProblem(data.S, data.H))
    W = cp.Variable((data.V, data.d))
    problem = cp.Problem(cp.Minimize(cp.sum_squares(W)), margin_constraints(W, data.S, data.H))
    if not problem.constraints:
        assert not answer.solution.x.any()
        return
    problem.solve(solver=cp.CLARABEL)
    if answer.separable:
        size = np.linalg.norm(answer.solution.x)
        assert answer.solution.certificate.holds(CERTIFIED)
        if size < 1e3:  # past that an interior-point method calls a feasible problem infeasible
            assert np.sqrt(problem.value) == pytest.approx(size, rel=INTERIOR)
            assert np.allclose(W.value, answer.solution.x, atol=1e-4 * size)
    else:
        assert answer.solution.certificate.holds(CERTIFIED)
        assert problem.status in ("infeasible", "infeasible_inaccurate")


@pytest.mark.parametrize("instance", linear_catalogue(), ids=lambda instance: instance.name)
def test_known_instances_have_their_known_answers(instance: LinearInstance) -> None:
    answer = solve_ntp_svm(MarginProblem(instance.data.S, instance.data.H))
    assert answer.separable is instance.separable
    assert answer.solution.certificate.holds(EXACT)
    if instance.norm is not None:
        assert np.linalg.norm(answer.solution.x) == pytest.approx(instance.norm, rel=1e-12)


def test_one_hot_data_is_crammer_and_singers_machine() -> None:
    rng = np.random.default_rng(3)
    V, d, m = 4, 12, 10
    labels = np.concatenate([np.arange(V), rng.integers(V, size=m - V)])
    H = rng.standard_normal((d, m))
    S = np.zeros((V, m), dtype=bool)
    S[labels, np.arange(m)] = True
    ours = solve_ntp_svm(MarginProblem(S, H)).solution.x
    machine = LinearSVC(
        multi_class="crammer_singer", C=1e6, fit_intercept=False, tol=1e-9, max_iter=1_000_000, random_state=0
    )
    theirs = machine.fit(H.T, labels).coef_
    # Crammer and Singer do not centre over classes, but their minimiser is centred too.
    assert np.allclose(ours, theirs, atol=1e-5 * np.abs(ours).max())


@pytest.mark.parametrize("seed", range(4))
def test_three_methods_agree_where_all_apply(seed: int) -> None:
    data = overparameterised(seed, V=7, d=30, m=24, size=3, n=500)
    problem = MarginProblem(data.S, data.H)
    R, U = orthonormal_factor(data.H)
    pivoting = solve_by_block_pivoting(problem)
    assert pivoting is not None
    found = [pivoting, solve_accelerated_dual(problem), solve_least_distance(problem, R, U).solution]
    for solution in found:
        assert solution.certificate.holds(CERTIFIED)
        assert np.allclose(solution.x, found[0].x, atol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_the_papers_setting_is_solved_to_rounding(seed: int) -> None:
    data = overparameterised(seed)
    answer = solve_ntp_svm(MarginProblem(data.S, data.H))
    assert answer.separable
    assert answer.solution.certificate.holds(1e-12)


def test_fewer_dimensions_than_contexts_still_separate_by_the_dual_method() -> None:
    data = overparameterised(0, V=50, d=40, m=100, size=6, n=20_000)
    problem = MarginProblem(data.S, data.H)
    answer = solve_ntp_svm(problem)
    assert answer.separable
    assert answer.solution.certificate.holds(CERTIFIED)


def test_large_data_far_from_separable_are_refuted_with_a_proof() -> None:
    data = overparameterised(0, V=50, d=80, m=300, size=10, n=20_000)
    problem = MarginProblem(data.S, data.H)
    answer = solve_ntp_svm(problem)
    assert not answer.separable
    assert answer.solution.dual is not None
    assert problem.refute(answer.solution.dual).holds(1e-10)


def test_at_the_iteration_limit_a_decoder_that_separates_is_returned_with_its_gap() -> None:
    data = clusters(10, 25, 50, 0.3)
    problem = MarginProblem(data.S, data.H)
    answer = solve_ntp_svm(problem, max_iterations=1000, tolerance=1e-14)
    assert answer.separable
    assert not answer.solution.converged
    assert "stopped after 1000 iterations" in answer.solution.status
    assert answer.solution.certificate.primal_residual < 1e-9
    assert answer.solution.certificate.relative_gap < 0.1


def test_relabelling_tokens_and_permuting_contexts_moves_the_answer_alike() -> None:
    rng = np.random.default_rng(5)
    data = overparameterised(2, V=6, d=9, m=8, size=3, n=100)
    W = solve_ntp_svm(MarginProblem(data.S, data.H)).solution.x
    tokens, contexts = rng.permutation(6), rng.permutation(8)
    moved = solve_ntp_svm(MarginProblem(data.S[tokens][:, contexts], data.H[:, contexts])).solution.x
    assert np.allclose(moved, W[tokens], atol=EXACT)


def test_rotating_embeddings_rotates_the_answer_and_repeating_a_context_changes_nothing() -> None:
    rng = np.random.default_rng(6)
    data = overparameterised(3, V=6, d=9, m=8, size=3, n=100)
    W = solve_ntp_svm(MarginProblem(data.S, data.H)).solution.x
    Q = np.linalg.qr(rng.standard_normal((9, 9)))[0]
    assert np.allclose(solve_ntp_svm(MarginProblem(data.S, Q @ data.H)).solution.x, W @ Q.T, atol=EXACT)
    twice = MarginProblem(np.hstack([data.S, data.S[:, :1]]), np.hstack([data.H, data.H[:, :1]]))
    assert np.allclose(solve_ntp_svm(twice).solution.x, W, atol=1e-8)


def test_dimensions_in_the_thousands_cost_little() -> None:
    data = overparameterised(0, V=30, d=2000, m=200, size=5, n=20_000)
    answer = solve_ntp_svm(MarginProblem(data.S, data.H))
    assert answer.solution.certificate.holds(CERTIFIED)
    assert answer.solution.iterations <= 200


def test_scaling_embeddings_scales_the_answer_inversely() -> None:
    data = random_data(np.random.default_rng(8), 5, 4, 6)
    W = solve_ntp_svm(MarginProblem(data.S, data.H)).solution.x
    for scale in (1e-6, 1e6):
        scaled = solve_ntp_svm(MarginProblem(data.S, scale * data.H))
        assert scaled.separable
        assert np.allclose(scaled.solution.x * scale, W, atol=1e-8 * np.abs(W).max())
