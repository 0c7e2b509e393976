"""Paths of the linear model: optimality against general solvers, the limit, and gaps far below rounding."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

from linear_cases import random_data
from linear_instances import overparameterised, plane
from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.core.numerics import Float, log_sum_exp
from tokengeom.problems.linear_data import LinearData
from tokengeom.theory.linear import predict_linear
from tokengeom.theory.linear_path import norm_path
from work import calls_in


def cross_entropy(data: LinearData, W: Float) -> float:
    L = W @ data.H
    return float(data.pi @ (log_sum_exp(L) - (data.P * L).sum(axis=0)))


def gradient(data: LinearData, W: Float) -> Float:
    L = W @ data.H
    return ((np.exp(L - log_sum_exp(L)) - data.P) * data.pi) @ data.H.T


@pytest.mark.parametrize("seed", range(6))
def test_a_point_is_what_a_general_minimiser_finds_at_its_strength(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = random_data(rng, V=4, m=5, d=3)
    prediction = predict_linear(data, data.H)
    for point in norm_path(prediction, [0.1, 1.0]).points:
        mu = np.exp(point.log_strength)
        found = minimize(
            lambda w, mu=mu: cross_entropy(data, w.reshape(4, 3)) + 0.5 * mu * w @ w,
            np.zeros(12),
            jac=lambda w, mu=mu: gradient(data, w.reshape(4, 3)).ravel() + mu * w,
            method="BFGS",
            options={"gtol": 1e-9},
        )
        assert np.allclose(point.W.ravel(), found.x, atol=1e-5)
        assert point.loss_gap == pytest.approx(cross_entropy(data, point.W) - prediction.loss_floor, abs=1e-12)


def test_the_norm_path_is_what_cvxpy_finds() -> None:
    data = random_data(np.random.default_rng(7), V=4, m=5, d=3)
    prediction = predict_linear(data, data.H)
    W = cp.Variable((4, 3))
    L = W @ data.H
    terms = [data.pi[j] * (cp.log_sum_exp(L[:, j]) - data.P[:, j] @ L[:, j]) for j in range(data.m)]
    for point in norm_path(prediction, [0.5, 3.0]).points:
        problem = cp.Problem(cp.Minimize(sum(terms)), [cp.norm(W, "fro") <= point.norm])
        problem.solve(solver=cp.CLARABEL)
        ours, theirs = cross_entropy(data, point.W), cross_entropy(data, W.value)
        assert ours <= theirs + 1e-9
        assert ours == pytest.approx(theirs, abs=1e-7)
        # An error of 1e-8 in the value of cvxpy is 1e-4 in W: its gradient here is 1e-5, ours 1e-15.
        assert np.allclose(point.W, W.value, atol=1e-3)


def test_a_small_norm_has_the_direction_of_the_first_step_of_gradient_descent() -> None:
    data = random_data(np.random.default_rng(7), V=4, m=5, d=3)
    (point,) = norm_path(predict_linear(data, data.H), [1e-6]).points
    first = -gradient(data, np.zeros((4, 3)))
    np.testing.assert_allclose(point.W / 1e-6, first / np.linalg.norm(first), atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_papers_setting_reaches_the_direction_with_little_work(seed: int) -> None:
    data = overparameterised(seed)
    prediction = predict_linear(data, data.H)
    norms = np.geomspace(10, 1e4, 10)
    path = norm_path(prediction, norms)
    assert calls_in(lambda: norm_path(prediction, norms)) < 200_000, "some 50,000"
    cosine = path.column("cosine_direction")
    assert cosine[-1] >= 0.9999
    assert np.all(np.diff(cosine) > 0)
    assert np.all(np.diff(path.column("log_loss_gap")) < 0)
    assert np.allclose(path.column("norm"), np.geomspace(10, 1e4, 10), rtol=1e-8)


def test_every_point_of_a_long_path_is_stationary() -> None:
    data = overparameterised(2, V=6, d=12, m=10, size=3, n=200)
    prediction = predict_linear(data, data.H)
    for point in norm_path(prediction, [1.0, 4.0, 16.0]).points:
        residual = gradient(data, point.W) + np.exp(point.log_strength) * point.W
        assert np.linalg.norm(residual) <= 1e-7 * np.exp(point.log_strength) * point.norm


def test_the_gap_keeps_its_digits_far_below_rounding() -> None:
    data = overparameterised(3, V=6, d=12, m=10, size=3, n=200)
    prediction = predict_linear(data, data.H)
    size = float(np.linalg.norm(prediction.W_mm))
    far = norm_path(prediction, [600 * size, 640 * size, 680 * size]).points
    gaps = np.array([point.loss_gap for point in far])
    assert np.all((gaps > 1e-300) & (gaps < 1e-250))
    # It falls like exp(-margin * norm).
    assert np.allclose(np.diff(np.log(gaps)), -40.0, atol=0.5)
    assert far[-1].finite_error < 1e-200


def test_the_gap_of_a_large_norm_is_that_of_the_off_support_odds() -> None:
    """For a large norm the point is W_star + Y, and the gap is the off-support odds, computed here from their logs."""
    data = overparameterised(4, V=5, d=8, m=6, size=2, n=100)
    prediction = predict_linear(data, data.H)
    point = norm_path(prediction, [100 * float(np.linalg.norm(prediction.W_mm))]).points[0]
    L = point.W @ data.H
    off = log_sum_exp(np.where(data.S, -np.inf, L)) - log_sum_exp(np.where(data.S, L, -np.inf))
    assert point.log_loss_gap == pytest.approx(float(log_sum_exp(off + np.log(data.pi))), abs=1e-6)


def test_the_rate_of_the_direction_is_one_over_the_norm() -> None:
    data = overparameterised(5, V=6, d=12, m=10, size=3, n=200)
    prediction = predict_linear(data, data.H)
    norms = np.array([1e2, 1e3, 1e4])
    angle = np.sqrt(2 - 2 * np.minimum(norm_path(prediction, norms).column("cosine_direction"), 1.0))
    slope = np.diff(np.log(angle)) / np.diff(np.log(norms))
    assert np.all(slope < -0.6)


@pytest.mark.parametrize("angles", [(30, 90, 150), (90, 180, 0)])
def test_data_that_are_not_separable_converge_to_the_general_limit(angles: tuple[float, float, float]) -> None:
    data = plane(angles)
    point = norm_path(predict_linear(data, data.H), [1e3]).points[0]
    assert point.cosine_direction > 0.99999
    assert point.finite_error < 1e-6


def test_a_finite_limit_is_reached_where_the_constraint_is_not_active() -> None:
    data = overparameterised(0, V=6, d=4, m=12, size=3, n=200)
    prediction = predict_linear(data, data.H)
    assert not prediction.W_mm.any()
    size = float(np.linalg.norm(prediction.W_star))
    inside, outside = norm_path(prediction, [0.5 * size, 2.0 * size]).points
    assert inside.norm == pytest.approx(0.5 * size)
    assert np.array_equal(outside.W, prediction.W_star)
    assert outside.loss_gap == 0.0


def test_points_come_in_the_order_given() -> None:
    data = overparameterised(6, V=5, d=8, m=6, size=2, n=100)
    prediction = predict_linear(data, data.H)
    points = norm_path(prediction, [50.0, 2.0, 50.0]).points
    assert [round(point.norm, 6) for point in points] == [50.0, 2.0, 50.0]


def test_norms_that_cannot_be_used_are_refused() -> None:
    data = plane((90, 210, 330))
    prediction = predict_linear(data, data.H)
    with pytest.raises(ProblemError, match="norms must be"):
        norm_path(prediction, [1.0, -1.0])
    big = overparameterised(0, V=100, d=60, m=50, size=5, n=500)
    with pytest.raises(ResourceError, match=r"100 \* 50 = 5000"):
        norm_path(predict_linear(big, big.H), [1.0])


def test_weights_change_the_path_but_not_its_limit() -> None:
    data = overparameterised(7, V=5, d=8, m=6, size=2, n=100)
    other = replace(data, pi=np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1]))
    ends = [norm_path(predict_linear(case, case.H), [2.0, 1e4]).points for case in (data, other)]
    assert not np.allclose(ends[0][0].W, ends[1][0].W, atol=1e-3)
    assert np.allclose(ends[0][1].W / 1e4, ends[1][1].W / 1e4, atol=2e-3)
