"""Gradient flow of tied features: the closed equations, finite widths, and what does not matter."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.sparse import csc_array

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, cosines
from tokengeom.training.gradient_flow import flow_to
from tokengeom.training.objective import SoftLabels
from training_problems import random_statistics

V, M, F = 8, 20, 34


def problem() -> tuple[SoftLabels, csc_array]:
    """8 tokens, 20 contexts, each with itself and two of 14 shared features."""
    stats = random_statistics(1, V=V, m=M, k=2)
    rng = np.random.default_rng(2)
    Phi = np.vstack([np.eye(M), np.zeros((F - M, M))])
    for j in range(M):
        Phi[M + rng.choice(F - M, 2, replace=False), j] = 1.0
    return SoftLabels.from_statistics(stats), csc_array(Phi)


def flow(
    labels: SoftLabels, Phi: csc_array, gap: float, start: float = 1.0, most: int = 1000
) -> tuple[Float, Float, int]:
    return flow_to(labels, Phi, gap, (start, start), most, lambda step, loss_gap: None)


def closed(labels: SoftLabels, Phi: Float, gap: float, start: float) -> tuple[Float, Float, Float]:
    """L, C and K where ``dL = G K + C G M, dC = G L^T + L G^T, dK = M G^T L + L^T G M`` reach a loss gap."""
    gram = Phi.T @ Phi

    def parts(y: Float) -> tuple[Float, Float, Float]:
        L, C, K = np.split(y, [V * M, V * M + V * V])
        return L.reshape(V, M), C.reshape(V, V), K.reshape(M, M)

    def slope(_: float, y: Float) -> Float:
        L, C, K = parts(y)
        G = -labels.gradient(L)
        d = G @ K + C @ G @ gram, G @ L.T + L @ G.T, gram @ G.T @ L + L.T @ G @ gram
        return np.concatenate([x.ravel() for x in d])

    def reached(_: float, y: Float) -> float:
        return labels.loss_gap(parts(y)[0]) - gap

    reached.terminal = True  # type: ignore[attr-defined]
    y = np.concatenate([np.zeros(V * M), (start**2 * np.eye(V)).ravel(), (start**2 * gram).ravel()])
    done = solve_ivp(slope, (0.0, 1e6), y, events=reached, rtol=1e-9, atol=1e-12)
    return parts(done.y_events[0][0])


def trained(labels: SoftLabels, Phi: Float, gap: float, start: float, d: int, seed: int) -> Float:
    """Logits of one model of width d under gradient descent with small steps."""
    rng, step = np.random.default_rng(seed), 0.1
    W, A = start * rng.standard_normal((V, d)) / np.sqrt(d), start * rng.standard_normal((d, F)) / np.sqrt(d)
    while labels.loss_gap(W @ A @ Phi) > gap:
        X = -labels.gradient(W @ A @ Phi) @ Phi.T
        W, A = W + step * X @ A.T, A + step * W.T @ X
    return np.asarray(W @ A @ Phi)


def test_it_obeys_the_closed_equations() -> None:
    labels, Phi = problem()
    W, A, steps = flow(labels, Phi, 0.2, 0.5)
    L, C, K = closed(labels, Phi.toarray(), 0.2, 0.5)
    H = A @ Phi
    assert labels.loss_gap(W @ H) == pytest.approx(0.2, rel=1e-6)
    for mine, theirs in ((W @ H, L), (W @ W.T, C), (H.T @ H, K)):
        assert np.linalg.norm(mine - theirs) <= 1e-3 * np.linalg.norm(theirs)
    assert 5 < steps < 500


def test_wide_models_approach_it_at_the_rate_of_random_numbers() -> None:
    labels, Phi = problem()
    W, A, _ = flow(labels, Phi, 0.3, 0.5)
    limit = W @ (A @ Phi)

    def distance(d: int, replicates: int) -> float:
        mean = np.mean([trained(labels, Phi.toarray(), 0.3, 0.5, d, seed) for seed in range(replicates)], axis=0)
        return float(np.linalg.norm(mean - limit) / np.linalg.norm(limit))

    narrow, wide = distance(64, 1), distance(1024, 1)
    assert 0.15 < wide / narrow < 0.45, "a quarter: 1 / sqrt(16)"
    assert distance(64, 8) < 0.6 * narrow


def test_names_of_tokens_and_features_and_the_order_of_contexts_do_not_matter() -> None:
    labels, Phi = problem()
    stats, rng = random_statistics(1, V=V, m=M, k=2), np.random.default_rng(4)
    tokens, contexts, features = rng.permutation(V), rng.permutation(M), rng.permutation(F)
    turned = SoftLabels.from_dense(stats.P.toarray()[np.ix_(tokens, contexts)], stats.pi[contexts])
    renamed = csc_array(Phi.toarray()[np.ix_(features, contexts)])
    W, A, _ = flow(labels, Phi, 0.2)
    other, B, _ = flow(turned, renamed, 0.2)
    np.testing.assert_allclose(cosines(other.T), cosines(W.T)[np.ix_(tokens, tokens)], atol=1e-6)
    np.testing.assert_allclose(cosines(B @ renamed), cosines(A @ Phi)[np.ix_(contexts, contexts)], atol=1e-6)


def test_a_loss_that_is_not_on_its_way_is_refused() -> None:
    with pytest.raises(ProblemError, match=r"must reach the loss gap of 0\.1 nats; after 2 steps it is at"):
        flow(*problem(), 0.1, most=2)
