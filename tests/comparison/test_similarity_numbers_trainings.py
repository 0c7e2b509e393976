"""What several trainings, and explanations with seeds, say: brute force over pairs, algebra, and limiting cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import squareform

from tokengeom.comparison.agreement import Agreement, ItemKind, assess
from tokengeom.comparison.similarity_numbers import Geometry, SimilarityNumbers
from tokengeom.core.numerics import Float, Int, cosines

GROUPS = np.array([0, 0, 0, 0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8])


def trained(runs: int, *, noise: float = 0.8, items: int = GROUPS.size, seed: int = 0) -> tuple[list[Float], Float]:
    """Runs that share a signal, and an explanation of it."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=(4, items))
    around = [signal + noise * rng.normal(size=signal.shape) for _ in range(runs + 1)]
    return around[:-1], around[-1]


def correlation(X: Float, Y: Float, units: Int, items: ItemKind, chosen: Int | None = None) -> float:
    """Of cosines over pairs of different units, by numpy."""
    kept = np.arange(units.size) if chosen is None else chosen
    weights = 1.0 / np.bincount(units)[units] if items == "supports" else np.ones(units.size)
    x, y, w = zip(
        *(
            (X[i, j], Y[i, j], weights[i] * weights[j])
            for i, j in combinations(kept.tolist(), 2)
            if units[i] != units[j]
        ),
        strict=True,
    )
    C = np.cov(x, y, aweights=w)
    return float(C[0, 1] / np.sqrt(C[0, 0] * C[1, 1]))


def plain(
    runs: Sequence[Float], target: Float, units: Int, items: ItemKind, chosen: Int | None = None
) -> dict[str, float]:
    """What is known of trainings, by numpy."""
    X, Y = [cosines(run) for run in runs], cosines(target)
    rho = float(np.mean([correlation(a, b, units, items, chosen) for a, b in combinations(X, 2)]))
    mean = float(np.mean([correlation(run, Y, units, items, chosen) for run in X]))
    return {"reproducible": rho, "mean": mean, "corrected": mean / np.sqrt(rho)}


@pytest.mark.parametrize("items", ["contexts", "supports", "tokens"])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_numbers_of_several_trainings_are_those_of_brute_force(items: ItemKind, count: int) -> None:
    runs, target = trained(count)
    units = np.arange(GROUPS.size) if items == "tokens" else GROUPS
    numbers = SimilarityNumbers.of(items, runs, {"": target}, None if items == "tokens" else units)
    one = assess(numbers, permutations=0, seed=0).agreements()["", numbers.number("agreement")]
    expected = plain(runs, target, units, items)
    assert {name: getattr(one, name) for name in expected} == pytest.approx(expected, abs=1e-9)
    assert one.value == pytest.approx(correlation(cosines(runs[0]), cosines(target), units, items))
    assert one.attainable == pytest.approx(np.sqrt(expected["reproducible"]))
    assert one.explained == pytest.approx(expected["mean"] ** 2 / expected["reproducible"])
    assert one.reproducible_low < one.reproducible < one.reproducible_high
    assert one.corrected_low < one.corrected < one.corrected_high
    assert one.reliability == 1.0


def interval_by_hand(full: Any, left_out: Float, both: Float, pairs: Int, trainings: Float | None) -> Float:
    """The jackknife with half of its correction, and the jackknife over trainings where they are left out."""
    B = left_out.size
    variance = (B - 1) / B * np.sum((left_out - left_out.mean()) ** 2)
    Q = B * full - (B - 1) * (left_out[pairs[:, 0]] + left_out[pairs[:, 1]]) + (B - 2) * both
    variance -= 0.5 * min((B - 1) ** 2 / (2 * B * (B - 2)) * np.mean(Q**2), variance / 2)
    reach = stats.t.ppf(0.975, B - 1) ** 2 * variance
    if trainings is not None:
        R = trainings.size
        reach += stats.t.ppf(0.975, R - 1) ** 2 * (R - 1) / R * np.sum((trainings - trainings.mean()) ** 2)
    return np.asarray(full + np.array([-1.0, 1.0]) * np.sqrt(reach))


