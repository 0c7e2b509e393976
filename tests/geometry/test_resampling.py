"""Batched resamples and permutations, compared with resamples that are written out pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tokengeom.errors import ProblemError
from tokengeom.factors import Factors
from tokengeom.geometry.agreement import assess, bootstrap_draws, permutation_orders
from tokengeom.geometry.collapse import subspace_collapse
from tokengeom.geometry.logit_numbers import CollapseNumbers, FiniteLogits, LogitNumbers
from tokengeom.geometry.resampling import PairAgreement, RankAgreement
from tokengeom.geometry.similarity import linear_cka, logit_distance, pearson_off_diagonal, structural_similarity
from tokengeom.geometry.similarity_numbers import SimilarityNumbers
from tokengeom.numerics import cosines
from tokengeom.theory.features import finite_part, project_on_F

SEEDS = st.integers(0, 2**32 - 1)


def agreement(H: np.ndarray, T: np.ndarray) -> PairAgreement:
    return PairAgreement(cosines(H), H.T @ H, {"": (cosines(T), T.T @ T)})


def written_out(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The items drawn, and a mask of the pairs of different items among them."""
    drawn = np.repeat(np.arange(w.size), w.astype(int))
    return drawn, drawn[:, None] != drawn[None, :]


def weighted_structural(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    C = np.cov(x, y, aweights=weight, ddof=0)
    return float((C[0, 1] + 1e-5) / (np.sqrt(C[0, 0] * C[1, 1]) + 1e-5))


@given(SEEDS, st.integers(4, 9))
@settings(max_examples=25, deadline=None)
def test_a_resample_equals_the_written_out_one_without_pairs_of_copies(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    H, T = rng.standard_normal((3, n)), rng.standard_normal((4, n))
    (w,) = bootstrap_draws(rng, n, 1)
    drawn, differ = written_out(w)
    if np.unique(drawn).size < 3:
        return
    found = agreement(H, T).resampled(w[None, :])[""]
    X, Y = cosines(H)[np.ix_(drawn, drawn)], cosines(T)[np.ix_(drawn, drawn)]
    assert found["pearson"][0] == pytest.approx(stats.pearsonr(X[differ], Y[differ])[0], abs=1e-8)
    # The diagonal keeps its share 1/n of all pairs.
    weight = differ + np.eye(n) * differ.sum() / (n * (n - 1))
    assert found["similarity"][0] == pytest.approx(weighted_structural(X.ravel(), Y.ravel(), weight.ravel()), abs=1e-8)
    A, B = (M[:, drawn] - M[:, drawn].mean(axis=1, keepdims=True) for M in (H, T))
    K, M = A.T @ A, B.T @ B
    cka = np.sum(weight * K * M) / np.sqrt(np.sum(weight * K * K) * np.sum(weight * M * M))
    assert found["cka"][0] == pytest.approx(cka, abs=1e-8)


@given(SEEDS, st.integers(4, 8))
@settings(max_examples=25, deadline=None)
def test_a_resampled_spearman_is_scipys_on_the_written_out_pairs(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = np.round(cosines(rng.standard_normal((3, n))), 1), np.round(cosines(rng.standard_normal((3, n))), 1)
    (w,) = bootstrap_draws(rng, n, 1)
    drawn, differ = written_out(w)
    x, y = X[np.ix_(drawn, drawn)][differ], Y[np.ix_(drawn, drawn)][differ]
    found = RankAgreement.of(X, {"": Y}).resampled(w[None, :])[""][0]
    if x.size and min(np.ptp(x), np.ptp(y)) > 0:
        assert found == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-9)
    else:
        assert np.isnan(found)


def test_a_permutation_gives_the_number_of_the_permuted_items() -> None:
    rng = np.random.default_rng(0)
    H, T = rng.standard_normal((3, 9)), rng.standard_normal((4, 9))
    orders = permutation_orders(rng, 9, 5)
    found = agreement(H, T).permuted(orders)[""]
    ranks = RankAgreement.of(cosines(H), {"": cosines(T)}).permuted(orders)[""]
    above = np.triu_indices(9, 1)
    for k, order in enumerate(orders):
        X, Y = cosines(H[:, order]), cosines(T)
        assert found["similarity"][k] == pytest.approx(structural_similarity(X, Y), abs=1e-10)
        assert found["pearson"][k] == pytest.approx(pearson_off_diagonal(X, Y), abs=1e-10)
        assert found["cka"][k] == pytest.approx(linear_cka(H[:, order], T), abs=1e-10)
        assert ranks[k] == pytest.approx(stats.spearmanr(X[above], Y[above])[0], abs=1e-10)


def test_permuted_logits_are_those_of_the_permuted_contexts() -> None:
    rng = np.random.default_rng(7)
    P = rng.dirichlet(np.ones(3), size=8).T
    P = np.vstack([P, np.zeros((2, 8))])[rng.permuted(np.tile(np.arange(5), (8, 1)), axis=1).T, np.arange(8)]
    run, target = (Factors(rng.standard_normal((5, 4)), rng.standard_normal((4, 8))) for _ in range(2))
    numbers = LogitNumbers(run, {"": target}, FiniteLogits.of(P))
    orders = permutation_orders(rng, 8, 4)
    found = numbers.permuted(orders)
    for k, order in enumerate(orders):
        L = (run.W @ run.H)[:, order]
        assert found["logit_distance"][k] == pytest.approx(logit_distance(L, target.W @ target.H), rel=1e-10)
        expected = np.linalg.norm(project_on_F(L, P > 0) - finite_part(P))
        assert found["finite_distance"][k] == pytest.approx(expected, rel=1e-10)


def test_resampled_logits_are_those_of_the_drawn_contexts() -> None:
    rng = np.random.default_rng(8)
    run, target = (Factors(rng.standard_normal((5, 4)), rng.standard_normal((4, 8))) for _ in range(2))
    (w,) = bootstrap_draws(rng, 8, 1)
    drawn = np.repeat(np.arange(8), w.astype(int))
    found = LogitNumbers(run, {"": target}).resampled(w[None, :])
    L, M = ((x.W @ x.H)[:, drawn] for x in (run, target))
    assert found["logit_distance"][0] == pytest.approx(logit_distance(L, M), rel=1e-10)


def test_the_null_is_better_than_the_mean_over_permutations() -> None:
    rng = np.random.default_rng(9)
    H, labels = rng.standard_normal((6, 40)), np.repeat(np.arange(10), 4)
    lower = assess(CollapseNumbers(H, labels), resamples=0, permutations=100, seed=0)["collapse"]
    assert lower.null < lower.null_mean
    numbers = SimilarityNumbers("contexts", H, {"": rng.standard_normal((3, 40))})
    higher = assess(numbers, resamples=0, permutations=100, seed=0)["context_pearson"]
    assert higher.null > higher.null_mean


def test_drawing_every_item_once_is_the_number_itself() -> None:
    rng = np.random.default_rng(1)
    H, T = rng.standard_normal((3, 9)), rng.standard_normal((4, 9))
    found = agreement(H, T).resampled(np.ones((1, 9)))[""]
    assert found["similarity"][0] == pytest.approx(structural_similarity(cosines(H), cosines(T)), abs=1e-12)
    assert found["cka"][0] == pytest.approx(linear_cka(H, T), abs=1e-12)
    labels = np.array([0, 0, 0, 1, 1, 2, 3, 3, 4])
    numbers = CollapseNumbers(H, labels)
    assert numbers.resampled(np.ones((1, 9)))["collapse"][0] == pytest.approx(subspace_collapse(H, labels), rel=1e-10)


def test_copies_do_not_count_as_agreement() -> None:
    """With unrelated geometries, naive resamples would have a mean correlation well above that of the data."""
    rng = np.random.default_rng(2)
    H, T = rng.standard_normal((20, 60)), rng.standard_normal((20, 60))
    draws = bootstrap_draws(rng, 60, 400)
    drawn = [written_out(w)[0] for w in draws[:50]]
    naive = [pearson_off_diagonal(cosines(H[:, d]), cosines(T[:, d])) for d in drawn]
    ours = agreement(H, T).resampled(draws)[""]["pearson"]
    value = pearson_off_diagonal(cosines(H), cosines(T))
    assert np.mean(naive) > value + 0.1
    assert np.mean(ours) == pytest.approx(value, abs=0.01)


@pytest.mark.parametrize("copies", [2, 10])  # of two contexts, both are drawn in four resamples of ten
def test_copies_do_not_count_as_collapse(copies: int) -> None:
    rng = np.random.default_rng(3)
    H, labels = rng.standard_normal((30, 100)), np.repeat(np.arange(100 // copies), copies)
    numbers = CollapseNumbers(H, labels)
    scores = numbers.resampled(bootstrap_draws(rng, 100, 200))["collapse"]
    assert np.mean(scores) == pytest.approx(subspace_collapse(H, labels), rel=0.05)


def test_intervals_narrow_like_one_over_the_root_of_the_items() -> None:
    rng = np.random.default_rng(4)
    widths = []
    for n in (100, 400):
        T = rng.standard_normal((5, n))
        H = T + 0.5 * rng.standard_normal((5, n))
        found = assess(SimilarityNumbers("contexts", H, {"": T}), resamples=200, permutations=0, seed=0)
        number = found["context_similarity"]
        assert number.low <= number.value <= number.high
        widths.append(number.high - number.low)
    assert widths[0] / widths[1] == pytest.approx(2.0, rel=0.35)


def test_the_interval_has_about_its_nominal_coverage() -> None:
    """The number over 4,000 items is taken as the truth; 40 samples of 60 items each give an interval."""
    rng = np.random.default_rng(5)
    T = rng.standard_normal((4, 4000))
    H = T + 0.7 * rng.standard_normal((4, 4000))
    truth = pearson_off_diagonal(cosines(H), cosines(T))
    covered = 0
    for seed in range(40):
        chosen = rng.choice(4000, 60, replace=False)
        numbers = SimilarityNumbers("contexts", H[:, chosen], {"": T[:, chosen]})
        number = assess(numbers, resamples=200, permutations=0, seed=seed)["context_pearson"]
        covered += number.low <= truth <= number.high
    assert covered >= 34  # 38 expected; below 34 has a chance of 1% at 95%


def test_large_sets_are_sampled_but_their_values_use_all_items(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    T = rng.standard_normal((5, 90))
    H = T + rng.standard_normal((5, 90))
    exact = assess(SimilarityNumbers("contexts", H, {"": T}), resamples=0, permutations=0, seed=0)
    monkeypatch.setattr("tokengeom.geometry.similarity_numbers.PAIR_ITEMS", 40)
    monkeypatch.setattr("tokengeom.geometry.similarity_numbers.RANK_ITEMS", 20)
    numbers = SimilarityNumbers("contexts", H, {"": T})
    sampled = assess(numbers, resamples=100, permutations=100, seed=0)
    assert numbers.size == 40
    for name in ("context_similarity", "context_cka"):
        assert sampled[name].value == pytest.approx(exact[name].value, abs=1e-9)
        assert sampled[name].value > sampled[name].null
    assert abs(sampled["context_spearman"].null_mean) < 0.05


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(ProblemError, match="resamples=5"):
        assess(CollapseNumbers(np.eye(4), np.array([0, 0, 1, 1])), resamples=5, permutations=0, seed=0)


def test_cka_of_a_resample_is_within_its_bounds_or_nan() -> None:
    """A single item, or items that are all alike, leave nothing but rounding when they are centred."""
    rng = np.random.default_rng(0)
    H, T = rng.standard_normal((3, 4)) + 50.0, rng.standard_normal((2, 4)) + 50.0
    draws = np.array([[4.0, 0, 0, 0], [0, 3, 0, 0], [0, 0, 7, 0], [2, 1, 1, 0], [1, 1, 1, 1]])
    found = agreement(H, T).resampled(draws)[""]["cka"]
    assert np.isnan(found[:3]).all()
    assert np.isfinite(found[3:]).all()
    assert np.abs(found[3:]).max() <= 1.0
    alike = agreement(H, np.tile(rng.standard_normal((3, 1)), 4)).resampled(draws)[""]["cka"]
    assert np.isnan(alike).all()
