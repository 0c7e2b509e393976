"""``tokengeom predict`` at a loss: the command line gives what Python gives, in both norms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import run_here
from geometry_cases import grouped_counts
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.predict import predict
from tokengeom.verification.verify import verify


@pytest.mark.parametrize("norm", ["nuclear", "gamma2"])
def test_a_prediction_at_a_loss_is_that_of_python(norm: str, tmp_path: Path) -> None:
    stats = NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=0))
    stats.save(tmp_path / "stats")
    done = run_here(
        "predict", tmp_path / "stats", "--loss-gap", 0.05, "--norm", norm, "--out", tmp_path / "at", "--json"
    )
    assert done.code == 0, done.err
    data, here = json.loads(done.out), predict(stats, loss_gap=0.05, norm=norm)
    assert data["norm"] == norm
    assert data["norm_value"] == pytest.approx(here.norm_value, rel=1e-6)
    assert data["lower_bound"] == pytest.approx(here.lower_bound, rel=1e-6)
    saved = load(tmp_path / "at")
    assert isinstance(saved, LossPrediction)
    assert saved.norm == norm
    assert verify(tmp_path / "at")


def test_an_unknown_norm_is_refused(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=0)).save(tmp_path / "stats")
    done = run_here("predict", tmp_path / "stats", "--loss-gap", 0.05, "--norm", "gamma3")
    assert done.code == 2
    assert "gamma2" in done.err
