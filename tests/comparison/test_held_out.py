"""Folds of held-out contexts: no support in two folds, every context once, no trace in the tokens; means over folds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.sparse import csc_array

from geometry_cases import grouped_counts
from tokengeom.comparison.agreement import about, assess
from tokengeom.comparison.held_out import FoldedNumbers, leave_out, make_folds
from tokengeom.comparison.similarity_numbers import Geometry, SimilarityNumbers
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, cosines
from tokengeom.statistics.next_token import NextTokenStatistics


def supports(P: csc_array) -> set[bytes]:
    return {column.tobytes() for column in (P.toarray() > 0).T}


@pytest.fixture(scope="module")
def stats() -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(grouped_counts(8, 30, 2, 3, seed=0))


def test_every_context_is_held_out_once_together_with_all_of_its_support(stats: NextTokenStatistics) -> None:
    found = make_folds(stats, 0.25, seed=1)
    assert len(found) == 4
    np.testing.assert_array_equal(np.sort(np.concatenate([fold.columns for fold in found])), np.arange(60))
    for fold in found:
        assert fold.kept_tokens.tolist() == list(range(8)), "no token is lost"
        np.testing.assert_array_equal(np.sort(np.concatenate([fold.columns, fold.kept_columns])), np.arange(60))
        assert 9 <= fold.columns.size <= 21
        assert not supports(fold.contexts.P) & supports(fold.kept.P)
        np.testing.assert_allclose(fold.contexts.P.toarray(), stats.P.toarray()[:, fold.columns], atol=1e-15)
        np.testing.assert_allclose(
            fold.contexts.counts, stats.counts[:, fold.columns].tocsc().data, err_msg="counts are kept"
        )
        kept = stats.pi[fold.kept_columns].sum()
        np.testing.assert_allclose(fold.contexts.share, stats.pi[fold.columns] / kept)


def test_the_seed_determines_the_folds(stats: NextTokenStatistics) -> None:
    def first(seed: int) -> list[int]:
        return [int(j) for j in make_folds(stats, 0.2, seed)[0].columns]

    assert first(0) == first(0)
    assert first(0) != first(1)


def test_some_contexts_of_every_fold_are_drawn_where_there_are_many(stats: NextTokenStatistics) -> None:
    whole, some = make_folds(stats, 0.25, seed=1), make_folds(stats, 0.25, seed=1, most=20)
    for one, other in zip(whole, some, strict=True):
        assert other.columns.size == 5
        assert set(other.columns) < set(one.columns)
        np.testing.assert_array_equal(other.kept_columns, one.kept_columns)
        np.testing.assert_allclose(other.contexts.P.toarray(), stats.P.toarray()[:, other.columns], atol=1e-15)


def test_tokens_that_follow_only_held_out_contexts_are_dropped() -> None:
    counts = np.array([[3, 1, 0, 0], [1, 2, 1, 0], [0, 0, 3, 0], [0, 0, 0, 5]])
    fold = leave_out(NextTokenStatistics.from_counts(counts), np.array([2, 3]))
    assert (fold.kept.V, fold.kept.m) == (2, 2)
    assert fold.columns.tolist() == [2], "nothing is known of what follows context 3"
    assert fold.kept_tokens.tolist() == [0, 1]
    np.testing.assert_allclose(fold.contexts.P.toarray(), [[0.0], [1.0]])
    assert fold.contexts.windows is not None
    assert fold.contexts.windows.tolist() == [1], "one of its four windows has a token that is known"
    np.testing.assert_allclose(fold.contexts.share, 1 / 7)
    np.testing.assert_array_equal(fold.kept.counts.toarray(), counts[:2, :2])
    np.testing.assert_allclose(fold.kept.pi, [4 / 7, 3 / 7])


def test_statistics_without_counts_are_split_too() -> None:
    P = np.array([[0.75, 0.25, 0.5], [0.25, 0.75, 0.5]])
    fold = leave_out(NextTokenStatistics.from_probabilities(P, [0.5, 0.25, 0.25]), np.array([2]))
    assert fold.contexts.windows is None
    np.testing.assert_allclose(fold.kept.pi, [2 / 3, 1 / 3])
    np.testing.assert_allclose(fold.contexts.share, 1 / 3)


def test_contexts_keep_their_tokens() -> None:
    ids = np.arange(120, dtype=np.int32).reshape(60, 2)
    counts = grouped_counts(8, 30, 2, 3, seed=0)
    P = counts / counts.sum(axis=0)
    for stats in (NextTokenStatistics.from_counts(counts, ids), NextTokenStatistics.from_probabilities(P, None, ids)):
        for fold in make_folds(stats, 0.25, seed=1, most=20):
            np.testing.assert_array_equal(fold.contexts.tokens, ids[fold.columns])
            np.testing.assert_array_equal(fold.kept.contexts, ids[fold.kept_columns])
    fold = make_folds(NextTokenStatistics.from_counts(counts), 0.25, seed=1)[0]
    assert fold.contexts.tokens is fold.kept.contexts is None


def test_too_few_supports_give_no_folds() -> None:
    counts = np.array([[1, 2, 3, 1], [4, 1, 1, 1], [0, 0, 0, 2]])
    assert make_folds(NextTokenStatistics.from_counts(counts), 0.5, seed=0) == []
    assert make_folds(NextTokenStatistics.from_counts(counts), 0.5, seed=0, most=3) == []


@pytest.mark.parametrize("share", [-0.1, 0.6, 1.0, float("nan")])
def test_a_share_that_leaves_too_little_is_refused(stats: NextTokenStatistics, share: float) -> None:
    with pytest.raises(ProblemError, match=r"at most 0\.5; got held_out="):
        make_folds(stats, share, seed=0)


def folded(*sizes: int, seed: int = 0, copies: int = 1, runs: int = 1) -> FoldedNumbers:
    """Folds of items that an explanation fits well; ``copies`` items per unit."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum([0, *sizes])
    columns = [np.arange(a, b) for a, b in pairwise(ends)]
    groups = np.arange(ends[-1]) // copies
    parts = []
    for place in columns:
        run = rng.normal(size=(4, place.size))
        targets = {"a": run + 0.5 * rng.normal(size=run.shape), "b": rng.normal(size=run.shape)}
        others = [run + 0.5 * rng.normal(size=run.shape) for _ in range(runs - 1)]
        parts.append(SimilarityNumbers.of("held-out contexts", [run, *others], targets, groups[place]))
    return FoldedNumbers(parts, columns, groups)


