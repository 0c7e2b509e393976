"""Replicates of the tied model in one batch: each is the training that `train` makes with its seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from network_cases import small_stories
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.simulate import FIRST_SEED, simulate
from tokengeom.training.tied_replicates import BLOCK, TiedReplicates
from tokengeom.training.train import train

HOW: dict[str, Any] = {"model": "tied", "dim": 8, "learning_rate": 1e-2, "rate_schedule": "constant"}
CASES: dict[str, dict[str, Any]] = {
    "all contexts": {},
    "last norm": {"last_norm": True},
    "windows": {"batch": 16},
    "windows, last norm, weights": {"batch": 16, "last_norm": True, "ties": "3*positions+self"},
    "a rule for matrices": {"optimizer": "spectral", "last_norm": True},
    "a rule with a norm": {"optimizer": "ngd"},
    "weight decay in float64": {"optimizer": "gd", "precision": "float64", "weight_decay": 0.01},
}


@pytest.mark.parametrize("case", CASES)
def test_replicates_in_one_batch_are_those_of_separate_trainings(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BLOCK, "cpu", 1_000)
    stats, how = small_stories(), HOW | CASES[case] | {"steps": 12}
    trained = TiedReplicates(stats, [TrainingSettings(**how, seed=seed) for seed in (3, 4, 5)])
    assert sum(trained.advance(5)) == 5
    trained.keep([0, 2])
    assert trained.places == [0, 2]
    assert sum(trained.advance(12)) == 7
    gaps = trained.loss_gaps()
    for r, seed in enumerate((3, 5)):
        run, weights = train(stats, **how, seed=seed), trained.weights(r)
        np.testing.assert_allclose(weights["W"], run.W, atol=2e-6)
        assert weights.keys() - {"W"} == run.weights.keys()
        for name, known in run.weights.items():
            np.testing.assert_allclose(weights[name], known, atol=5e-6)
        assert gaps[r] == pytest.approx(run.loss_gap, rel=1e-6)


def test_each_replicate_ends_at_its_own_first_step_with_the_loss_whatever_is_trained_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how: dict[str, Any] = {"loss_gap": 0.9, "dim": 4, "learning_rate": 1e-2, "replicates": 4}
    together = simulate(small_stories(), **how)
    assert len(set(together.steps)) > 1
    monkeypatch.setattr("tokengeom.training.simulate._at_a_time", lambda *_: 1)
    alone = simulate(small_stories(), **how)
    assert alone.steps == together.steps
    np.testing.assert_allclose(alone.heads, together.heads, atol=1e-5)
    run = train(small_stories(), "tied", dim=4, learning_rate=1e-2, seed=FIRST_SEED + 2, steps=together.steps[2])
    np.testing.assert_allclose(together.trainings()[2].W, run.W, atol=1e-5)
