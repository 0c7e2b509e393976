"""The ridge problem in coordinates around the limit: its minimiser, and its derivative along the path."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from linear_instances import overparameterised
from tokengeom.core.errors import ResourceError
from tokengeom.core.numerics import Float, log_sum_exp
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.linear_limit import ReducedLoss
from tokengeom.solvers.ntp_svm import orthonormal_factor
from tokengeom.solvers.path_newton import PathNewton, PathState, path_newton
from tokengeom.theory.linear import predict_linear


def setting() -> tuple[LinearData, Float, PathNewton, Float]:
    data = overparameterised(0, V=5, d=8, m=6, size=2, n=100)
    prediction = predict_linear(data, data.H)
    R, U = orthonormal_factor(data.H)
    problem = ReducedLoss(prediction.effective_support, data.P, data.pi, R)
    W_star = prediction.W_star @ U
    return data, R, path_newton(problem, W_star, data.P), W_star


def decoder(newton: PathNewton, W_star: Float, state: PathState) -> Float:
    X, Y = newton.deviation(state)
    return np.asarray(W_star + X + Y)


@pytest.mark.parametrize("tau", [0.0, -3.0])
def test_the_minimiser_is_that_of_a_general_method(tau: float) -> None:
    data, R, newton, W_star = setting()
    state, done = newton.solve(newton.at_zero(tau))
    assert done
    mu, shape = float(np.exp(tau)), W_star.shape

    def objective(w: Float) -> float:
        L = w.reshape(shape) @ R
        return float(data.pi @ (log_sum_exp(L) - np.sum(data.P * L, axis=0)) + 0.5 * mu * w @ w)

    peer = minimize(objective, np.zeros(W_star.size), method="BFGS", options={"gtol": 1e-9})
    W = decoder(newton, W_star, state)
    assert objective(W.ravel()) <= peer.fun + 1e-12
    assert np.allclose(W.ravel(), peer.x, atol=1e-4)
    assert newton.norm(state) == pytest.approx(float(np.linalg.norm(W)), rel=1e-12)
    excess = objective(W.ravel()) - 0.5 * mu * float(np.sum(W**2)) - data.entropy
    assert np.exp(newton.log_excess(state)) == pytest.approx(excess, rel=1e-9)


def test_the_tangent_is_the_derivative_along_the_path() -> None:
    _, _, newton, _ = setting()
    tau, h = -2.0, 1e-4
    state, _ = newton.solve(newton.at_zero(tau))
    dx, dy = newton.tangent(state)
    ahead, _ = newton.solve(PathState(tau + h, state.x, state.y))
    behind, _ = newton.solve(PathState(tau - h, state.x, state.y))
    assert np.allclose((ahead.x - behind.x) / (2 * h), dx, atol=1e-5 * (1 + np.abs(dx).max()))
    assert np.allclose((ahead.y - behind.y) / (2 * h), dy, atol=1e-5 * (1 + np.abs(dy).max()))


def test_a_problem_beyond_the_dense_bases_is_refused() -> None:
    S = np.ones((80, 4), dtype=bool)
    with pytest.raises(ResourceError, match=r"80 \* 60 = 4800"):
        PathNewton(S, S / 80.0, np.full(4, 0.25), np.ones((60, 4)), np.zeros((80, 60)))
