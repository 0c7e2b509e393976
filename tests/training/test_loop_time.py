"""Estimates of training: the pace of a run, and its memory compared with what tracemalloc and torch see."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import tokengeom as tg
from estimate_cases import Said
from geometry_cases import grouped_counts
from tokengeom.core import resources
from tokengeom.core.errors import ResourceError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Arrays, Float, Int
from tokengeom.models.factored import CODE, factored_bytes
from tokengeom.models.network import NETWORK_CODE, _bytes_per_context, network_bytes
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.loop import AbstractEngine, Loop, Pace, TrainingHooks
from tokengeom.training.objective import SoftLabels
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import build_network, train
from tokengeom.training.trajectory import record_steps

SETTINGS = TrainingSettings(model="ufm", dim=4, steps=10_000)


class Clock:
    """A clock that only the engine moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SteadyEngine(AbstractEngine):
    """Takes 10 ms per step, and 7 s more at the first one, which loads code."""

    replicates = 1

    def __init__(self, labels: SoftLabels, clock: Clock) -> None:
        self.factors, self.clock, self.steps = Factors(np.zeros((labels.V, 2)), np.zeros((2, labels.m))), clock, 0

    def advance(self, table: Float, windows: list[Int] | None) -> None:
        self.clock.now += 0.01 * len(table) + (0.0 if self.steps else 7.0)
        self.steps += len(table)

    def readout(self, replicate: int) -> Factors:
        self.clock.now += 0.5 if self.steps else 3.0
        return self.factors

    def state(self) -> Arrays:
        return {}

    def load(self, state: Arrays) -> None: ...


@pytest.fixture
def stats() -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=0))


def steady_loop(stats: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch, hooks: TrainingHooks) -> Loop:
    clock = Clock()
    monkeypatch.setattr("tokengeom.training.loop.time.perf_counter", clock)
    labels = SoftLabels.from_statistics(stats)
    engine = SteadyEngine(labels, clock)
    return Loop(engine, labels, SETTINGS.optimization(), [SETTINGS.to_dict()], hooks=hooks, held=123)


def expected_seconds() -> float:
    return 0.01 * SETTINGS.steps + 0.5 * record_steps(SETTINGS.steps).size


def test_a_run_is_estimated_from_its_first_steps_without_what_loads_code(
    stats: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = steady_loop(stats, monkeypatch, TrainingHooks()).estimate()
    assert found.seconds == pytest.approx(expected_seconds())
    assert found.bytes == 123


def test_a_run_announces_itself_once(stats: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()
    steady = steady_loop(stats, monkeypatch, TrainingHooks(progress=said))
    steady.run()
    assert len(said.sentences) == 1
    assert said.sentences[0].startswith("Training ufm on 12 tokens x 24 contexts, 10,000 steps: about ")
    assert steady.step == SETTINGS.steps


def test_the_rest_of_a_resumed_run_is_estimated(stats: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed = steady_loop(stats, monkeypatch, TrainingHooks())
    resumed.step = resumed.resumed_at = 9_000
    records = int((record_steps(SETTINGS.steps) > 9_000).sum())
    assert resumed.estimate().seconds == pytest.approx(0.01 * 1_000 + 0.5 * records, rel=0.1)


def test_the_earlier_portions_do_not_count() -> None:
    pace = Pace(enough=10.0)
    for count, seconds in [(1, 50.0), (1, 4.0), (10, 5.0), (10, 5.0)]:
        pace.add_steps(count, seconds)
    assert pace.known
    pace.add_steps(1, 1000.0)
    assert pace.seconds(100, 0) == pytest.approx(50.0)


def test_an_estimate_neither_trains_further_nor_saves(stats: NextTokenStatistics, tmp_path: Path) -> None:
    alone = train(stats, dim=4, steps=30)
    found = tg.estimate("train", stats, dim=4, steps=30)
    assert np.array_equal(train(stats, dim=4, steps=30).W, alone.W)
    assert found.seconds > 0
    assert list(tmp_path.iterdir()) == []


def test_memory_of_factored_models_is_that_which_tracemalloc_sees() -> None:
    stats = NextTokenStatistics.from_counts(grouped_counts(100, 40, 5, 5, seed=0))
    labels = SoftLabels.from_statistics(stats)
    train(labels, dim=32, steps=2)
    tracemalloc.start()
    try:
        train(labels, dim=32, steps=2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / 1.2 <= factored_bytes(labels.V, labels.m, [32]) - CODE <= 2 * peak


def test_activations_of_a_network_grow_with_contexts_and_layers() -> None:
    rng = np.random.default_rng(0)
    # Enough contexts for what they share to be small.
    many = [
        NextTokenStatistics.from_counts(grouped_counts(12, m, 1, 3, seed=0), contexts=rng.integers(12, size=(m, 4)))
        for m in (2_000, 4_000)
    ]
    labels = [SoftLabels.from_statistics(one) for one in many]

    def held(place: int, layers: int) -> int:
        network = build_network(many[place], TrainingSettings(model="mlp", dim=32, layers=layers))
        return network_bytes(network, labels[place].V, labels[place].m, None) - NETWORK_CODE

    assert held(1, 2) == pytest.approx(2 * held(0, 2), rel=0.1)
    assert held(0, 2) < held(0, 4)


def test_the_memory_of_activations_is_that_which_torch_keeps() -> None:
    """A linear layer keeps its input, and a tanh its output: 4 + 8 numbers of 4 bytes per row, without the weights."""
    import torch

    body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))

    class Inputs:
        row = np.zeros(10)

    class Plain:
        inputs = Inputs()

        def decoder(self, which: torch.Tensor) -> torch.Tensor:
            return body(torch.ones(len(which), 4))

    plain = Plain()
    plain.decoder.__func__.parameters = body.parameters  # type: ignore[attr-defined]
    assert _bytes_per_context(plain) == pytest.approx(4 * (4 + 8))  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["ufm", "mlp"])
def test_what_does_not_fit_is_refused_before_training(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "free_memory", lambda device=None: CODE)
    stats = NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=0), contexts=np.arange(96).reshape(24, 4))
    with pytest.raises(ResourceError, match=r"Training on V=12 tokens and m=24 contexts .* Keep \d+ of the 24"):
        train(stats, model, dim=8, steps=1)


def test_short_runs_are_not_announced(stats: NextTokenStatistics, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()
    monkeypatch.setattr(resources, "LONG", 0.0)
    train(stats, dim=4, steps=5, progress=said)
    assert said.sentences == []
