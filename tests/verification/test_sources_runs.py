"""`verify` computes again what W and H say of the records of a run, and notices what is forged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forging import forge, forge_array
from network_cases import small_stories
from tokengeom.core.errors import InputError
from tokengeom.training.loop import TrainingHooks
from tokengeom.training.run import Run
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import train, train_many
from tokengeom.verification.sources import same_loss
from tokengeom.verification.verify import check_result, verify
from training_problems import random_statistics

STATUS = "the status is one that a run has after so many steps, with such logits"
OF_STATE = "W and H are those of the state that training continues from"


@pytest.fixture(scope="module")
def run() -> Run:
    return train(random_statistics(8), "ufm", dim=3, optimizer="adam", steps=20)


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"loss_gap": 1e-6}, ["loss gap and norms are those of the last record", "the loss gap is that of W and H"]),
        ({"entropy": 0.5}, ["the entropy floor is that of the statistics"]),
        ({"status": "interrupted", "steps": 21}, [STATUS]),
        ({"status": "interrupted"}, [STATUS]),
        ({"status": "done"}, [STATUS]),
        ({"status": "diverged: the logits are not finite"}, [STATUS]),
        ({"settings": {"dim": 4}}, ["W and H have the dimension in the settings"]),
    ],
)
def test_a_forged_number_is_noticed(run: Run, tmp_path: Path, changes: dict[str, Any], failed: list[str]) -> None:
    random_statistics(8).save(tmp_path / "stats")
    folder = forge(run.save(tmp_path / "run"), lambda manifest: manifest["results"][0].update(changes))
    found = verify(folder)
    assert list(found.failed) == failed
    assert any("records before the last one" in sentence for sentence in found.not_checked)


def forge_record(folder: Path, column: str, place: int, factor: float) -> Path:
    """Multiply one number of the trajectory."""
    table = pq.read_table(folder / "trajectory.parquet")
    values = table[column].to_numpy().copy()
    values[place] *= factor
    changed = table.set_column(table.column_names.index(column), column, pa.array(values))
    pq.write_table(changed, folder / "trajectory.parquet")
    return forge(folder)


@pytest.mark.parametrize(
    ("column", "place", "failed"),
    [
        ("norm_W", -1, "loss gap and norms are those of the last record"),
        ("norm_logits", 0, "the norms before the first step are those of the first record"),
        ("margin", -1, "the margin of the last record is that of W and H"),
        ("loss_gap", 0, "the loss gap of the first record is that of the start"),
    ],
)
def test_a_forged_record_is_noticed_beside_the_statistics(
    run: Run, tmp_path: Path, column: str, place: int, failed: str
) -> None:
    random_statistics(8).save(tmp_path / "stats")
    folder = run.save(tmp_path / "run")
    assert verify(folder).ok
    assert verify(forge_record(folder, column, place, 1.001)).failed == (failed,)


def test_a_run_without_its_statistics_says_what_was_not_checked(run: Run, tmp_path: Path) -> None:
    folder = run.save(tmp_path / "alone" / "run")
    found = verify(folder)
    assert found.ok
    assert any("statistics with the hash" in sentence and "--with" in sentence for sentence in found.not_checked)
    random_statistics(8).save(tmp_path / "elsewhere" / "stats")
    named = verify(folder, beside=[tmp_path / "elsewhere" / "stats"])
    assert "the loss gap is that of W and H" in named.checked
    assert not any("statistics with the hash" in sentence for sentence in named.not_checked)


@pytest.mark.parametrize(("of_W", "of_H"), [(1.1, 1.0), (1.0, 1.1), (2.0, 0.5)])
def test_arrays_that_do_not_belong_to_the_trajectory_are_noticed(run: Run, of_W: float, of_H: float) -> None:
    checks = check_result(replace(run, W=of_W * run.W, H=of_H * run.H))
    assert [sentence for sentence, holds in checks.items() if holds is False] == [
        "loss gap and norms are those of the last record"
    ]


@pytest.mark.parametrize("name", ["W", "H"])
def test_arrays_that_are_not_finite_are_noticed(run: Run, name: str) -> None:
    checks = check_result(replace(run, **{name: np.nan * getattr(run, name)}))
    assert not checks["W and H are finite, or the run diverged"]


def test_loss_gaps_are_compared_as_shares_of_themselves() -> None:
    assert same_loss(1e-9, 1e-9 * (1 + 1e-7))
    assert not same_loss(1e-9, 1.001e-9)
    assert same_loss(1e-17, 3e-16), "rounding decides"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Statistics and the run that `train` wrote beside them, as a snapshot."""
    random_statistics(8).save(tmp_path / "stats")
    train(random_statistics(8), "ufm", dim=3, optimizer="adam", steps=20, checkpoint=tmp_path / "run")
    return tmp_path / "run/step-000000000020"


