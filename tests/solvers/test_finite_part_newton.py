"""The reduced loss against a general minimiser, on data that need not be separable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize

from linear_cases import CERTIFIED, linear_data
from linear_instances import overparameterised
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.linear_limit import ReducedLoss
from tokengeom.solvers.finite_part import projection_on_data_subspace, solve_reduced_loss


def problem_of(data: LinearData) -> ReducedLoss:
    """The loss over the whole vocabulary, whose minimum is attained where all supports are full."""
    return ReducedLoss(np.ones_like(data.S), 0.5 * data.P + 0.5 / data.V, data.pi, data.H)


@given(data=linear_data(most_tokens=4, most_contexts=5, most_dimensions=3))
@settings(max_examples=20, deadline=None)
def test_the_minimum_is_that_of_a_general_minimiser(data: LinearData) -> None:
    problem = problem_of(data)
    shape = (data.V, data.d)
    found = solve_reduced_loss(problem)
    peer = minimize(
        lambda w: problem.value(w.reshape(shape)),
        np.zeros(data.V * data.d),
        jac=lambda w: problem.gradient(w.reshape(shape)).ravel(),
        method="BFGS",
        options={"gtol": 1e-10},
    )
    assert found.converged
    assert found.certificate.holds(CERTIFIED)
    assert found.certificate.value <= peer.fun + 1e-12
    assert found.certificate.value == pytest.approx(peer.fun, abs=1e-6)


def test_the_minimiser_lies_in_the_data_subspace_from_every_start() -> None:
    data = overparameterised(0, V=6, d=4, m=12, size=3, n=200)
    problem = problem_of(data)
    start = np.random.default_rng(0).standard_normal((6, 4))
    from_zero, elsewhere = solve_reduced_loss(problem), solve_reduced_loss(problem, start)
    assert np.allclose(from_zero.x, elsewhere.x, atol=1e-8)
    assert np.allclose(projection_on_data_subspace(problem.S, data.H)(from_zero.x), from_zero.x, atol=1e-10)


def test_an_unfinished_solve_says_so() -> None:
    data = overparameterised(0, V=6, d=4, m=12, size=3, n=200)
    found = solve_reduced_loss(problem_of(data), max_iterations=1)
    assert not found.converged
    assert "iteration limit" in found.status
