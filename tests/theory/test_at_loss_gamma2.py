"""Prediction at a loss in the gamma_2 norm: proven, merged exactly, and the same geometry where symmetry forces it."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import tokengeom as tg
from feature_cases import random_probabilities
from gamma2_cases import semidefinite_norm
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import Float, centre_columns, cosines
from tokengeom.problems.gamma2 import Gamma2Logits, Gamma2SVM
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.solvers.gamma2_admm import Gamma2ADMM
from tokengeom.solvers.gamma2_norm import gamma2_norm
from tokengeom.solvers.gamma2_svm_admm import Gamma2MarginADMM
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.loss_path import Gamma2Limit
from tokengeom.verification.verify import check_result


def statistics(V: int = 12, m: int = 15, seed: int = 0) -> NextTokenStatistics:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, (V, m)) * (rng.random((V, m)) < 0.3)
    counts[rng.integers(0, V, m), np.arange(m)] += 1
    return NextTokenStatistics.from_counts(counts)


def symmetric(V: int, k: int) -> NextTokenStatistics:
    """Every support of k tokens once, with equal probabilities."""
    supports = list(combinations(range(V), k))
    P = np.zeros((V, len(supports)))
    for j, support in enumerate(supports):
        P[list(support), j] = 1.0 / k
    return NextTokenStatistics.from_probabilities(P)


def cosine(A: Float, B: Float) -> float:
    A, B = centre_columns(A), centre_columns(B)
    return float(np.vdot(A, B) / np.linalg.norm(A) / np.linalg.norm(B))


@pytest.mark.parametrize("gap", [0.5, 0.05, 1e-3, 1e-6])
def test_the_gap_is_reached_and_the_norm_is_proven(gap: float) -> None:
    found = tg.predict(statistics(), loss_gap=gap, norm="gamma2")
    assert found.loss_gap == pytest.approx(gap, rel=0.01)
    assert 0 <= found.relative_gap <= 2e-3
    low, high = gamma2_norm(found.L)
    assert low <= found.norm_value * (1 + 1e-9)
    assert high >= found.lower_bound
    assert found.nuclear_norm == pytest.approx(np.linalg.svd(found.L, compute_uv=False).sum(), rel=1e-9)
    assert np.allclose(found.W @ found.H, found.L, atol=1e-3 * np.abs(found.L).max())
    longest = np.linalg.norm(found.W, axis=1).max() * np.linalg.norm(found.H, axis=0).max()
    assert longest == pytest.approx(found.norm_value, rel=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_the_smallest_norm_that_cvxpy_finds_at_the_loss(seed: int) -> None:
    P, pi = random_probabilities(5, 4, seed), np.random.default_rng(seed).dirichlet(np.full(4, 5.0))
    stats = NextTokenStatistics.from_probabilities(P, pi)
    found = tg.predict(stats, loss_gap=0.1, norm="gamma2", tolerance=1e-6)
    L, t, constraints = semidefinite_norm(5, 4)
    loss = sum(pi[j] * (cp.log_sum_exp(L[:, j]) - P[:, j] @ L[:, j]) for j in range(4))
    best = cp.Problem(cp.Minimize(t), [*constraints, loss <= stats.entropy + found.loss_gap]).solve(solver="CLARABEL")
    assert found.norm_value == pytest.approx(best, rel=1e-4)
    assert found.lower_bound <= best * (1 + 1e-6)


@pytest.mark.parametrize(("V", "k"), [(5, 1), (5, 2), (6, 3)])
def test_symmetric_supports_have_one_geometry_in_both_norms(V: int, k: int) -> None:
    stats = symmetric(V, k)
    nuclear, gamma2 = (tg.predict(stats, loss_gap=0.01, norm=norm, tolerance=1e-7) for norm in ("nuclear", "gamma2"))
    assert cosine(nuclear.L, gamma2.L) > 0.9999
    assert np.allclose(nuclear.context_cosines, gamma2.context_cosines, atol=5e-3)
    assert np.allclose(nuclear.token_cosines, gamma2.token_cosines, atol=5e-3)


def test_merging_is_exact_whatever_the_shares_of_equal_contexts() -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 5, (6, 5)) * (rng.random((6, 5)) < 0.5)
    counts[rng.integers(0, 6, 5), np.arange(5)] += 1
    # Some tokens twice (split evenly), tokens that never follow, and every context again with three times its count.
    doubled = np.vstack([2 * counts[:3], counts[3:], counts[3:], np.zeros((3, 5), int)])
    stats = NextTokenStatistics.from_counts(np.hstack([doubled, 3 * doubled]))
    found = tg.predict(stats, loss_gap=0.02, norm="gamma2", tolerance=1e-6)
    assert found.L_merged.size < stats.V * stats.m / 3
    whole = Gamma2Logits(RegularisedLogits.from_probabilities(stats.P.toarray(), stats.pi, found.lam))
    solution, _ = Gamma2ADMM(tolerance=1e-6)(whole)
    assert solution.converged
    assert solution.certificate.value == pytest.approx(found.certificate.value, rel=3e-6)
    assert cosine(solution.x.logits, found.L) > 0.9999


def test_relabelling_and_splitting_a_context_move_rows_and_columns_only() -> None:
    stats = statistics()
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(stats.V), rng.permutation(stats.m)
    P, pi = stats.P.toarray(), stats.pi
    moved = NextTokenStatistics.from_probabilities(P[rows][:, columns], pi[columns])
    split = NextTokenStatistics.from_probabilities(
        np.hstack([P, P[:, :1]]), np.append(pi, 0.7 * pi[0]) - 0.7 * pi[0] * (np.arange(stats.m + 1) == 0)
    )
    here, there, apart = (tg.predict(s, loss_gap=0.05, norm="gamma2", tolerance=1e-6) for s in (stats, moved, split))
    assert cosine(here.L[rows][:, columns], there.L) > 0.9999
    assert apart.norm_value == pytest.approx(here.norm_value, rel=1e-3)
    assert np.allclose(apart.H[:, 0], apart.H[:, -1])


def test_a_smaller_loss_needs_a_larger_norm_and_a_smaller_lambda() -> None:
    path = tg.predict(statistics()).path(np.geomspace(1.0, 1e-5, 6).tolist(), norm="gamma2")
    assert np.all(np.diff([point.norm_value for point in path]) > 0)
    assert np.all(np.diff([point.lam for point in path]) < 0)
    assert {point.norm for point in path} == {"gamma2"}


def test_each_norm_is_smallest_in_its_own_prediction() -> None:
    stats = statistics(10, 12, 5)
    nuclear, gamma2 = (tg.predict(stats, loss_gap=0.05, norm=norm) for norm in ("nuclear", "gamma2"))
    assert gamma2_norm(nuclear.L, shift=True)[1] >= gamma2.lower_bound * 0.98
    assert gamma2.nuclear_norm >= nuclear.lower_bound * 0.98


@pytest.mark.parametrize("norm", ["nuclear", "gamma2"])
def test_efficiency_is_1_for_the_prediction_and_lower_for_other_logits_of_the_loss(norm: str) -> None:
    stats = statistics()
    found = tg.predict(stats, loss_gap=0.05, norm=norm)
    rng = np.random.default_rng(0)
    low, high = found.efficiency(found.L + rng.standard_normal(stats.m))
    assert 0.995 <= low <= high <= 1.0
    for gap in (0.04, 0.06):
        low, high = found.efficiency(tg.predict(stats, loss_gap=gap, norm=norm).L)
        assert 0.98 <= low <= high <= 1.0
    other = found.L + 0.5 * rng.standard_normal(found.L.shape)
    gap = found._loss_gap_of_all(other)
    low, high = found.efficiency(other)
    exact = tg.predict(stats, loss_gap=gap, norm=norm)
    size = gamma2_norm(other, shift=True)[1] if norm == "gamma2" else np.linalg.norm(centre_columns(other), "nuc")
    assert low <= exact.norm_value / size * (1 + 0.02)
    assert low <= high < 0.99
    assert found.efficiency(np.ones(found.L.shape)) == (1.0, 1.0)


def test_efficiency_counts_each_context_with_its_own_share() -> None:
    P, pi = np.array([[1.0, 1.0, 0.2], [0.0, 0.0, 0.8]]), np.array([0.6, 0.1, 0.3])
    found = tg.predict(NextTokenStatistics.from_probabilities(P, pi), loss_gap=0.05, norm="gamma2")
    assert found.L_merged.shape == (2, 2)
    L = np.array([[1.0, 3.0, -1.0], [0.0, 0.0, 0.0]])
    problem = RegularisedLogits.from_probabilities(P, pi, 1.0)
    assert found._loss_gap_of_all(L) == pytest.approx(problem.loss_gap(L), rel=1e-12)


def test_logits_of_another_shape_have_no_efficiency() -> None:
    with pytest.raises(ProblemError, match="one row per token"):
        tg.predict(statistics(), loss_gap=0.05).efficiency(np.ones((3, 3)))


def test_a_saved_prediction_is_checked_again_and_forged_factors_are_noticed(tmp_path: Path) -> None:
    found = tg.predict(statistics(), loss_gap=0.01, norm="gamma2")
    again = LossPrediction.load(found.save(tmp_path / "at"))
    assert again.to_dict() == found.to_dict()
    assert again.norm == "gamma2"
    assert tg.verify(tmp_path / "at")
    assert np.array_equal(again.W, found.W)
    assert "gamma_2 norm" in found.summary()
    assert again.factors is not None
    object.__setattr__(again, "factors", type(again.factors)(1.01 * again.factors.W, again.factors.H))
    assert False in check_result(again).values()


def test_the_limit_has_the_smallest_norm_with_margins_and_the_path_goes_there() -> None:
    stats = statistics(8, 10, 2)
    features = tg.predict(stats)
    limit = features.gamma2_limit(tolerance=1e-4)
    assert isinstance(limit, Gamma2Limit)
    S = stats.P.toarray() > 0
    kept = ~S.all(axis=0)
    L, t, constraints = semidefinite_norm(stats.V, stats.m)
    for j in np.flatnonzero(kept):
        inside, outside = np.flatnonzero(S[:, j]), np.flatnonzero(~S[:, j])
        constraints += [L[inside, j] == L[inside[0], j], L[inside[0], j] - L[outside, j] >= 1]
    best = cp.Problem(cp.Minimize(t), constraints).solve(solver="CLARABEL")
    assert limit.norm_value == pytest.approx(best, rel=1e-3)
    assert limit.lower_bound <= best * (1 + 1e-6)
    assert Gamma2SVM(features.reduction.S_red).primal_violation(limit.W_merged @ limit.H_merged) <= 1e-9
    off_support = np.where(S, -np.inf, limit.L).max(axis=0)
    np.testing.assert_allclose(np.where(S, limit.L, np.nan)[:, kept], np.where(S, limit.L.max(axis=0), np.nan)[:, kept])
    assert (limit.L.max(axis=0) - off_support)[kept].min() >= 1 - 1e-9
    np.testing.assert_allclose(limit.L, limit.W @ limit.H)
    np.testing.assert_allclose(limit.token_cosines, cosines(limit.W.T))
    np.testing.assert_allclose(limit.context_cosines, cosines(limit.H))
    sizes = [features.at(gap, norm="gamma2").norm_value for gap in (1e-4, 1e-8)]
    # Logits grow by log(1e4) times the limit while the gap falls by 1e4.
    assert (sizes[1] - sizes[0]) / np.log(1e4) == pytest.approx(best, rel=0.02)


def test_an_unfinished_limit_says_so() -> None:
    solution = Gamma2MarginADMM(tolerance=1e-9, max_iterations=3)(Gamma2SVM(np.eye(5, dtype=bool)[:, :4]))
    assert solution.certificate.bound <= solution.certificate.value
    assert solution.converged or "max_iterations" in solution.status


def test_an_unknown_norm_and_a_norm_without_a_loss_are_refused() -> None:
    with pytest.raises(InputError, match="norm must be one of nuclear, gamma2"):
        tg.predict(statistics(), loss_gap=0.1, norm="gamma3")
    with pytest.raises(InputError, match="gamma2_limit"):
        tg.predict(statistics(), norm="gamma2")
    with pytest.raises(InputError, match="norm must be one of"):
        tg.predict(statistics()).at(0.1, norm="spectral")
