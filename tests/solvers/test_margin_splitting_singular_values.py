"""Proximal maps of the spectral and the nuclear norm against cvxpy, and their derivatives against differences."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from tokengeom.solvers.margin_splitting import Shrunk, project_on_simplex

OBJECTIVE = {"spectral": cp.sigma_max, "nuclear": cp.normNuc}
SHAPES = [(6, 4), (4, 6), (5, 5)]


@pytest.mark.parametrize("radius", [0.5, 2.0, 100.0])
def test_the_projection_on_a_simplex_is_cvxpys(radius: float) -> None:
    s = np.random.default_rng(0).uniform(0, 1, 9)
    g = cp.Variable(9)
    cp.Problem(cp.Minimize(cp.sum_squares(g - s)), [g >= 0, cp.sum(g) <= radius]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(project_on_simplex(s, radius), g.value, atol=1e-7)


def test_a_simplex_far_smaller_than_the_point_keeps_its_largest_entry() -> None:
    found = project_on_simplex(np.array([3.0, 1.0]), 1e-20)
    assert found[1] == 0
    assert 0 <= found[0] <= 1e-15


@pytest.mark.parametrize("norm", OBJECTIVE)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_proximal_point_is_cvxpys_and_both_parts_add_up(norm: str, shape: tuple[int, int]) -> None:
    B = np.random.default_rng(1).standard_normal(shape)
    X = cp.Variable(shape)
    cp.Problem(cp.Minimize(0.8 * OBJECTIVE[norm](X) + 0.5 * cp.sum_squares(X - B))).solve(solver=cp.CLARABEL)
    found = Shrunk.of(B, norm, 0.8)
    np.testing.assert_allclose(found.proximal, X.value, atol=1e-5)
    np.testing.assert_allclose(found.proximal + found.projection, B, atol=1e-12)


@pytest.mark.parametrize("c", [0.8, 50.0])
@pytest.mark.parametrize("norm", OBJECTIVE)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_derivative_is_the_limit_of_differences(norm: str, shape: tuple[int, int], c: float) -> None:
    rng = np.random.default_rng(2)
    B, X = rng.standard_normal((2, *shape))
    step = 1e-6
    after, before = (Shrunk.of(B + sign * step * X, norm, c).projection for sign in (1, -1))
    np.testing.assert_allclose(Shrunk.of(B, norm, c).derivative()(X), (after - before) / (2 * step), atol=1e-7)


@pytest.mark.parametrize("norm", OBJECTIVE)
def test_the_derivative_is_symmetric_and_between_zero_and_the_identity(norm: str) -> None:
    B = np.random.default_rng(3).standard_normal((4, 6))
    apply = Shrunk.of(B, norm, 0.7).derivative()
    M = np.stack([apply(X).ravel() for X in np.eye(24).reshape(24, 4, 6)])
    np.testing.assert_allclose(M, M.T, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(M)
    assert eigenvalues[0] > -1e-12
    assert eigenvalues[-1] < 1 + 1e-12


@pytest.mark.parametrize("norm", OBJECTIVE)
def test_equal_singular_values_and_zeros_are_no_exception(norm: str) -> None:
    for B in (np.eye(3, 4), np.zeros((3, 4))):
        assert np.isfinite(Shrunk.of(B, norm, 0.5).derivative()(np.ones((3, 4)))).all()
