"""`verify` computes again what W and H say of the records of a run, and notices what is forged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forging import forge
from tokengeom.training.run import Run
from tokengeom.training.train import train
from tokengeom.verification.runs import same_loss
from tokengeom.verification.verify import check_result, verify
from training_problems import random_statistics


@pytest.fixture(scope="module")
def run() -> Run:
    return train(random_statistics(8), "ufm", dim=3, optimizer="adam", steps=20)


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"loss_gap": 1e-6}, ["loss gap and norms are those of the last record", "the loss gap is that of W and H"]),
        ({"entropy": 0.5}, ["the entropy floor is that of the statistics"]),
        ({"status": "interrupted", "steps": 21}, []),
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
