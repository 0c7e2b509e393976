"""Random supports and counts."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom import NextTokenStatistics, predict, train
from tokengeom.extending import InputError
from tokengeom_studies.common.random_data import (
    LinearSetting,
    descend,
    dirichlet_counts,
    random_counts,
    random_setting,
    random_supports,
    repeated,
    step_limit,
)


def test_supports_have_the_given_size_and_every_token_is_equally_likely() -> None:
    S = random_supports(np.random.default_rng(0), V=6, m=6000, size=2)
    assert np.all(S.sum(axis=0) == 2)
    # Each token is in a third of 6000 supports: a binomial with standard deviation 36.
    assert np.all(np.abs(S.sum(axis=1) - 2000) < 5 * 36)


@pytest.mark.parametrize("size", [0, 7])
def test_a_support_size_outside_the_vocabulary_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"between 1 and V=6 tokens; got size={size}"):
        random_supports(np.random.default_rng(0), V=6, m=3, size=size)


def test_counted_windows_show_exactly_the_supports() -> None:
    rng = np.random.default_rng(1)
    S = random_supports(rng, V=7, m=9, size=4)
    stats = dirichlet_counts(rng, S, n=100)
    assert stats.n == 100
    assert np.array_equal(stats.counts.toarray() > 0, S)


def test_too_few_windows_for_the_supports_are_refused() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(InputError, match="n=5 windows cannot show each of 12 pairs"):
        dirichlet_counts(rng, random_supports(rng, V=7, m=4, size=3), n=5)


def test_random_counts_have_the_given_supports() -> None:
    stats = random_counts(3, V=9, m=7, size=4, most=4)
    assert (stats.V, stats.m) == (9, 7)
    assert set(stats.support_sizes) == {4}
    assert set(np.unique(stats.counts.data)) <= {1, 2, 3, 4}


def test_random_repeats_keep_contexts_tokens_and_supports() -> None:
    contexts = np.array([[0, 1], [1, 1], [2, 0]], np.int32)
    counts = np.array([[9, 0, 3], [1, 7, 0], [0, 2, 5], [8, 6, 0]])
    stats = NextTokenStatistics.from_counts(counts, contexts=contexts, vocabulary=["a", "b", "c", "d"])
    drawn = repeated(stats, seed=1, most=4)
    assert (drawn.S != stats.S).nnz == 0
    assert set(np.unique(drawn.counts.data)) <= {1, 2, 3, 4}
    assert drawn.vocabulary == stats.vocabulary
    assert np.array_equal(np.asarray(drawn.contexts), contexts)
    assert not np.array_equal(drawn.counts.toarray(), counts)


def test_a_setting_is_a_function_of_its_seed() -> None:
    settings = {"V": 5, "m": 6, "d": 8, "support_size": 2, "n": 60}
    one, same, other = (random_setting(seed, **settings) for seed in (3, 3, 4))
    assert np.array_equal(one.H, same.H)
    assert np.array_equal(one.stats.counts.toarray(), same.stats.counts.toarray())
    assert not np.array_equal(one.H, other.H)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_gradient_descent_at_the_step_limit_never_increases_the_loss(scale: float) -> None:
    drawn = random_setting(0, V=5, m=6, d=8, support_size=2, n=60)
    setting = LinearSetting(drawn.stats, scale * drawn.H)
    run = train(
        setting.stats,
        "linear",
        embeddings=setting.H,
        optimizer="gd",
        reduction="mean",
        learning_rate=step_limit(setting),
        steps=200,
        records_per_decade=50,
    )
    assert np.all(np.diff(run.trajectory["loss_gap"]) < 0)


def test_descent_starts_at_zero_and_is_measured_against_the_prediction() -> None:
    setting = random_setting(0, V=5, m=6, d=8, support_size=2, n=60)
    run = descend(setting, predict(setting.stats, embeddings=setting.H), steps=300)
    assert run.trajectory["norm_W"][0] == 0.0
    assert run.trajectory.last("cosine_without_finite") > 0.5
    assert run.settings["reduction"] == "mean"
    assert run.settings["learning_rate"] == step_limit(setting)
