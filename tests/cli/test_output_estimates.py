"""``--estimate`` prints the expected time and memory and stops; without it, long work states them first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import assert_one_paragraph, say
from geometry_cases import grouped_counts
from tokengeom.core import resources
from tokengeom.statistics.next_token import NextTokenStatistics


@pytest.fixture(scope="module")
def stats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stats") / "stats"
    NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=0)).save(folder)
    return folder


COMMANDS = [
    (["predict"], "L_mm of 11 x 8 (merged)"),
    (["predict", "--loss-gap", 0.1, "--norm", "gamma2"], "Prediction at a loss (gamma_2 norm) of 12 x 24 (merged)"),
    (["train", "--steps", 20, "--dim", 4], "Training ufm on 12 tokens x 24 contexts, 20 steps"),
    (["report", "--steps", 20, "--dim", 4, "--no-transformer"], "The report"),
]


@pytest.mark.parametrize(("command", "what"), COMMANDS)
def test_an_estimate_is_printed_and_nothing_is_made(
    command: list[object], what: str, stats: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    done = say(capsys, command[0], stats, *command[1:], "--estimate", "--out", out)
    assert done.code == 0, done.err
    assert done.out.startswith(f"{what}: ")
    data = json.loads(say(capsys, command[0], stats, *command[1:], "--estimate", "--json").out)
    assert data["what"] == what
    assert 0 < data["shortest_seconds"] <= data["seconds"] <= data["longest_seconds"]
    assert list(tmp_path.iterdir()) == []


def test_estimates_are_of_learned_features(stats: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_one_paragraph(say(capsys, "predict", stats, "--proxy", "--estimate"))


def test_in_a_pipe_a_long_command_states_its_time_on_the_standard_error(
    stats: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resources, "LONG", 0.0)
    done = say(capsys, "predict", stats, "--json")
    assert done.err.startswith("L_mm of 11 x 8 (merged): ")
    json.loads(done.out)
    assert say(capsys, "predict", stats, "--quiet").err == ""