@pytest.mark.parametrize("items", ["contexts", "supports"])
@pytest.mark.parametrize("count", [3, 5])
def test_intervals_leave_out_support_groups_and_from_five_on_trainings(items: ItemKind, count: int) -> None:
    """The whole ratio is computed again without each group, and without each training."""
    runs, target = trained(count)
    numbers = SimilarityNumbers.of(items, runs, {"": target}, GROUPS)
    assessed = assess(numbers, permutations=0, seed=0)
    one = assessed.agreements()["", numbers.number("agreement")]

    def without(*groups: int) -> dict[str, float]:
        return plain(runs, target, GROUPS, items, np.flatnonzero(~np.isin(GROUPS, groups)))

    single = [without(g) for g in range(9)]
    known = {pair: without(*pair) for pair in {tuple(sorted(pair)) for pair in assessed.pairs.tolist()}}
    double = [known[min(a, b), max(a, b)] for a, b in assessed.pairs.tolist()]
    left = [plain(runs[:r] + runs[r + 1 :], target, GROUPS, items) for r in range(count)]
    for what, scale, back in (("corrected", np.asarray, np.asarray), ("reproducible", np.arctanh, np.tanh)):
        a, b, c = (scale([values[what] for values in known]) for known in (single, double, left))
        ends = interval_by_hand(float(scale(getattr(one, what))), a, b, assessed.pairs, c if count >= 5 else None)
        found = getattr(one, f"{what}_low"), getattr(one, f"{what}_high")
        assert found == pytest.approx(back(ends), abs=1e-8)
        groups_only = interval_by_hand(float(scale(getattr(one, what))), a, b, assessed.pairs, None)
        assert np.ptp(found) > np.ptp(back(groups_only)) - 1e-9
        assert (np.ptp(found) > 1.001 * np.ptp(back(groups_only))) == (count >= 5)


def as_cosines(pairs: Float) -> Geometry:
    """Items whose cosines over pairs are these numbers."""
    X = squareform(pairs) + np.eye(squareform(pairs).shape[0])
    return Geometry(X)


def of_geometries(runs: Sequence[Geometry], target: Geometry) -> Agreement:
    numbers = SimilarityNumbers("tokens", tuple(runs), {"": target}, 3)
    return assess(numbers, permutations=0, seed=0).agreements()["", "token_agreement"]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_agreement_with_the_mean_of_runs_gives_the_same_corrected_number(count: int) -> None:
    """``r(e, mean of k runs) / sqrt(k rho / (1 + (k - 1) rho))``, exact where all pairs of runs correlate alike."""
    M = np.random.default_rng(0).normal(size=(190, count + 2))
    signal, rest, *noises = np.linalg.qr(M - M.mean(axis=0))[0].T
    rho, share = 0.3, 0.7
    runs = [np.sqrt(rho) * signal + np.sqrt(1 - rho) * noise for noise in noises]
    target = share * signal + np.sqrt(1 - share**2) * rest
    one = of_geometries([as_cosines(run) for run in runs], as_cosines(target))
    with_mean = np.corrcoef(target, np.mean(runs, axis=0))[0, 1]
    assert one.corrected == pytest.approx(with_mean / np.sqrt(count * rho / (1 + (count - 1) * rho)), abs=1e-10)
    assert (one.corrected, one.reproducible) == pytest.approx((share, rho), abs=1e-10)


@pytest.mark.parametrize("count", [1, 3])
def test_an_explanation_with_seeds_is_their_mean_and_is_corrected_for_their_noise(count: int) -> None:
    runs, _ = trained(count, items=14)
    seeds, _ = trained(4, items=14, noise=0.5)
    numbers = SimilarityNumbers(
        "tokens",
        tuple(map(Geometry.of, runs)),
        {"": Geometry.of(np.vstack(seeds), 4), "first": Geometry.of(seeds[0])},
        4,
    )
    found = assess(numbers, permutations=0, seed=0)
    one, units = found.agreements()["", "token_agreement"], np.arange(14)
    X, Y = [cosines(run) for run in runs], [cosines(seed) for seed in seeds]
    between = np.mean([correlation(a, b, units, "tokens") for a, b in combinations(Y, 2)])
    reliability = 4 * between / (1 + 3 * between)
    each = [correlation(X[0], seed, units, "tokens") for seed in Y]
    mean = np.mean([correlation(run, np.mean(Y, axis=0), units, "tokens") for run in X])
    assert one.value == pytest.approx(correlation(X[0], np.mean(Y, axis=0), units, "tokens"))
    assert (one.mean, one.reliability, one.seed_error) == pytest.approx((mean, reliability, stats.sem(each)))
    assert one.fair == pytest.approx(min(mean / np.sqrt(reliability), 1.0))
    if count == 1:
        assert np.isnan([one.reproducible, one.corrected]).all()
    else:
        assert one.corrected == pytest.approx(mean / np.sqrt(reliability * one.reproducible))
    first = found.agreements()["first", "token_agreement"]
    assert (first.reliability, np.isnan(first.seed_error)) == (1.0, True)
    assert found.difference(("", "token_agreement"), ("first", "token_agreement"))[0] == pytest.approx(
        one.fair - first.fair
    )


