"""The separating vector with slack against cvxpy, where the hard problem has a solution and where it has none."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from tokengeom.core.numerics import Bool, Float
from tokengeom.solvers.margin import separating_vector


def soft_program(W: Float, S: Bool, penalty: float) -> Float:
    """The definition with its slack variables, solved by cvxpy; rows are scaled to unit size."""
    mean = W[S].mean(axis=0)
    G = np.vstack([mean - W[~S], W[S] - mean, mean - W[S]])
    scale = np.linalg.norm(G, axis=1).max()
    b = np.concatenate([np.ones((~S).sum()), np.zeros(2 * S.sum())])
    h, slack = cp.Variable(W.shape[1]), cp.Variable(len(b))
    loss = 0.5 * cp.sum_squares(h) + 0.5 * penalty * cp.sum_squares(slack)
    cp.Problem(cp.Minimize(loss), [(G / scale) @ h + slack >= b]).solve(solver=cp.CLARABEL)
    return np.asarray(h.value / scale)


@pytest.mark.parametrize("penalty", [1.0, 100.0])
@pytest.mark.parametrize("r", [2, 9])
def test_it_is_the_answer_of_the_soft_problem(r: int, penalty: float) -> None:
    W = np.random.default_rng(r).normal(size=(8, r))
    S = np.arange(8) < 3
    np.testing.assert_allclose(separating_vector(W, S, penalty), soft_program(W, S, penalty), atol=1e-6)


def test_it_is_the_smallest_separating_vector_where_there_is_one() -> None:
    W = np.random.default_rng(0).normal(size=(7, 12))
    S = np.isin(np.arange(7), [1, 4])
    h = cp.Variable(12)
    constraints = [(W[1] - W[4]) @ h == 0, (W[1] - W[~S]) @ h >= 1]
    cp.Problem(cp.Minimize(cp.sum_squares(h)), constraints).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(separating_vector(W, S), h.value, rtol=0.01, atol=2e-3 * float(np.linalg.norm(h.value)))


def test_one_point_against_its_opposite_is_known_in_closed_form() -> None:
    w = np.array([3.0, 4.0])
    found = separating_vector(np.stack([w, -w]), np.array([True, False]), penalty=1e8)
    np.testing.assert_allclose(found, w / (2 * 25.0), rtol=1e-6)  # the nearest h with 2 w.h >= 1


def test_the_size_of_the_points_only_scales_the_answer() -> None:
    W = np.random.default_rng(3).normal(size=(6, 2))
    S = np.arange(6) < 2
    np.testing.assert_allclose(separating_vector(1e3 * W, S), separating_vector(W, S) / 1e3, rtol=1e-8)


def test_without_other_points_or_differences_the_vector_is_zero() -> None:
    W = np.random.default_rng(1).normal(size=(4, 3))
    assert not separating_vector(W, np.ones(4, dtype=bool)).any()
    assert not separating_vector(np.ones((4, 3)), np.arange(4) < 2).any()
