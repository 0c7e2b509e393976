"""Prediction at a loss: the smallest nuclear norm with that loss, proven, from the first direction to the limit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import tokengeom as tg
from feature_cases import random_probabilities
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import Float, centre_columns
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.solvers.logit_admm import LogitADMM
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.loss_path import GAP_ACCURACY
from tokengeom.verification.verify import check_result


def statistics(V: int = 12, m: int = 15, seed: int = 0) -> NextTokenStatistics:
    """Counts on random supports, so that some tokens follow no context and others are rare."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, (V, m)) * (rng.random((V, m)) < 0.3)
    counts[rng.integers(0, V, m), np.arange(m)] += 1
    return NextTokenStatistics.from_counts(counts)


def cosine(A: Float, B: Float) -> float:
    A, B = centre_columns(A), centre_columns(B)
    return float(np.vdot(A, B) / np.linalg.norm(A) / np.linalg.norm(B))


def largest_gap(stats: NextTokenStatistics) -> float:
    """``CE - H`` of logits 0."""
    return math.log(stats.V) - stats.entropy


@pytest.mark.parametrize("gap", [0.5, 0.05, 1e-3, 1e-6])
def test_the_gap_is_reached_and_the_norm_is_proven(gap: float) -> None:
    stats = statistics()
    found = tg.predict(stats, loss_gap=gap)
    assert found.loss_gap == pytest.approx(gap, rel=GAP_ACCURACY)
    assert 0 <= found.relative_gap <= 2e-3
    assert found.lower_bound <= found.nuclear_norm
    s = np.linalg.svd(found.L, compute_uv=False)
    assert s.sum() == pytest.approx(found.nuclear_norm, rel=1e-6)
    q = np.exp(found.L - found.L.max(axis=0))
    q /= q.sum(axis=0)
    P = stats.P.toarray()
    kl = np.where(P > 0, P * (np.log(np.where(P > 0, P, 1.0)) - np.log(q)), 0.0).sum(axis=0) @ stats.pi
    assert kl == pytest.approx(found.loss_gap, rel=1e-6)
    assert np.allclose(found.W @ found.H, found.L, atol=1e-3 * np.abs(found.L).max())


@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_the_smallest_nuclear_norm_that_cvxpy_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    P, pi = random_probabilities(5, 4, seed), rng.dirichlet(np.full(4, 5.0))
    stats = NextTokenStatistics.from_probabilities(P, pi)
    found = tg.predict(stats, loss_gap=0.1, tolerance=1e-8)
    L = cp.Variable((5, 4))
    loss = sum(pi[j] * (cp.log_sum_exp(L[:, j]) - P[:, j] @ L[:, j]) for j in range(4))
    best = cp.Problem(cp.Minimize(cp.normNuc(L)), [loss <= stats.entropy + found.loss_gap]).solve(solver="CLARABEL")
    assert found.nuclear_norm == pytest.approx(best, rel=1e-5)
    assert found.lower_bound <= best * (1 + 1e-7)


def test_merging_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 5, (6, 5)) * (rng.random((6, 5)) < 0.5)
    counts[rng.integers(0, 6, 5), np.arange(5)] += 1
    # Twice the contexts, twice some tokens (split evenly, so that their rows stay equal), and tokens that never follow.
    doubled = np.vstack([2 * counts[:3], counts[3:], counts[3:], np.zeros((4, 5), int)])
    stats = NextTokenStatistics.from_counts(np.hstack([doubled, doubled]))
    found = tg.predict(stats, loss_gap=0.02, tolerance=1e-8)
    assert found.L_merged.size < stats.V * stats.m / 3
    whole = RegularisedLogits.from_probabilities(stats.P.toarray(), stats.pi, found.lam)
    solution, _ = LogitADMM(tolerance=1e-8)(whole)
    assert solution.certificate.value == pytest.approx(found.certificate.value, rel=1e-6)
    assert np.allclose(solution.x, found.L, atol=1e-2)