def test_with_more_seeds_an_explanation_becomes_reliable_and_its_corrected_number_stays() -> None:
    """Signal and noise of known variances over 4,950 pairs: correlations have standard errors of at most 1/70."""
    rng = np.random.default_rng(0)
    signal = rng.normal(size=4950)

    def noisy(share: float) -> Float:
        return np.asarray(np.sqrt(share) * signal + np.sqrt(1 - share) * rng.normal(size=4950))

    runs, seeds = [as_cosines(noisy(0.5)) for _ in range(2)], [as_cosines(noisy(0.3)).cosines for _ in range(40)]
    for k in (2, 5, 40):
        target = replace(as_cosines(np.zeros(4950)), cosines=np.mean(seeds[:k], axis=0), seeds=tuple(seeds[:k]))
        one = of_geometries(runs, target)
        # The derivative of Spearman and Brown's formula by rho is at most k / (1 + (k - 1) rho)^2, below 1.3 here.
        assert one.reliability == pytest.approx(k * 0.3 / (1 + (k - 1) * 0.3), abs=3 * 1.3 / 70)
        assert one.corrected == pytest.approx(1.0, abs=0.1), "all of them have the same signal"
        assert one.fair == pytest.approx(np.sqrt(0.5), abs=0.06)
    assert one.reliability > 0.9


def test_a_number_without_its_noise_that_exceeds_one_is_not_clearly_ahead() -> None:
    """Dividing by a small reliability gives numbers above 1 by chance; a perfect explanation is not behind them."""
    rng = np.random.default_rng(3)
    signal, *noises = 0.1 * rng.normal(size=(4, 66))
    # Noises that cancel by more than chance.
    seeds = [as_cosines(signal + noise - np.mean(noises, axis=0)).cosines for noise in noises]
    noisy = replace(as_cosines(signal), cosines=np.mean(seeds, axis=0), seeds=tuple(seeds))
    targets = {"noisy": noisy, "near": as_cosines(signal + 0.005 * rng.normal(size=66))}
    found = assess(SimilarityNumbers("tokens", (as_cosines(signal),), targets, 5), permutations=0, seed=0)
    names = ("noisy", "token_agreement"), ("near", "token_agreement")
    one = found.agreements()[names[0]]
    assert one.value / np.sqrt(one.reliability) > 1.0, "the case is about this"
    assert one.fair == 1.0
    value, low, high = found.difference(*names)
    assert 0.0 < value < 0.01
    assert low < 0.0 < high
    assert found.difference(*names[::-1]) == pytest.approx((-value, -high, -low))


def test_differences_leave_out_trainings_too() -> None:
    runs, target = trained(5)
    other = np.random.default_rng(9).normal(size=target.shape)
    numbers = SimilarityNumbers.of("contexts", runs, {"a": target, "b": target + 0.5 * other}, GROUPS)
    found = assess(numbers, permutations=0, seed=0)
    names = ("a", "context_agreement"), ("b", "context_agreement")
    with_runs, alone = (one.difference(*names) for one in (found, replace(found, without_training={})))
    assert with_runs[0] == alone[0]
    assert with_runs[2] - with_runs[1] > alone[2] - alone[1]


@pytest.mark.parametrize("items", ["contexts", "supports", "tokens"])
def test_runs_at_the_edge_of_what_is_defined(items: ItemKind) -> None:
    """Warnings are errors, so each of these is computed without one."""
    (run, again), target = trained(2)
    groups = None if items == "tokens" else GROUPS

    def found(runs: list[Float], groups: Int | None = groups, target: Float = target) -> Agreement:
        numbers = SimilarityNumbers.of(items, runs, {"": target}, groups)
        return assess(numbers, permutations=20, seed=0).agreements()["", numbers.number("agreement")]

    same = found([run, run])
    assert (same.reproducible, same.attainable) == pytest.approx((1.0, 1.0))
    assert same.corrected == pytest.approx(same.value)
    empty = run.copy()
    empty[:, [0, 5]] = 0.0
    assert np.isfinite([getattr(found([empty, again]), name) for name in ("value", "corrected", "low", "null")]).all()
    flat = found([run, np.ones_like(run)])
    assert np.isfinite(flat.value)
    assert np.isnan([flat.reproducible, flat.mean, flat.corrected, flat.explained]).all()
    nothing = found([np.ones_like(run)] * 2)
    assert np.isnan([nothing.value, nothing.reproducible, nothing.null, nothing.explained]).all()
    opposite = found([run, np.linalg.qr(np.random.default_rng(1).normal(size=(15, 15)))[0]])
    assert np.isnan(opposite.corrected) == (not opposite.reproducible > 0)
    if items != "tokens":
        two = found([run, again], np.repeat([0, 1], [7, 8]))
        assert np.isfinite(two.value)
        assert np.isnan([two.low, two.corrected_low]).all(), "two groups cannot be left out in turn"
