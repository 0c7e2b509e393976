"""A run that was stopped and resumed equals an uninterrupted one, to the last bit on a CPU."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengeom.core.errors import InputError, ResourceError
from tokengeom.core.system import interruption_ends_all
from tokengeom.results.manifests import write_manifest
from tokengeom.training.loop import TrainingHooks
from tokengeom.training.optimizers.base import optimizer_names
from tokengeom.training.run import Checkpoints, Run, Snapshot
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import train, train_many
from tokengeom.verification.verify import verify
from training_problems import random_statistics
from waiting import PATIENCE, wait_until

STEPS = 60
EMBEDDINGS = np.random.default_rng(1).standard_normal((5, 9))
MODELS: dict[str, dict[str, Any]] = {
    "linear": {"model": "linear", "embeddings": EMBEDDINGS},
    "learned": {"model": "linear", "embeddings": EMBEDDINGS, "learn_embeddings": True},
    "ufm": {"model": "ufm", "dim": 4},
}
CASES = [
    *((name, model, None) for name in optimizer_names() for model in MODELS),
    ("gd", "linear", 5),
    ("adamw", "ufm", 5),
]


def stop_at(step: int) -> Any:
    def on_record(at: int, steps: int, row: dict[str, float]) -> None:
        if at == step:
            signal.raise_signal(signal.SIGINT)

    return on_record


def assert_same_run(one: Run, other: Run) -> None:
    np.testing.assert_array_equal(one.W, other.W)
    np.testing.assert_array_equal(one.H, other.H)
    for name in one.trajectory:
        if name != "seconds":
            np.testing.assert_array_equal(one.trajectory[name], other.trajectory[name])


@pytest.mark.parametrize(("optimizer", "model", "batch"), CASES)
def test_interrupted_and_resumed_equals_uninterrupted(
    tmp_path: Path, optimizer: str, model: str, batch: int | None
) -> None:
    settings = {**MODELS[model], "optimizer": optimizer, "steps": STEPS, "batch": batch, "weight_decay": 1e-3}
    whole = train(random_statistics(0), **settings)
    first = train(random_statistics(0), **settings, checkpoint=tmp_path, on_record=stop_at(10))
    assert (first.status, first.steps) == ("interrupted", 10)
    assert Run.load(tmp_path).steps == 10
    second = train(random_statistics(0), **settings, checkpoint=tmp_path, resume=True)
    assert (second.status, second.steps) == ("finished", STEPS)
    assert_same_run(whole, second)


def test_a_finished_run_can_be_continued(tmp_path: Path) -> None:
    settings = {**MODELS["ufm"], "optimizer": "adamw"}
    train(random_statistics(0), **settings, steps=30, checkpoint=tmp_path)
    longer = train(random_statistics(0), **settings, steps=STEPS, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(longer.W, train(random_statistics(0), **settings, steps=STEPS).W)


def test_a_finished_run_is_not_written_again(tmp_path: Path) -> None:
    settings = {**MODELS["ufm"], "steps": 5, "checkpoint": tmp_path}
    first = train(random_statistics(0), **settings)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = train(random_statistics(0), **settings, resume=True)
    assert_same_run(first, again)
    assert again.status == "finished"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_only_snapshots_of_the_run_are_removed(tmp_path: Path) -> None:
    foreign = ["step-mine", "step-000000000003", "step-000000000004", "notes"]
    for name in foreign:
        (tmp_path / name).mkdir()
        (tmp_path / name / "letter").write_text("dear")
    write_manifest(tmp_path / "step-000000000004", "tokengeom-other", 1, {})
    train(random_statistics(0), **MODELS["ufm"], steps=30, checkpoint=tmp_path, on_record=stop_at(10))
    train(random_statistics(0), **MODELS["ufm"], steps=30, checkpoint=tmp_path, resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*foreign, "step-000000000030"])
    assert Run.load(tmp_path).steps == 30


def test_a_stop_at_the_last_step_is_a_finished_run(tmp_path: Path) -> None:
    run = train(random_statistics(0), **MODELS["ufm"], steps=30, checkpoint=tmp_path, on_record=stop_at(30))
    assert (run.status, run.trajectory.last("step")) == ("finished", 30)


@pytest.mark.parametrize("sent", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_saves_the_run_and_says_how_to_continue(tmp_path: Path, sent: signal.Signals) -> None:
    random_statistics(0).save(tmp_path / "stats")
    options = ["--model", "ufm", "--dim", "4", "--learning-rate", "1e-4", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-m", "tokengeom", "train", str(tmp_path / "stats"), *options]
    endless = [*command, "--steps", "1000000000"]
    child = subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert "Training" in child.stderr.readline(), "the estimate is printed once training has begun"
    child.send_signal(sent)
    _, stderr = child.communicate(timeout=PATIENCE)
    assert (child.returncode, "Traceback" in stderr) == (130, False), stderr
    assert "run the same command with --resume" in stderr
    kept = Run.load(tmp_path / "run")
    assert kept.status == "interrupted"
    more = subprocess.run(
        [*command, "--steps", str(kept.steps + 10), "--resume", "--json"], check=True, capture_output=True
    )
    assert json.loads(more.stdout)["steps"] == kept.steps + 10


def test_ctrl_c_without_a_folder_returns_what_was_done() -> None:
    previous = signal.getsignal(signal.SIGINT)
    run = train(random_statistics(0), **MODELS["ufm"], steps=STEPS, on_record=stop_at(6))
    assert (run.status, run.steps) == ("interrupted", 6)
    assert signal.getsignal(signal.SIGINT) is previous


def test_ctrl_c_in_one_of_several_trainings_ends_them_all() -> None:
    with interruption_ends_all(), pytest.raises(KeyboardInterrupt):
        train(random_statistics(0), **MODELS["ufm"], steps=STEPS, on_record=stop_at(6))
    assert train(random_statistics(0), **MODELS["ufm"], steps=STEPS, on_record=stop_at(6)).status == "interrupted"


def test_a_folder_in_use_other_settings_and_other_data_are_refused(tmp_path: Path) -> None:
    train(random_statistics(0), **MODELS["ufm"], steps=5, checkpoint=tmp_path)
    with pytest.raises(InputError, match="already holds a run"):
        train(random_statistics(0), **MODELS["ufm"], steps=5, checkpoint=tmp_path)
    with pytest.raises(InputError, match="learning_rate"):
        train(random_statistics(0), **MODELS["ufm"], steps=5, learning_rate=0.3, checkpoint=tmp_path, resume=True)
    with pytest.raises(InputError, match="other statistics"):
        train(random_statistics(1), **MODELS["ufm"], steps=5, checkpoint=tmp_path, resume=True)


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from training_problems import random_statistics
from tokengeom.training.train import train
train(random_statistics(0), "ufm", dim=4, optimizer="adam", batch=3, steps=10**9, checkpoint=sys.argv[1],
      checkpoint_seconds=0.01, learning_rate=1e-4)
"""


