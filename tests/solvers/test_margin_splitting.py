"""The scaled margin problem and ADMM on it: projections against cvxpy, feasibility, and the proven gap."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from linear_instances import overparameterised
from tokengeom.problems.ntp_svm import NORMS, MarginProblem
from tokengeom.problems.supports import in_support_spread, margins
from tokengeom.solvers.margin_splitting import Point, ScaledMargin, split
from tokengeom.solvers.ntp_svm import orthonormal_factor, separating_decoder, solve_ntp_svm


def start(norm: str) -> tuple[ScaledMargin, Point]:
    data = overparameterised(0, V=8, d=24, m=20, size=4, n=500)
    R, U = orthonormal_factor(data.H)
    found = solve_ntp_svm(MarginProblem(data.S, data.H)).solution
    assert found.dual is not None
    return ScaledMargin.of(MarginProblem(data.S, R, NORMS[norm]), found.x @ U, found.dual)


def test_the_projection_on_the_constraints_is_cvxpys() -> None:
    scaled, _ = start("spectral")
    S, margin = scaled.problem.S, scaled.target.max(axis=0)
    L = np.random.default_rng(0).standard_normal(S.shape)
    X, level = cp.Variable(S.shape), cp.Variable(S.shape[1])
    levels = np.ones((S.shape[0], 1)) @ cp.reshape(level, (1, S.shape[1]), order="C")
    inside = cp.multiply(S.astype(float), X - levels) == 0
    outside = cp.multiply((~S).astype(float), X - levels + np.tile(margin, (S.shape[0], 1))) <= 0
    cp.Problem(cp.Minimize(cp.sum_squares(X - L)), [inside, outside]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(scaled.project(L)[0], X.value, atol=1e-5)


def test_a_separating_decoder_has_equal_logits_and_margin_one() -> None:
    scaled, point = start("nuclear")
    noise = 1e-3 * np.random.default_rng(0).standard_normal(point.W.shape)
    assert in_support_spread((point.W + noise) @ scaled.problem.H, scaled.problem.S) > 1e-3
    decoder = separating_decoder(scaled.problem, point.W + noise)
    assert decoder is not None
    L = decoder @ scaled.problem.H
    assert in_support_spread(L, scaled.problem.S) < 1e-9
    assert np.min(margins(L, scaled.problem.S)) == pytest.approx(1.0, abs=1e-12)
    assert separating_decoder(scaled.problem, -point.W) is None


@pytest.mark.parametrize("norm", ["spectral", "nuclear"])
def test_admm_alone_proves_a_small_gap_on_well_conditioned_data(norm: str) -> None:
    scaled, point = start(norm)
    found, iterations = split(scaled, point, 1e-6, 3000)
    assert scaled.best.gap <= 1e-6
    assert iterations < 3000
    # Both dual variables are feasible and agree at the solution.
    assert scaled.problem.norm.dual(found.Y) <= 1 + 1e-9
    np.testing.assert_allclose(found.A @ scaled.R.T, found.Y, atol=1e-3 * np.abs(found.Y).max())
