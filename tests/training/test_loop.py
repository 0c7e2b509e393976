"""The loop: records with the built-in measurements and probes, and progress."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest

from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.progress import AbstractProgress, AbstractStage
from tokengeom.training.loop import State, built_in, measure
from tokengeom.training.objective import SoftLabels
from tokengeom.training.train import train
from tokengeom.training.trajectory import record_steps
from training_problems import random_statistics


class RecordedProgress(AbstractProgress, AbstractStage):
    """Progress that keeps what it was given."""

    def __init__(self) -> None:
        self.amounts: list[float] = []
        self.notes: list[str] = []

    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        return nullcontext(self)

    def advance(self, amount: float, note: str = "") -> None:
        self.amounts.append(amount)
        self.notes.append(note)


def test_probes_are_measured_at_every_record_and_progress_adds_up() -> None:
    progress = RecordedProgress()

    def spread(state: State) -> dict[str, float]:
        return {"largest": float(state.L.max()), "step": float(state.step)}

    stats, H = random_statistics(6), np.random.default_rng(2).standard_normal((5, 9))
    run = train(
        stats,
        "linear",
        embeddings=H,
        steps=137,
        probes={"twice": lambda state: 2 * float(np.linalg.norm(state.W)), "spread": spread},
        progress=progress,
    )
    frame = run.trajectory.to_frame()
    np.testing.assert_array_equal(frame["step"], record_steps(137))
    np.testing.assert_array_equal(frame["spread.step"], frame["step"])
    np.testing.assert_allclose(frame["twice"], 2 * frame["norm_W"])
    assert sum(progress.amounts) == 137
    assert run.trajectory.to_arrow().num_rows == len(frame)


def test_the_built_in_measurements_are_those_of_the_state() -> None:
    labels, rng = SoftLabels.from_statistics(random_statistics(1)), np.random.default_rng(0)
    state = State(3, Factors(rng.standard_normal((7, 4)), rng.standard_normal((4, 9))), labels)
    found = built_in(state)
    assert found["loss_gap"] == labels.loss_gap(state.W @ state.H)
    assert found["norm_logits"] == pytest.approx(np.linalg.norm(state.W @ state.H))
    assert found["margin"] == labels.margins(state.L).min()
    assert measure(state, {"step": lambda one: one.step})["step"] == 3.0


def test_a_probe_that_changes_its_names_is_refused() -> None:
    with pytest.raises(ProblemError, match="same names at every record"):
        train(random_statistics(0), "ufm", dim=2, steps=5, probes={"x": lambda state: {str(state.step): 0.0}})


def test_progress_shows_the_loss_gap() -> None:
    progress = RecordedProgress()
    run = train(random_statistics(0), "ufm", dim=2, steps=5, progress=progress)
    assert progress.notes[-1] == f"loss gap {run.loss_gap:.3g}"
