"""Sampled windows have the distribution of the statistics, and their gradient is the exact one on average."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.core.numerics import Float, Int
from tokengeom.models.factored import Linear
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.cpu_engine import CpuEngine
from tokengeom.training.objective import SoftLabels, WindowSampler
from tokengeom.training.optimizers.gd import GD
from training_problems import random_statistics


@pytest.fixture
def stats() -> NextTokenStatistics:
    return random_statistics(0)


@pytest.fixture
def embeddings() -> Float:
    return np.random.default_rng(1).standard_normal((5, 9))


def test_windows_follow_pi_and_P(stats: NextTokenStatistics) -> None:
    labels = SoftLabels.from_statistics(stats)
    n = 200_000
    drawn = WindowSampler(labels, np.random.default_rng(0)).draw(n // 100, 100)
    share = np.bincount(drawn.ravel(), minlength=labels.token.size) / n
    expected = labels.weight[labels.context] * labels.share
    # Five standard deviations of a binomial share.
    assert np.all(np.abs(share - expected) < 5 * np.sqrt(expected / n))


def test_two_draws_give_the_windows_of_one(stats: NextTokenStatistics) -> None:
    labels = SoftLabels.from_statistics(stats)
    one = WindowSampler(labels, np.random.default_rng(1)).draw(7, 3)
    sampler = WindowSampler(labels, np.random.default_rng(1))
    first = sampler.draw(4, 3)
    other = WindowSampler(labels, np.random.default_rng(99))
    other.load(sampler.state())
    np.testing.assert_array_equal(one, np.concatenate((first, other.draw(3, 3))))


def test_expected_sampled_step_is_the_exact_step(stats: NextTokenStatistics, embeddings: Float) -> None:
    labels = SoftLabels.from_statistics(stats)
    table = GD().coefficients(np.ones(1), np.ones(1), np.zeros(1))

    def moved(batch: int | None, windows: list[Int] | None) -> tuple[Float, Float]:
        model = Linear(labels.V, embeddings, init="lecun", generator=np.random.default_rng(2), learn_embeddings=True)
        engine = CpuEngine(model, labels, GD(), batch=batch)
        engine.advance(table, windows)
        readout = engine.readout(0)
        return readout.W, readout.H

    chance = labels.weight[labels.context] * labels.share
    ends = [moved(1, [np.array([[e]])]) for e in range(chance.size)]
    W, H = moved(None, None)
    # The step is linear in the gradient, so the mean over every possible window is exact.
    np.testing.assert_allclose(sum(c * end[0] for c, end in zip(chance, ends, strict=True)), W, atol=1e-13)
    np.testing.assert_allclose(sum(c * end[1] for c, end in zip(chance, ends, strict=True)), H, atol=1e-13)
