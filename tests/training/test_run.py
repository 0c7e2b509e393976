"""A run as a result: saved and loaded as it was, checked again, and shown in a few words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from forging import forge, forge_array
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import HasFactors
from tokengeom.results.registry import load
from tokengeom.training.loop import TrainingHooks
from tokengeom.training.run import Run, load_runs
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import train, train_many
from tokengeom.training.trajectory import Trajectory, record_steps
from tokengeom.verification.verify import verify
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
    found = verify(tmp_path)
    assert found
    assert any(sentence.startswith("replicate 1: ") for sentence in found.checked)


def test_a_changed_file_is_noticed(run: Run, tmp_path: Path) -> None:
    folder = run.save(tmp_path / "run")
    content = bytearray((folder / "arrays.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "arrays.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged: arrays\.safetensors"):
        Run.load(folder)
    assert verify(folder).failed == (
        "every file has the hash in the manifest (arrays.safetensors is missing, changed or added)",
    )


def forge_run(folder: Path, **changes: Any) -> Path:
    """Edit the manifest's result, with hashes that fit."""
    return forge(folder, lambda manifest: manifest["results"][0].update(changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unknown": 3}, "'unknown' is not an entry"),
        ({"loss_gap": "small"}, "loss_gap must be a finite number"),
        ({"loss_gap": float("nan")}, "loss_gap must be a finite number"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"steps": 3}, "its trajectory has step 20"),
        ({"status": None}, "status must be a text"),
        ({"settings": []}, "settings must be an object"),
        ({"settings": {"dim": "8"}}, "dim must be a whole number"),
        ({"settings": {"optimizer": {"name": 3}}}, "name must be a text"),
        ({"statistics_hash": "../.."}, "64 hexadecimal digits"),
    ],
)
def test_a_manifest_with_wrong_parts_is_refused(
    run: Run, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = forge_run(run.save(tmp_path / "run"), **changes)
    with pytest.raises(InputError, match="run is damaged") as found:
        Run.load(folder)
    assert message in str(found.value)
    assert any("can be read" in sentence for sentence in verify(folder).failed)


def test_arrays_that_do_not_fit_are_refused(run: Run, tmp_path: Path) -> None:
    def changed(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Path:
        return forge_array(run.save(tmp_path / "run"), "arrays.safetensors", name, change)

    changes: list[Callable[[NDArray[Any]], NDArray[Any]]] = [
        lambda x: x[:, :-1],
        lambda x: x * np.nan,
        lambda x: x.astype(np.int64),
        lambda x: x[0],
    ]
    for name in ("result.0.W", "result.0.H", "result.0.start.W", "result.0.start.H"):
        for change in changes:
            if name.endswith("0.H") and change(run.H).shape == (3, run.H.shape[1] - 1):
                continue  # fewer contexts, which only the statistics show
            with pytest.raises(InputError, match="run is damaged: "):
                Run.load(changed(name, change))


def test_a_trajectory_that_cannot_be_is_refused(run: Run, tmp_path: Path) -> None:
    def changed(change: Callable[[pa.Table], pa.Table]) -> Path:
        folder = run.save(tmp_path / "run")
        pq.write_table(change(pq.read_table(folder / "trajectory.parquet")), folder / "trajectory.parquet")
        return forge(folder)

    for change in (
        lambda table: table.drop_columns(["replicate"]),
        lambda table: table.drop_columns(["step"]),
        lambda table: table.take(list(range(len(table)))[::-1]),
        lambda table: table.set_column(2, "loss_gap", pa.array(["x"] * len(table))),
        lambda table: table.set_column(2, "loss_gap", pa.array([None, *[1.0] * (len(table) - 1)])),
        lambda table: table.set_column(2, "loss_gap", pa.array([np.inf] * len(table))),
        lambda table: table.set_column(
            table.column_names.index("replicate"), "replicate", pa.array([1] * len(table), pa.int64())
        ),
    ):
        with pytest.raises(InputError, match=r"run is damaged: trajectory\.parquet"):
            Run.load(changed(change))


@pytest.mark.parametrize("forged", ["shape", "name", "type", "step", "generator", "data"])
def test_a_forged_snapshot_is_not_resumed(tmp_path: Path, forged: str) -> None:
    def resumed(steps: int) -> Run:
        return train(random_statistics(0), "ufm", dim=2, steps=steps, batch=4, checkpoint=tmp_path / "run", resume=True)

    resumed(3)
    (snapshot,) = (tmp_path / "run").iterdir()
    match forged:
        case "shape":
            forge_array(snapshot, "arrays.safetensors", "state.W_first", lambda x: x[:-1])
        case "type":
            forge_array(snapshot, "arrays.safetensors", "state.K", lambda x: x.astype(np.float32))
        case "name":
            arrays = load_file(snapshot / "arrays.safetensors")
            arrays["state.other"] = arrays.pop("state.K")
            save_file(arrays, snapshot / "arrays.safetensors")
            forge(snapshot)
        case "step":
            forge(snapshot, lambda manifest: manifest.update(step=2))
        case "generator":
            forge(snapshot, lambda manifest: manifest.update(generators=[{"bit_generator": "PCG64", "state": 3}]))
        case "data":
            forge(snapshot, lambda manifest: manifest.update(data=None))
    with pytest.raises(InputError, match="is damaged"):
        resumed(6)


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
