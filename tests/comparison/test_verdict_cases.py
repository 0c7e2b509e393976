"""The verdict on trainings that are made to agree, to share something else, to be noise, or to have large supports."""

from __future__ import annotations

import numpy as np
import pytest

from geometry_cases import grouped_counts
from tokengeom.comparison.agreement import Agreement, assess
from tokengeom.comparison.compare import compare
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.comparison.verdict import Evidence, Verdict, judge, level_of
from tokengeom.core.numerics import Float, unit_columns
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict

GROUPS = np.repeat(np.arange(45), [1, 2, 3] * 15)
D = 80


def directions(rng: np.random.Generator, rank: int = 6) -> Float:
    """Unit vectors of the contexts: one per support, in a space of few dimensions."""
    return unit_columns(rng.normal(size=(D, rank)) @ rng.normal(size=(rank, 45)))[:, GROUPS]


def agreement_of(
    prediction: Float, shared: Float, noise: float, runs: int, seed: int, permutations: int = 40
) -> Agreement:
    """Of runs that have a structure in common, with vectors of noise of a given length."""
    rng = np.random.default_rng(seed)
    observed = [shared + noise * rng.normal(size=shared.shape) / np.sqrt(D) for _ in range(runs)]
    numbers = SimilarityNumbers.of("supports", observed, {"": prediction}, GROUPS)
    return assess(numbers, permutations=permutations, seed=0).agreements()["", "support_agreement"]


def verdict_on(one: Agreement) -> Verdict:
    """Where contexts and tokens agree alike."""
    return judge(
        Evidence(
            contexts=one, tokens=one, by_pairs=one, together={}, collapse=None, rows=(), target="prediction",
            prediction="L_mm", loss_gap=None, groups=45, V=45, one_hot=False, coverage=None, frequency_gap=None,
            uniform_gap=None, d=D, rank=6,
        )
    )  # fmt: skip


@pytest.mark.parametrize("runs", [2, 3])
@pytest.mark.parametrize("noise", [0.3, 1.0, 1.5])
def test_trainings_that_are_the_prediction_and_noise_agree(noise: float, runs: int) -> None:
    inside = 0
    for seed in range(8):
        prediction = directions(np.random.default_rng(100 + seed))
        one = agreement_of(prediction, prediction, noise, runs, seed, permutations=0)
        low, high = one.explained_interval
        inside += low <= 1.0 <= high
        assert one.explained == pytest.approx(1.0, abs=0.08)
    assert inside >= 6  # fewer of eight intervals of 95% have a chance below 1%
    judged = agreement_of(prediction, prediction, noise, runs, seed)
    assert verdict_on(judged).outcome == "agrees"
    assert judged.mean == pytest.approx(judged.attainable, abs=0.04)


@pytest.mark.parametrize("runs", [2, 3])
@pytest.mark.parametrize("noise", [0.0, 1.0, 1.5])
def test_structure_that_trainings_share_and_the_prediction_lacks_is_never_agreement(noise: float, runs: int) -> None:
    rng = np.random.default_rng(0)
    prediction, other = directions(rng), directions(rng)
    one = agreement_of(prediction, prediction + other, noise, runs, seed=1)
    assert one.explained < 0.7
    assert one.explained_interval[0] < 0.6
    assert verdict_on(one).outcome != "agrees"
    both = agreement_of(prediction + other, prediction + other, noise, runs, seed=1)
    assert both.explained > 0.9, "what they share is all that there is"


@pytest.mark.parametrize("runs", [2, 3])
def test_where_hardly_anything_is_reproducible_nothing_is_said(runs: int) -> None:
    prediction = directions(np.random.default_rng(0))
    one = agreement_of(prediction, prediction, 4.0, runs, seed=2)
    assert 0.0 < one.reproducible < 0.08
    found = verdict_on(one)
    assert found.outcome == "cannot be determined"
    assert f"too little is reproducible (trainings agree {one.reproducible:.2f})" in found.reasons[0]


def test_with_one_training_the_share_lies_between_its_bounds() -> None:
    """Further trainings show the share, which one training bounds by what explains it best."""
    rng = np.random.default_rng(3)
    prediction, other = directions(rng), directions(rng)
    shared = prediction + other
    run = shared + 0.5 * rng.normal(size=shared.shape) / np.sqrt(D)
    numbers = SimilarityNumbers.of("supports", run, {"": prediction, "together": shared}, GROUPS)
    found = assess(numbers, permutations=40, seed=0).agreements()
    one, together = found["", "support_agreement"], found["together", "support_agreement"]
    true = agreement_of(prediction, shared, 0.5, 3, seed=4).explained
    assert one.value**2 - 0.02 < true < one.value**2 / together.value**2 + 0.02
    assert level_of(one, together) == "in part"


def test_large_supports_do_not_decide_and_are_named() -> None:
    """A grammar whose three largest supports hold most pairs of contexts, and are nearer in the run than predicted."""
    counts = grouped_counts(24, 36, 1, 4, seed=0)
    large = np.repeat([0, 1, 2], 60)
    stats = NextTokenStatistics.from_counts(np.concatenate([counts, counts[:, large]], axis=1))
    prediction = predict(stats, spread_solves=0)
    together = np.isin(stats.groups.label, stats.groups.label[:3])
    size = np.linalg.norm(prediction.H, axis=0).mean()
    H = np.vstack([prediction.H, 0.8 * size * together])
    W = np.hstack([prediction.W, np.zeros((24, 1))])
    found = compare(prediction, (W, H), permutations=40, at_loss=False)
    once, pairs = found.support_agreement, found.context_agreement
    assert once.value == pytest.approx(0.98, abs=0.01)
    assert pairs.value < 0.5
    assert pairs.high - pairs.low > 1.0
    assert once.above_floor
    assert not pairs.above_floor
    assert found.verdict == "agrees"
    (sentence,) = [one for one in found.reasons if one.startswith("Each pair of supports counts once here")]
    sizes = np.bincount(stats.groups.label)
    pairs_of = np.triu(np.outer(sizes, sizes), 1)
    share = np.sort(pairs_of, axis=None)[-3:].sum() / pairs_of.sum()
    total = sizes.size * (sizes.size - 1) // 2
    assert f"3 of {total} pairs of groups hold {share:.0%} of the pairs of contexts" in sentence
    for group in range(3):
        tokens = ", ".join(f"'{stats.vocabulary[z]}'" for z in np.flatnonzero(counts[:, group]))
        assert f"{{{tokens}}}" in sentence
