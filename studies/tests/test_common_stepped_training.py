"""A training that its caller advances makes the steps of `train`."""

from __future__ import annotations

import numpy as np
import pytest

from study_cases import counted_text
from tokengeom import TrainingSettings, train
from tokengeom_studies.common.stepped_training import SteppedTraining


@pytest.mark.parametrize("model", ["ufm", "mlp"])
def test_a_stepped_training_makes_the_steps_of_train(model: str) -> None:
    stats = counted_text()
    settings = TrainingSettings(model=model, dim=8, steps=40, seed=3, precision="float32", rate_schedule="constant")
    run = SteppedTraining(stats, settings)
    for steps in (7, 33):
        run.advance(steps)
    assert run.step == 40
    expected = train(stats, model, dim=8, steps=40, seed=3, precision="float32", rate_schedule="constant")
    W, H = run.factors()
    assert np.asarray(W) @ np.asarray(H) == pytest.approx(expected.W @ expected.H, rel=1e-3, abs=1e-4)


def test_a_rate_multiplies_the_learning_rate_and_windows_are_those_given() -> None:
    stats = counted_text()
    settings = TrainingSettings(
        model="ufm", dim=8, optimizer="gd", learning_rate=0.1, rate_schedule="constant", batch=4
    )
    runs = [SteppedTraining(stats, settings) for _ in range(3)]
    windows = np.zeros((5, 4), np.int64)
    start = np.asarray(runs[0].factors()[0]).copy()
    runs[0].advance(5, windows=windows)
    runs[1].advance(5, windows=windows, rate=2.0)
    runs[2].advance(5, windows=windows)
    moved = [np.linalg.norm(np.asarray(run.factors()[0]) - start) for run in runs]
    assert moved[0] == moved[2]
    assert moved[1] > 1.5 * moved[0]
