"""Random settings of the linear model, and gradient descent on them."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom import predict, train
from tokengeom_studies.common.linear_runs import LinearSetting, descend, random_setting, step_limit


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
