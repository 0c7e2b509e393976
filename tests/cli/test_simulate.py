"""``tokengeom simulate``: like a run, what it prints, and its estimate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import say
from network_cases import small_stories
from tokengeom.training.simulate import simulate
from tokengeom.training.simulation import Simulation
from tokengeom.training.train import train


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    small_stories().save(folder / "stats")
    train(small_stories(), "mlp", dim=8, steps=40, learning_rate=1e-2).save(folder / "run")
    return folder


def test_it_is_the_simulation_of_python(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--like", work / "run", "--ties", "positions+self", "--replicates", 2)
    done = say(capsys, "simulate", work / "stats", *options, "--out", work / "simulation", "--json")
    assert done.code == 0, done.err
    mine = simulate(work / "stats", like=work / "run", ties="positions+self", replicates=2)
    saved = Simulation.load(work / "simulation")
    np.testing.assert_array_equal(saved.heads, mine.heads)
    np.testing.assert_array_equal(saved.A, mine.A)
    printed = json.loads(done.out)
    assert (printed["loss_gap"], printed["replicates"]) == (mine.loss_gap, 2)
    assert printed["reliability"] == mine.reliability
    assert printed["seconds"] > 0


def test_its_time_is_estimated(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "simulate", work / "stats", "--like", work / "run", "--estimate", "--json")
    assert done.code == 0, done.err
    printed = json.loads(done.out)
    assert 0 < printed["shortest_seconds"] < printed["longest_seconds"]
