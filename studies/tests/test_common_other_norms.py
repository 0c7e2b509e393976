"""Predictions in the spectral norm and in norms of one side, compared with cvxpy; fits with the smallest entries."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from tokengeom import NextTokenStatistics
from tokengeom.extending import SoftLabels
from tokengeom_studies.common.other_norms import smallest_entries, smallest_one_sided, smallest_spectral
from tokengeom_studies.common.torch_runs import DeviceText


def text_of(seed: int, V: int = 6, m: int = 7) -> DeviceText:
    generator = np.random.default_rng(seed)
    counts = generator.integers(1, 20, (V, m)) * (generator.random((V, m)) < 0.5)
    counts[0, counts.sum(axis=0) == 0] = 1
    counts[:, 1] = counts[:, 0]
    return DeviceText(NextTokenStatistics.from_counts(counts))


@pytest.mark.parametrize("seed", [0, 1])
def test_no_logits_of_smaller_spectral_norm_have_the_loss(seed: int) -> None:
    text = text_of(seed)
    found = smallest_spectral(text, 0.1, tolerance=1e-3)
    assert found.loss_gap == pytest.approx(0.1, rel=0.03)
    assert np.linalg.norm(found.W @ found.H, 2) <= found.norm_value * (1 + 1e-4)
    P, pi = text.stats.P.toarray(), text.stats.pi
    L = cp.Variable(P.shape)
    loss = sum(pi[j] * (cp.log_sum_exp(L[:, j]) - P[:, j] @ L[:, j]) for j in range(P.shape[1]))
    problem = cp.Problem(cp.Minimize(cp.sigma_max(L)), [loss <= text.entropy + found.loss_gap])
    problem.solve(solver=cp.SCS, eps=1e-6, max_iters=20_000)
    assert found.norm_value == pytest.approx(problem.value, rel=0.01)


def test_the_lower_bound_holds_for_other_logits_of_that_norm() -> None:
    text = text_of(2)
    found = smallest_spectral(text, 0.1, tolerance=1e-2)
    bound = found.loss_gap * (1.0 - found.relative_gap)
    assert bound <= found.loss_gap
    best = found.W @ found.H
    generator = np.random.default_rng(0)
    for _ in range(200):
        other = best + generator.normal(0.0, 0.3, best.shape)
        other *= min(1.0, found.norm_value / float(np.linalg.norm(other, 2)))
        assert SoftLabels.from_statistics(text.stats).loss_gap(other) >= bound


@pytest.mark.parametrize("longest", ["tokens", "contexts"])
def test_no_logits_of_smaller_one_sided_norm_have_the_loss(longest: str) -> None:
    text = text_of(0)
    found = smallest_one_sided(text, 0.1, longest, tolerance=1e-5)
    assert found.loss_gap == pytest.approx(0.1, rel=0.03)
    assert 0.0 <= found.relative_gap <= 1e-4
    P, pi = text.stats.P.toarray(), text.stats.pi
    V, m = P.shape
    whole = cp.Variable((V + m, V + m), PSD=True)
    L, t, squares = whole[:V, V:], cp.Variable(), cp.diag(whole)
    sides = [squares[:V], cp.sum(squares[V:]) / m] if longest == "tokens" else [cp.sum(squares[:V]) / V, squares[V:]]
    loss = sum(pi[j] * (cp.log_sum_exp(L[:, j]) - P[:, j] @ L[:, j]) for j in range(m))
    limits = [side <= t for side in sides]
    best = cp.Problem(cp.Minimize(t), [*limits, loss <= text.entropy + found.loss_gap]).solve(solver="CLARABEL")
    assert found.norm_value == pytest.approx(best, rel=1e-3)
    lengths = np.linalg.norm(found.W, axis=1), np.linalg.norm(found.H, axis=0)
    of_tokens, of_contexts = (float(np.sqrt(np.mean(each**2))) for each in lengths)
    product = lengths[0].max() * of_contexts if longest == "tokens" else of_tokens * lengths[1].max()
    assert product == pytest.approx(found.norm_value, rel=1e-9)


def test_entries_stay_in_their_box_and_reach_the_loss() -> None:
    text = text_of(3)
    found = smallest_entries(text, 0.1, dim=8, steps=800)
    assert found.loss_gap <= 0.1
    assert max(np.abs(found.W).max(), np.abs(found.H).max()) <= found.norm_value * (1 + 1e-6)
    looser = smallest_entries(text, 0.3, dim=8, steps=800)
    assert looser.norm_value < found.norm_value