def test_relabelling_tokens_and_contexts_moves_rows_and_columns_only() -> None:
    stats = statistics()
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(stats.V), rng.permutation(stats.m)
    moved = NextTokenStatistics.from_counts(stats.counts.toarray()[rows][:, columns])
    here, there = (tg.predict(s, loss_gap=0.05, tolerance=1e-8) for s in (stats, moved))
    assert there.nuclear_norm == pytest.approx(here.nuclear_norm, rel=1e-3)
    assert cosine(here.L[rows][:, columns], there.L) > 0.9999


def test_a_smaller_loss_needs_a_larger_norm_and_a_smaller_lambda() -> None:
    features = tg.predict(statistics())
    path = features.path(np.geomspace(1.0, 1e-5, 12).tolist())
    assert np.all(np.diff([point.nuclear_norm for point in path]) > 0)
    assert np.all(np.diff([point.lam for point in path]) < 0)
    alone = features.at(path[5].loss_gap, tolerance=1e-6)
    assert cosine(alone.L, path[5].L) > 0.9999


def test_the_limit_of_no_loss_is_l_mm_and_that_of_the_largest_is_the_first_gradient() -> None:
    stats = statistics()
    features = tg.predict(stats)
    cosines = [cosine(features.at(gap).L, features.L_mm) for gap in (1e-1, 1e-4, 1e-9)]
    assert cosines == sorted(cosines)
    assert cosines[-1] > 0.98
    young = features.at(0.97 * largest_gap(stats))
    gradient = (stats.P.toarray() - 1 / stats.V) * stats.pi
    U, _, Vt = np.linalg.svd(gradient)
    assert young.rank <= 2
    assert cosine(np.outer(U[:, 0], Vt[0]), young.L) > 0.95


@pytest.mark.parametrize("gap", [0.0, -1.0, 100.0, math.nan, math.inf])
def test_a_gap_that_no_logits_have_is_refused(gap: Any) -> None:
    with pytest.raises(ProblemError, match="between 0 and"):
        tg.predict(statistics(), loss_gap=gap)


def test_embeddings_and_a_loss_gap_exclude_each_other() -> None:
    with pytest.raises(InputError, match="leave one out"):
        tg.predict(statistics(), embeddings=np.ones((3, 15)), loss_gap=0.1)  # type: ignore[call-overload]


def test_a_saved_prediction_is_checked_again_and_a_forged_norm_is_noticed(tmp_path: Path) -> None:
    found = tg.predict(statistics(), loss_gap=0.01)
    again = LossPrediction.load(found.save(tmp_path / "at"))
    assert again.to_dict() == found.to_dict()
    assert False not in check_result(found).values()
    object.__setattr__(again, "L_merged", again.L_merged * 1.01)
    assert False in check_result(again).values()


def test_features_that_were_loaded_predict_at_a_loss_too(tmp_path: Path) -> None:
    features = tg.predict(statistics())
    loaded = tg.FeaturePrediction.load(features.save(tmp_path / "features"))
    assert loaded.at(0.05).nuclear_norm == features.at(0.05).nuclear_norm


def test_unconstrained_features_with_weight_decay_reach_the_prediction() -> None:
    """At convergence ``CE + lam/2 (||W||^2 + ||H||^2)`` is the problem of the path."""
    stats = statistics(8, 10, 2)
    point = tg.predict(stats, loss_gap=0.1, tolerance=1e-8)
    settings: dict[str, Any] = {"optimizer": "gd", "learning_rate": 1.0, "steps": 60_000, "weight_decay": point.lam}
    run = tg.train(stats, "ufm", dim=8, **settings)
    assert cosine(run.logits, point.L) > 0.999
    assert point.lower_bound / np.linalg.svd(run.logits, compute_uv=False).sum() > 0.99
    assert run.loss_gap == pytest.approx(point.loss_gap, rel=0.02)
