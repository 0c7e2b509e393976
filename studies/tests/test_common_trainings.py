"""Estimates of a study: its trainings, measured at the smallest and the largest size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tokengeom.extending import Estimate
from tokengeom_studies.base import find_study
from tokengeom_studies.common import trainings
from tokengeom_studies.common.trainings import PlannedTraining, estimate_trainings, network_training, ufm_training

SMALL = PlannedTraining("ufm", tokens=6, contexts=10, dim=2, steps=100)


def test_sizes_between_two_measured_ones_are_interpolated(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def one(self: PlannedTraining) -> Estimate:
        measured.append(self.dim)
        return Estimate("one", self.steps * self.dim * 1e-3, self.steps * self.dim * 1e-3, self.dim)

    monkeypatch.setattr(PlannedTraining, "estimate", one)
    planned = [replace(SMALL, dim=dim, count=count) for dim, count in [(2, 1), (8, 3), (32, 1)]]
    found = estimate_trainings("The study", [*planned, replace(SMALL, model="mlp", layers=1)])
    assert measured == [2, 32, 2]
    assert found.parts[0].seconds == pytest.approx(0.1 * (2 + 3 * 8 + 32))
    assert found.parts[0].what == "5 trainings of the model ufm"
    assert found.parts[1].what == "One training of the model mlp"
    assert found.bytes == 32


@pytest.mark.parametrize("model", ["ufm", "linear"])
def test_a_training_is_measured_on_random_statistics_of_its_size(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "REHEARSAL", 0.01)
    found = replace(SMALL, model=model, optimizer="gd").estimate()
    assert f"Training {model} on 6 tokens x 10 contexts, 100 steps" in found.what
    assert found.seconds > 0


def test_heads_are_no_more_than_dimensions() -> None:
    recipe = find_study("small-d-network").recipe()
    assert network_training(recipe, dim=2).heads == 2
    assert network_training(recipe, "mlp", dim=2).heads is None
    assert ufm_training({**recipe, "ufm_steps": 7}, dim=2).steps == 7