def correlation(X: Float, Y: Float) -> float:
    apart = ~np.eye(len(X), dtype=bool)
    return float(np.corrcoef(X[apart], Y[apart])[0, 1])


def test_numbers_are_means_over_folds_and_pairs_stay_within_folds() -> None:
    numbers = folded(8, 4)
    expected = [correlation(part.runs[0].cosines, part.targets["a"].cosines) for part in numbers.parts]
    assert numbers.values()["a", "context_agreement"] == pytest.approx((2 * expected[0] + expected[1]) / 3)
    assert numbers.size == 12
    assert set(numbers.better) == {(p, f"context_{k}") for p in "ab" for k in ("agreement", "similarity")}


@pytest.mark.parametrize("runs", [2, 5])
def test_correlations_are_averaged_over_folds_before_anything_is_divided_by_them(runs: int) -> None:
    numbers = folded(12, 6, runs=runs)
    share = np.array([2 / 3, 1 / 3])
    each = np.array(
        [[correlation(run.cosines, part.targets["a"].cosines) for run in part.runs] for part in numbers.parts]
    )
    between = np.array(
        [[correlation(a.cosines, b.cosines) for a, b in combinations(part.runs, 2)] for part in numbers.parts]
    )
    one = assess(numbers, permutations=0, seed=0).agreements()["a", "context_agreement"]
    mean, rho = float((share @ each).mean()), float((share @ between).mean())
    assert (one.value, one.mean, one.reproducible) == pytest.approx((float(share @ each[:, 0]), mean, rho))
    assert one.corrected == pytest.approx(mean / np.sqrt(rho))
    assert one.corrected_low < one.corrected < one.corrected_high
    left = numbers.without_training()
    assert bool(left) == (runs >= 5)
    if left:
        kept = [place for place, both in enumerate(combinations(range(runs), 2)) if 0 not in both]
        expected = (share @ each[:, 1:]).mean() / np.sqrt((share @ between[:, kept]).mean())
        assert left[about(("a", "context_agreement"), "corrected")][0] == pytest.approx(expected)


