"""A run as a result: saved and loaded as it was, checked again, and shown in a few words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengeom.errors import InputError, ProblemError
from tokengeom.factors import HasFactors
from tokengeom.folders import file_hash
from tokengeom.results import load, verify
from tokengeom.training.loop import TrainingHooks
from tokengeom.training.run import Run, Trajectory, load_runs, record_steps
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import train, train_many
from training_problems import random_statistics


@pytest.fixture(scope="module")
def run() -> Run:
    return train(random_statistics(8), "ufm", dim=3, optimizer="adam", steps=20)


def test_a_saved_run_is_loaded_as_it_was(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path / "run")
    assert run.save(tmp_path / "run") == tmp_path / "run"  # over an earlier one
    again = Run.load(tmp_path / "run")
    np.testing.assert_array_equal(again.W, run.W)
    np.testing.assert_array_equal(again.H, run.H)
    assert again.to_dict() == run.to_dict()
    np.testing.assert_array_equal(again.trajectory["loss_gap"], run.trajectory["loss_gap"])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert isinstance(load(tmp_path / "run"), Run)
    assert verify(tmp_path / "run")


def test_a_run_remembers_its_statistics(run: Run) -> None:
    assert run.statistics_hash == random_statistics(8).hash == run.to_dict()["statistics_hash"]


def test_a_run_has_factors(run: Run) -> None:
    assert isinstance(run, HasFactors)
    np.testing.assert_array_equal(run.logits, run.W @ run.H)


def test_the_repr_is_short_and_the_summary_is_in_sentences(run: Run) -> None:
    gap = f"{run.loss_gap:.3g} nats"
    assert repr(run) == f"Run(model=ufm, d=3, optimizer=adam, steps=20, loss gap={gap})"
    lines = run.summary().splitlines()
    assert lines[0] == "Status: finished."
    assert lines[1].startswith("20 steps in ")
    assert f"{run.loss_gap:.3g} above the entropy floor" in lines[2]
    assert "uniform guess" not in run.summary()
    assert "uniform guess" in replace(run, loss_gap=9.0).summary()
    assert "<td" in run._repr_html_()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"manifest\.json"):
        Run.load(tmp_path)


def test_an_interrupted_run_is_loaded_from_its_newest_snapshot(tmp_path: Path) -> None:
    for steps, folder in ((3, "older"), (7, "run")):
        train(random_statistics(0), "ufm", dim=2, steps=steps, checkpoint=tmp_path / folder)
    # As a kill leaves them between saving a snapshot and removing older ones.
    (tmp_path / "older" / "step-000000000003").rename(tmp_path / "run" / "step-000000000003")
    (tmp_path / "run" / "step-000000000009").mkdir()
    found = load(tmp_path / "run")
    assert isinstance(found, Run)
    assert found.steps == Run.load(tmp_path / "run").steps == 7
    assert verify(tmp_path / "run")
    assert "W and H are finite, or the run diverged" in verify(tmp_path / "run").checked


def test_replicates_are_loaded_and_checked_together(tmp_path: Path) -> None:
    settings = [TrainingSettings(dim=d, steps=5) for d in (2, 3)]
    runs = train_many(random_statistics(0), settings, hooks=TrainingHooks(checkpoint=tmp_path))
    for one, other in zip(load_runs(tmp_path), runs, strict=True):
        np.testing.assert_array_equal(one.W, other.W)
    with pytest.raises(InputError, match="holds 2 runs; read them with load_runs"):
        Run.load(tmp_path)
    found = Run.verify(tmp_path)
    assert found
    assert any(sentence.startswith("replicate 1: ") for sentence in found.checked)


def test_a_changed_file_is_noticed(run: Run, tmp_path: Path) -> None:
    folder = run.save(tmp_path / "run")
    content = bytearray((folder / "arrays.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "arrays.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged: arrays\.safetensors"):
        Run.load(folder)
    assert verify(folder).failed == ("every file is the one that was written",)


def forge(folder: Path, **changes: Any) -> None:
    """Edit the manifest's result, with hashes that fit."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["results"][0] |= changes
    manifest["files"] = {name: file_hash(folder / name) for name in manifest["files"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"loss_gap": 1e-6}, "loss gap and norms are those of the last record"),
        ({"steps": 19}, "the last record is at the last step of a finished run"),
        ({"settings": {"dim": 4}}, "W and H share the dimension in the settings"),
    ],
)
def test_a_forged_number_is_noticed(run: Run, tmp_path: Path, changes: dict[str, Any], failed: str) -> None:
    folder = run.save(tmp_path / "run")
    forge(folder, **changes)
    assert verify(folder).failed == (failed,)


def test_a_manifest_without_its_parts_is_refused(run: Run, tmp_path: Path) -> None:
    folder = run.save(tmp_path / "run")
    forge(folder, unknown=3)
    with pytest.raises(InputError, match="is damaged: TypeError"):
        Run.load(folder)


@pytest.mark.parametrize(("of_W", "of_H"), [(1.1, 1.0), (1.0, 1.1), (2.0, 0.5)])
def test_arrays_that_do_not_belong_to_the_trajectory_are_noticed(run: Run, of_W: float, of_H: float) -> None:
    checks = replace(run, W=of_W * run.W, H=of_H * run.H).checks()
    assert [sentence for sentence, holds in checks.items() if not holds] == [
        "loss gap and norms are those of the last record"
    ]


@pytest.mark.parametrize("name", ["W", "H"])
def test_arrays_that_are_not_finite_are_noticed(run: Run, name: str) -> None:
    checks = replace(run, **{name: np.nan * getattr(run, name)}).checks()
    assert not checks["W and H are finite, or the run diverged"]


def test_a_diverged_run_is_saved_and_passes_its_checks(tmp_path: Path) -> None:
    H = np.random.default_rng(3).standard_normal((5, 9))
    run = train(random_statistics(9), "linear", embeddings=H, learning_rate=1e308, steps=100)
    assert run.diverged
    assert verify(run.save(tmp_path / "run"))


def test_records_are_on_a_logarithmic_grid() -> None:
    assert record_steps(0).tolist() == [0]
    assert record_steps(7, per_decade=1).tolist() == [0, 1, 7]
    grid = record_steps(30_000)
    assert grid[[0, 1, -1]].tolist() == [0, 1, 30_000]
    assert np.all(np.diff(grid) > 0)
    with pytest.raises(ProblemError, match="at least 1"):
        record_steps(5, per_decade=0)


def test_a_trajectory_is_a_table() -> None:
    table = Trajectory()
    assert len(table) == 0
    assert table.steps.size == 0
    table.append({"step": 0, "loss_gap": 2.0})
    table.append({"step": 5, "loss_gap": 1.0})
    assert table.names == tuple(table) == ("step", "loss_gap")
    assert table.last("loss_gap") == 1.0
    assert table.to_dict()["step"].tolist() == [0, 5]
    assert table.to_frame().shape == (2, 2)
    assert repr(table) == "Trajectory(2 records of step, loss_gap)"
