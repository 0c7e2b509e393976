"""Ways of training, read and compared at equal loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from study_cases import counted_text
from tokengeom.extending import GD, NetworkShape, SilentProgress
from tokengeom_studies.common.compared_cells import CELL, cells, shared_tables
from tokengeom_studies.common.compared_trainings import Comparer, NormedMLP, Training, adapted_below, measure_trainings
from tokengeom_studies.common.measured import Rows
from tokengeom_studies.common.torch_runs import DeviceText

GAPS = [0.5, 0.2]


RECIPE = {"gaps": GAPS, "dim": 16, "seconds": 20.0}


@pytest.fixture(scope="module")
def comparer() -> Comparer:
    return Comparer("here", DeviceText(counted_text()), RECIPE, Rows())


def test_rows_have_every_seed_loss_and_comparison(comparer: Comparer) -> None:
    rate = {"learning_rate": 1e-2, "rate_schedule": "constant"}
    trainings = {"free": Training("ufm", rate), "never": Training("ufm", {**rate, "learning_rate": 1e30})}
    measure_trainings(comparer, trainings, range(3), SilentProgress())
    rows = comparer.rows.where(kind=CELL)
    found = cells(rows)
    assert [(cell.training, cell.target, len(cell.row["seeds"])) for cell in found] == [
        ("free", 0.5, 3),
        ("free", 0.2, 3),
    ]
    assert shared_tables(rows, found, {})["not reached"]["seeds that reached it"] == ["0 of 3", "0 of 3"]
    cell = found[1]
    assert set(cell.between("contexts")) == {(1, 0), (2, 0), (2, 1)}
    assert 0.3 < cell.reproducible("contexts") <= 1.0
    expected = cell.agreed("nuclear", "tokens") / np.sqrt(cell.reproducible("tokens"))
    assert cell.corrected("nuclear", "tokens").mean == pytest.approx(expected)
    assert 0.0 < cell.mean("efficiency") <= 1.01
    assert not cell.best_rival("contexts").startswith("UFM"), "to unconstrained features these are another seed"
    before = len(comparer.rows.rows)
    measure_trainings(comparer, trainings, range(3), SilentProgress())
    assert len(comparer.rows.rows) == before, "nothing is measured twice"


def test_a_mean_of_trainings_of_features_is_freed_of_its_noise(comparer: Comparer) -> None:
    rows = comparer.rows.where(kind=CELL, training="free", target=0.2)
    (name, other) = (f"UFM, rate {rate:g}" for rate in (1e-4, 1e-3))
    (cell,) = cells(rows)
    of = cell.row["rivals"][name]
    assert 0.5 < of["reliability"]["contexts"] < 1.0
    freed = np.mean(list(cell.agreement(name, "contexts").values()))
    assert freed == pytest.approx(cell.agreed(name, "contexts") / np.sqrt(of["reliability"]["contexts"]))
    assert other in cell.row["rivals"]


def test_what_the_end_of_the_time_cut_off_is_not_kept() -> None:
    rows = Rows(minutes=0.0)
    late = Comparer("here", DeviceText(counted_text()), RECIPE, rows)
    measure_trainings(late, {"free": Training("ufm")}, range(3), SilentProgress())
    assert rows.rows == []


def test_the_own_split_shares_the_logits_of_the_prediction(comparer: Comparer) -> None:
    of = comparer.predicted["gamma2", 0.2]
    left, s, right = (M.numpy() for M in comparer._factored[0.2])
    np.testing.assert_allclose((left * s) @ right.T, (of.W - of.W.mean(0)) @ of.H, atol=1e-4 * s[0])
    # All of the singular values in W: contexts are right singular vectors.
    expected = comparer.text.geometry(left * s, right.T)
    assert comparer._shared(0.2, 1.0).agreement(expected)["contexts"] == pytest.approx(1.0, abs=1e-5)


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
