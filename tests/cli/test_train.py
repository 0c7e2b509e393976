"""``tokengeom train --start``: from a saved prediction, resumed, and refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import say
from geometry_cases import grouped_counts
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.verification.verify import verify


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two statistics."""
    folder = tmp_path_factory.mktemp("train")
    for seed in (0, 1):
        NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=seed)).save(folder / f"stats{seed}")
    return folder


def test_a_run_starts_from_a_saved_prediction_and_is_resumed(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert say(capsys, "predict", work / "stats0", "--loss-gap", 0.1, "--out", work / "at-loss").code == 0
    short = ["train", work / "stats0", "--dim", 12, "--start", work / "at-loss", "--out", work / "run", "--json"]
    first = say(capsys, *short, "--steps", 3)
    assert first.code == 0, first.err
    assert json.loads(first.out)["settings"]["start"]["kind"] == "tokengeom-at-loss"
    without = say(capsys, "train", work / "stats0", "--dim", 12, "--out", work / "run", "--steps", 5, "--resume")
    assert without.code == 2
    assert "start differ" in without.err
    resumed = say(capsys, *short, "--steps", 5, "--resume")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["steps"] == 5
    assert verify(work / "run", beside=[work / "stats0"])


def test_a_start_for_other_statistics_is_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert say(capsys, "predict", work / "stats1", "--proxy", "--components", 3, "--out", work / "proxy").code == 0
    refused = say(capsys, "train", work / "stats0", "--start", work / "proxy", "--steps", 1)
    assert refused.code == 2
    assert "must have the same statistics" in refused.err
    assert "Predict from the statistics" in refused.err