@pytest.mark.parametrize("file", ["arrays.safetensors", "trajectory.parquet"])
def test_a_flipped_byte_in_a_run_is_found_when_the_folder_around_it_is_verified(trained: Path, file: str) -> None:
    around = trained.parents[1]
    assert verify(around).ok
    content = bytearray((trained / file).read_bytes())
    content[len(content) // 2] ^= 1
    (trained / file).write_bytes(content)
    assert any(sentence.startswith("run: every file has the hash") for sentence in verify(around).failed)


def forge_training(folder: Path) -> None:
    """Another W and H, with everything that can be computed from them adjusted: records, loss gap, hashes, seal."""
    stats = random_statistics(8)
    other = train(stats, "ufm", dim=3, optimizer="adam", steps=20, seed=7)
    forge_array(folder, "arrays.safetensors", "result.0.W", lambda old: other.W)
    forge_array(folder, "arrays.safetensors", "result.0.H", lambda old: other.H)
    table = pq.read_table(folder / "trajectory.parquet")
    for column in ("loss_gap", "norm_W", "norm_H", "norm_logits", "margin"):
        values = table[column].to_numpy().copy()
        values[-1] = other.trajectory.last(column)
        table = table.set_column(table.column_names.index(column), column, pa.array(values))
    pq.write_table(table, folder / "trajectory.parquet")
    forge(folder, lambda manifest: manifest["results"][0].update({"loss_gap": other.loss_gap}))


def test_another_geometry_with_adjusted_records_is_not_that_of_the_state(trained: Path) -> None:
    forge_training(trained)
    assert verify(trained).failed == (OF_STATE,)
    assert verify(trained.parents[1]).failed == (f"run: {OF_STATE}",)
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    with pytest.raises(InputError, match="not those of the state that training would continue from"):
        train(random_statistics(8), "ufm", dim=3, optimizer="adam", steps=40, checkpoint=trained.parent, resume=True)
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before, "the good snapshot is kept"


def test_what_only_training_again_would_show_is_declared(run: Run, trained: Path, tmp_path: Path) -> None:
    for folder in (run.save(tmp_path / "saved"), trained):
        said = " ".join(verify(folder).not_checked)
        assert "that training with these settings gives W, H and the state" in said
        assert "the command, the machine and the version of tokengeom" in said
    assert "state of generators" in " ".join(verify(trained).not_checked)


@pytest.mark.parametrize("name", ["state.W", "state.K_second"])
def test_a_state_that_is_not_finite_is_refused_and_replaces_nothing(trained: Path, name: str) -> None:
    forge_array(trained, "arrays.safetensors", name, lambda old: old * np.nan)
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    with pytest.raises(InputError, match="not finite"):
        Run.load(trained)
    with pytest.raises(InputError, match="not finite"):
        train(random_statistics(8), dim=3, optimizer="adam", checkpoint=trained.parent, resume=True)
    assert not verify(trained).ok
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before


@pytest.mark.parametrize(
    ("entry", "value", "failed"),
    [
        ("step", 19, "step does not belong to its runs"),
        ("generators", [{"bit_generator": "PCG64"}], "there is one generator of windows per replicate"),
    ],
)
def test_a_forged_snapshot_is_named(trained: Path, entry: str, value: object, failed: str) -> None:
    found = verify(forge(trained, lambda manifest: manifest.update({entry: value})))
    assert len(found.failed) == 1
    assert failed in found.failed[0]


def test_a_snapshot_under_the_name_of_another_step_is_named(trained: Path) -> None:
    moved = trained.rename(trained.with_name("step-000000000021"))
    assert verify(moved).failed == ("the step is that of the folder's name",)


def test_generators_of_sampled_windows_are_read(tmp_path: Path) -> None:
    train(random_statistics(8), dim=3, steps=5, batch=4, checkpoint=tmp_path / "run")
    assert verify(tmp_path / "run").ok
    folder = tmp_path / "run/step-000000000005"
    found = verify(forge(folder, lambda manifest: manifest["generators"][0]["state"].update({"state": "no"})))
    assert [sentence for sentence in found.failed if "generator of windows" in sentence]


@pytest.mark.parametrize("learned", [False, True])
def test_states_of_batched_replicates_and_of_fixed_embeddings_are_read(tmp_path: Path, learned: bool) -> None:
    stats, hooks = random_statistics(8), TrainingHooks(checkpoint=tmp_path / "run")
    H = np.random.default_rng(0).standard_normal((4, stats.m))
    linear = [TrainingSettings(model="linear", learn_embeddings=learned, seed=seed, steps=4) for seed in range(2)]
    train_many(stats, linear, embeddings=H, hooks=hooks, backend="torch")
    train_many(
        stats,
        [TrainingSettings(dim=dim, seed=dim, steps=4, precision="float32") for dim in (2, 3)],
        hooks=TrainingHooks(checkpoint=tmp_path / "padded"),
        backend="torch",
    )
    for name in ("run", "padded"):
        assert OF_STATE in verify(tmp_path / name).checked
        assert verify(tmp_path / name).ok
        folder = tmp_path / name / "step-000000000004"
        assert OF_STATE in verify(forge_array(folder, "arrays.safetensors", "state.theta", lambda x: x * 1.01)).failed


@pytest.mark.parametrize("model", ["mlp", "transformer", "tied"])
def test_a_network_is_built_again_from_its_state(tmp_path: Path, model: str) -> None:
    stats = small_stories()
    more: dict[str, Any] = {"heads": 2} if model == "transformer" else {}
    train(stats, model, dim=8, steps=3, checkpoint=tmp_path / "run", **more)
    assert OF_STATE not in verify(tmp_path / "run").checked
    assert any(OF_STATE in sentence for sentence in verify(tmp_path / "run").not_checked)
    stats.save(tmp_path / "stats")
    found = verify(tmp_path / "run")
    assert found.ok, found.failed
    assert OF_STATE in found.checked
    forge_array(tmp_path / "run/step-000000000003", "arrays.safetensors", "state.theta", lambda x: np.roll(x, 1))
    assert verify(tmp_path / "run").failed == (OF_STATE,)
