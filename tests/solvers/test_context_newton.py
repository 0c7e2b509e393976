"""Contexts for given tokens: the minimum that a general-purpose optimizer finds, and the norm that was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import NonlinearConstraint, minimize
from scipy.special import logsumexp

from tokengeom.core.numerics import Float
from tokengeom.solvers import context_newton
from tokengeom.solvers.context_newton import bounded_contexts, ridge_contexts

V, R, K = 7, 4, 9


@pytest.fixture(scope="module")
def case() -> tuple[Float, Float]:
    """Tokens, and probabilities of which most entries are 0."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(V), size=K).T * (rng.uniform(size=(V, K)) < 0.4)
    P[0] += 0.1
    return rng.normal(size=(V, R)), P / P.sum(axis=0)


def loss(W: Float, p: Float, h: Float) -> float:
    L = W @ h
    return float(logsumexp(L) - p @ L)


def test_ridge_contexts_are_the_minima_that_scipy_finds(case: tuple[Float, Float]) -> None:
    W, P = case
    ridge = np.logspace(-5, 1, K)
    found = ridge_contexts(W, P, ridge)
    for j in range(K):

        def objective(h: Float, j: int = j) -> float:
            return loss(W, P[:, j], h) + 0.5 * float(ridge[j]) * float(h @ h)

        best = minimize(objective, np.zeros(R), method="BFGS", options={"gtol": 1e-10})
        assert objective(found[:, j]) <= best.fun + 1e-12
        np.testing.assert_allclose(found[:, j], best.x, atol=1e-3 * (1 + np.abs(best.x).max()))


def test_bounded_contexts_have_the_smallest_loss_within_the_radius(case: tuple[Float, Float]) -> None:
    W, P = case
    found = bounded_contexts(W, P, 3.0)
    ball = NonlinearConstraint(lambda h: h @ h, 0.0, 9.0)
    for j in range(K):
        best = minimize(lambda h, j=j: loss(W, P[:, j], h), found[:, j] * 0.1, method="SLSQP", constraints=[ball])
        assert np.linalg.norm(found[:, j]) <= 3.0 * (1 + context_newton.RADIUS_ACCURACY)
        assert loss(W, P[:, j], found[:, j]) <= best.fun + 1e-3


def test_a_context_whose_best_place_is_inside_the_radius_is_there() -> None:
    rng = np.random.default_rng(1)
    W, h = rng.normal(size=(V, R)), rng.normal(size=(R, 3))
    L = W @ h
    P = np.exp(L - logsumexp(L, axis=0))
    np.testing.assert_allclose(bounded_contexts(W, P, 50.0), h, atol=1e-4)


def test_tokens_of_low_rank_and_without_any_direction(case: tuple[Float, Float]) -> None:
    W, P = case
    wide = np.column_stack([W[:, :2], W[:, :2]])  # rank 2 in 4 dimensions
    found = ridge_contexts(wide, P, np.full(K, 1e-2))
    np.testing.assert_allclose(found[:2], found[2:], atol=1e-8, err_msg="the shortest h treats copies alike")
    assert not ridge_contexts(np.ones((V, R)), P, np.full(K, 1e-2)).any(), "equal tokens prefer no context"
    assert ridge_contexts(np.zeros((V, 0)), P, np.full(K, 1e-2)).shape == (0, K)


def test_blocks_change_nothing(case: tuple[Float, Float], monkeypatch: pytest.MonkeyPatch) -> None:
    W, P = case
    ridge = np.full(K, 1e-3)
    whole = ridge_contexts(W, P, ridge), bounded_contexts(W, P, 2.0)
    monkeypatch.setattr(context_newton, "BLOCK_ENTRIES", 2 * V * R)
    for a, b in zip(whole, (ridge_contexts(W, P, ridge), bounded_contexts(W, P, 2.0)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