def test_a_killed_run_loses_at_most_one_interval(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[1])
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), tests])
    wait_until(lambda: max((path.name for path in tmp_path.glob("step-*")), default="") >= "step-000000001000", child)
    child.kill()
    child.wait()
    kept = Run.load(tmp_path)
    assert kept.steps >= 1000
    assert Checkpoints(tmp_path).newest() is not None
    settings: dict[str, Any] = {"dim": 4, "optimizer": "adam", "batch": 3, "learning_rate": 1e-4}
    end = kept.steps + 500
    resumed = train(random_statistics(0), "ufm", **settings, steps=end, checkpoint=tmp_path, resume=True)
    whole = train(random_statistics(0), "ufm", **settings, steps=end)
    np.testing.assert_array_equal(resumed.W, whole.W)
    np.testing.assert_array_equal(resumed.H, whole.H)


def test_a_saved_run_is_not_a_folder_for_snapshots(tmp_path: Path) -> None:
    train(random_statistics(0), **MODELS["ufm"], steps=5).save(tmp_path / "run")
    with pytest.raises(InputError, match="holds a saved result"):
        train(random_statistics(0), **MODELS["ufm"], steps=5, checkpoint=tmp_path / "run", resume=True)
    assert verify(tmp_path / "run")


def test_a_damaged_snapshot_is_refused_before_it_is_read(tmp_path: Path) -> None:
    train(random_statistics(0), **MODELS["ufm"], steps=5, checkpoint=tmp_path)
    newest = Checkpoints(tmp_path).newest()
    assert newest is not None
    content = bytearray((newest / "arrays.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "arrays.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"damaged: arrays\.safetensors"):
        train(random_statistics(0), **MODELS["ufm"], steps=9, checkpoint=tmp_path, resume=True)


def test_replicates_resume_to_the_same_end(tmp_path: Path) -> None:
    stats = random_statistics(0)
    settings = [TrainingSettings(dim=d, seed=d, steps=STEPS, batch=4) for d in (2, 3)]
    whole = train_many(stats, settings)
    short = [replace(one, steps=10) for one in settings]
    train_many(stats, short, hooks=TrainingHooks(checkpoint=tmp_path))
    resumed = train_many(stats, settings, hooks=TrainingHooks(checkpoint=tmp_path, resume=True))
    for one, other in zip(whole, resumed, strict=True):
        assert_same_run(one, other)


def test_what_a_killed_run_left_is_removed_when_it_is_resumed(tmp_path: Path) -> None:
    settings = {**MODELS["ufm"], "steps": 5, "checkpoint": tmp_path / "run"}
    train(random_statistics(0), **settings)
    left = tmp_path / "run/.tokengeom-dead"
    for use in (lambda: train(random_statistics(0), **settings, resume=True), Checkpoints(tmp_path / "run").remove):
        (left / "new").mkdir(parents=True)
        (left / "owner.json").write_text('{"format": "tokengeom-work", "target": "step-000000000005"}')
        use()
        assert not left.exists()
    assert not (tmp_path / "run").exists()


TRAINING = """
import sys
import tokengeom as tg
from training_problems import random_statistics
say = lambda *_: (print("training", flush=True), sys.stdin.readline())
tg.train(random_statistics(8), dim=3, steps=30, checkpoint=sys.argv[1], on_record=say)
"""


def test_a_second_training_into_a_folder_is_refused_and_a_killed_one_does_not_lock_it(tmp_path: Path) -> None:
    stats, folder = random_statistics(8), tmp_path / "run"
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{TRAINING}", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"training\n"
        for resume in (False, True):
            with pytest.raises(InputError, match=r"Another command is writing to .*run\. Wait"):
                train(stats, dim=3, steps=30, checkpoint=folder, resume=resume)
        other.kill()
    train(stats, dim=3, steps=30, checkpoint=folder, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_full_disk_leaves_no_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(snapshot: Snapshot, folder: Path) -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Snapshot, "write", full)
    with pytest.raises(ResourceError, match="No space left"):
        train(random_statistics(8), dim=3, steps=3, checkpoint=tmp_path / "deep/run")
    assert list(tmp_path.iterdir()) == []
