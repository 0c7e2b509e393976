"""Factors of smallest nuclear norm at a loss: their slopes, their value, and what is proven of them."""

from __future__ import annotations

import numpy as np
import pytest

from feature_cases import random_probabilities
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.solvers.logit_admm import LogitADMM
from tokengeom.solvers.nuclear_factors import NuclearFit, fit_at_loss

V, m = 40, 60


def loss(lam: float = 1e-3) -> RegularisedLogits:
    """Tokens and contexts that stand for several, as they do in merged problems."""
    rng = np.random.default_rng(0)
    P, a, n = random_probabilities(V, m, 0), rng.integers(1, 4, V), rng.integers(1, 3, m)
    return RegularisedLogits.from_probabilities(P / (a @ P), rng.dirichlet(np.full(m, 5.0)), lam, a=a, n=n)


def test_the_gap_and_the_slopes_are_those_of_the_logits() -> None:
    problem, rng = loss(), np.random.default_rng(1)
    fit = NuclearFit(problem)
    x = tuple(rng.standard_normal((size, 5)).astype(np.float32) for size in (V, m))
    gap, of_W, of_H = fit.slopes((x[0], x[1]))
    exact, G = problem.gap_and_gradient(x[0].astype(np.float64) @ x[1].T)
    assert gap == pytest.approx(exact, rel=1e-5)
    np.testing.assert_allclose(of_W, G @ x[1], atol=1e-6)
    np.testing.assert_allclose(of_H, G.T @ x[0], atol=1e-6)


@pytest.mark.parametrize("wanted", [0.6, 0.3])
def test_fitted_factors_are_proven_and_have_the_value_of_the_splitting(wanted: float) -> None:
    problem = loss()
    assert wanted < problem.zero_gap
    point, solution = fit_at_loss(problem, wanted, 1e-3)
    assert solution.converged, solution.status
    assert problem.loss_gap(solution.x) == pytest.approx(wanted, rel=1e-2)
    exact = LogitADMM(tolerance=1e-7)(point)[0].certificate
    assert exact.bound <= solution.certificate.value <= exact.value * (1.0 + 1e-3)
    assert solution.certificate.bound <= exact.value


def test_too_few_dimensions_are_added_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokengeom.solvers.nuclear_factors.FEWEST_DIMENSIONS", 4)
    monkeypatch.setattr("tokengeom.solvers.nuclear_factors.MOST_DIMENSIONS", 4)
    few = fit_at_loss(loss(), 0.4, 1e-3)[1]
    assert np.linalg.matrix_rank(few.x, tol=1e-3) > 4