def test_seeds_of_an_explanation_are_averaged_over_folds() -> None:
    numbers, rng = folded(12, 6), np.random.default_rng(1)
    seeds = [
        [cosines(part.runs[0].cosines + rng.normal(size=(part.size, part.size))) for _ in range(3)]
        for part in numbers.parts
    ]
    parts = [
        replace(part, targets={"a": replace(part.targets["a"], cosines=np.mean(of, axis=0), seeds=tuple(of))})
        for part, of in zip(numbers.parts, seeds, strict=True)
    ]
    found = FoldedNumbers(parts, numbers.columns, numbers.groups).values()
    rho = np.array([2, 1]) / 3 @ [np.mean([correlation(a, b) for a, b in combinations(of, 2)]) for of in seeds]
    assert found[about(("a", "context_agreement"), "reliability")] == pytest.approx(3 * rho / (1 + 2 * rho))


def test_units_are_permuted_within_their_folds() -> None:
    numbers = folded(6, 8, copies=2)
    order = np.array([[4, 0, 6, 1, 5, 3, 2]])  # of 7 units, the first three of which are in the first fold
    first = numbers.parts[0].permuted(np.array([[1, 0, 2]]))["a", "context_agreement"][0]
    second = numbers.parts[1].permuted(np.array([[0, 3, 2, 1]]))["a", "context_agreement"][0]
    assert numbers.permuted(order)["a", "context_agreement"][0] == pytest.approx((6 * first + 8 * second) / 14)


def test_a_fold_in_which_an_explanation_does_not_vary_counts_as_nothing_explained() -> None:
    numbers = folded(6, 6)
    flat = Geometry.of(np.ones((1, 6)))
    part = replace(numbers.parts[0], targets={**numbers.parts[0].targets, "a": flat})
    mixed = FoldedNumbers([part, numbers.parts[1]], numbers.columns, numbers.groups)
    whole = mixed.parts[1].values()["a", "context_agreement"]
    assert mixed.values()["a", "context_agreement"] == pytest.approx(whole / 2)
    never = FoldedNumbers([part, part], numbers.columns, numbers.groups)
    assert np.isnan(never.values()["a", "context_agreement"])


def test_a_fold_in_which_the_run_does_not_vary_is_left_out() -> None:
    numbers = folded(6, 6)
    same = replace(numbers.parts[0], runs=(Geometry.of(np.ones((4, 6))),))
    mixed = FoldedNumbers([same, numbers.parts[1]], numbers.columns, numbers.groups)
    assert mixed.values()["a", "context_agreement"] == pytest.approx(
        numbers.parts[1].values()["a", "context_agreement"]
    )


def test_intervals_contain_the_value_and_floors_are_below_a_true_explanation() -> None:
    found = assess(folded(20, 20, 20, seed=2), permutations=60, seed=0).agreements()
    true, false = found["a", "context_agreement"], found["b", "context_agreement"]
    assert true.low < true.value < true.high
    assert true.above_floor
    assert not false.above_floor
    assert np.isfinite([true.null, true.gaussian]).all()


def test_other_runs_are_compared_fold_by_fold() -> None:
    rng = np.random.default_rng(0)
    runs = [rng.normal(size=(4, 14)) for _ in range(2)]
    columns = [np.arange(6), np.arange(6, 14)]
    parts = [
        SimilarityNumbers.of("held-out contexts", [run[:, own] for run in runs], {"a": runs[1][:, own]}, own - own[0])
        for own in columns
    ]
    numbers = FoldedNumbers(parts, columns, np.arange(14))
    values = numbers.values()
    assert numbers.of_other_run(runs[0]) == pytest.approx({name: values[name] for name in numbers.better})
    assert numbers.of_other_run(runs[1])["a", "context_agreement"] == pytest.approx(1.0)
