"""Accelerated gradient for NTP-SVM: the dual method, the refutation, and the momentum that both use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from linear_cases import CERTIFIED, linear_data
from linear_instances import overparameterised
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.solvers.accelerated_gradient import Momentum, refute_by_least_violation, solve_accelerated_dual
from tokengeom.solvers.least_distance import solve_least_distance
from tokengeom.solvers.ntp_svm import orthonormal_factor


def test_least_violation_never_refutes_separable_data() -> None:
    data = overparameterised(1, V=6, d=12, m=10, size=2, n=100)
    refutation, _ = refute_by_least_violation(MarginProblem(data.S, data.H), np.zeros((6, 12)), 500)
    assert refutation is None


@given(data=linear_data())
@settings(max_examples=25, deadline=None)
def test_the_dual_method_and_the_refuter_agree_with_least_distance(data: LinearData) -> None:
    problem = MarginProblem(data.S, data.H)
    if not problem.has_margins:
        return
    R, U = orthonormal_factor(data.H)
    exact = solve_least_distance(problem, R, U)
    size = np.linalg.norm(exact.solution.x)
    if exact.separable and size * np.linalg.norm(data.H, 2) < 50:
        found = solve_accelerated_dual(problem, max_iterations=20_000)
        assert np.linalg.norm(found.x) == pytest.approx(size, rel=1e-7)
    if not exact.separable:
        refutation, _ = refute_by_least_violation(problem, np.zeros((data.V, data.d)), 20_000)
        assert refutation is not None
        assert problem.refute(refutation).holds(CERTIFIED)


def test_a_solve_continues_from_where_another_stopped() -> None:
    data = overparameterised(0, V=7, d=30, m=24, size=3, n=500)
    problem = MarginProblem(data.S, data.H)
    first = solve_accelerated_dual(problem, max_iterations=5)
    assert not first.converged
    again = solve_accelerated_dual(problem, start=first.dual)
    assert again.converged
    assert again.certificate.holds(CERTIFIED)


def test_momentum_needs_far_fewer_steps_than_gradient_descent() -> None:
    scale = np.geomspace(1.0, 1e-3, 20)  # f(x) = sum scale x^2 / 2, smoothness 1
    state, plain = Momentum.at(np.ones(20)), np.ones(20)
    for _ in range(400):
        state.move(state.ahead - scale * state.ahead)
        plain = plain - scale * plain
    assert float(scale @ state.x**2) < 1e-6 * float(scale @ plain**2)


def test_momentum_that_points_uphill_is_dropped() -> None:
    state = Momentum(np.array([1.0]), np.array([-1.0]), weight=5.0)
    state.move(np.array([-0.5]))  # a step back towards 0, against the momentum
    assert state.weight == 1.0
    assert (state.ahead == state.x).all()
