"""Ways of training, read and compared at equal loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from study_cases import counted_text
from tokengeom.extending import GD, NetworkShape, SilentProgress
from tokengeom_studies.common.compared_trainings import (
    Comparer,
    NormedMLP,
    Training,
    adapted_below,
    cells,
    farthest,
    measure_trainings,
    not_reached,
)
from tokengeom_studies.common.measured import Rows
from tokengeom_studies.common.torch_runs import DeviceText

GAPS = [0.5, 0.2]


@pytest.fixture(scope="module")
def comparer() -> Comparer:
    return Comparer("here", DeviceText(counted_text()), GAPS, 16, Rows())


def test_rows_have_every_seed_loss_and_comparison(comparer: Comparer) -> None:
    rows = Rows()
    rate = {"learning_rate": 1e-2, "rate_schedule": "constant"}
    trainings = {"free": Training("ufm", rate), "never": Training("ufm", {**rate, "learning_rate": 1e-9})}
    measure_trainings(comparer, trainings, range(3), rows, SilentProgress(), seconds=1.0)
    found = cells(rows.rows)
    assert [(cell.training, cell.target, len(cell.runs)) for cell in found] == [("free", 0.5, 3), ("free", 0.2, 3)]
    assert not_reached(rows.rows) == ["never on here at 0.5 (3 seeds)", "never on here at 0.2 (3 seeds)"]
    assert farthest(found) < 0.1
    cell = found[1]
    # Pairs of three seeds: 0, 1 and 2 earlier ones.
    assert [len(row["with_earlier_seeds"]) for row in cell.runs] == [0, 1, 2]
    assert list(cell.between_seeds("contexts")) == [(0, 1), (0, 2), (1, 2)]
    assert 0.3 < cell.reproducible("contexts") <= 1.0
    expected = cell.agreed("nuclear", "tokens") / np.sqrt(cell.reproducible("tokens"))
    assert cell.corrected("nuclear", "tokens").mean == pytest.approx(expected)
    assert 0.0 < cell.mean("efficiency") <= 1.01
    assert cell.best_rival("contexts") != "UFM"
    before = len(rows.rows)
    measure_trainings(comparer, trainings, range(3), rows, SilentProgress(), seconds=1.0)
    assert len(rows.rows) == before, "nothing is measured twice"


def test_the_own_split_of_a_balanced_run_is_the_prediction(comparer: Comparer) -> None:
    half = comparer._split("nuclear", 0.2, 0.5)
    same = comparer.geometries["nuclear", 0.2]
    assert float((half.tokens * same.tokens).sum()) == pytest.approx(1.0, abs=1e-4)
    far = comparer._split("nuclear", 0.2, 0.0)
    assert float((far.tokens * same.tokens).sum()) < 0.999


def test_gradient_descent_adapts_its_rate_and_never_ends_above_its_loss(comparer: Comparer) -> None:
    settings = {"optimizer": GD(), "learning_rate": 1.0, "reduction": "mean", "rate_schedule": "constant"}
    run = Training("ufm", settings, 0.5).begin(comparer.text, 0, 16)
    found = list(adapted_below(run, comparer.text, GAPS, seconds=20.0))
    assert [one.target for one in found] == GAPS
    assert all(one.loss_gap <= one.target for one in found)


def test_steps_that_raise_the_loss_are_taken_back(comparer: Comparer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokengeom_studies.common.compared_trainings.FIRST_RATE", 1e6)
    settings = {"optimizer": GD(), "learning_rate": 1.0, "reduction": "mean", "rate_schedule": "constant"}
    run = Training("ufm", settings, 0.5).begin(comparer.text, 0, 16)
    assert [one.target for one in adapted_below(run, comparer.text, GAPS, seconds=5.0)] == GAPS


@pytest.mark.parametrize(("norm", "kind"), [("none", torch.nn.Identity), ("layer", torch.nn.LayerNorm)])
def test_the_last_norm_of_an_mlp_is_replaced(norm: str, kind: type) -> None:
    body = NormedMLP(norm).body(NetworkShape(5, 3, 8))
    assert isinstance(body.layers[-1], kind)
    states = body(torch.zeros((2, 3), dtype=torch.long)).detach().numpy()
    if norm == "layer":
        np.testing.assert_allclose(states[:, -1].mean(axis=1), 0.0, atol=1e-5)
