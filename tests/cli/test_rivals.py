"""``tokengeom rivals``: the table as text and as JSON, and its figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import run
from geometry_cases import grouped_counts
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.train import train


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Statistics and a short run."""
    folder = tmp_path_factory.mktemp("rivals")
    stats = NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=0))
    stats.save(folder / "stats")
    train(stats, "ufm", dim=12, optimizer="adamw", learning_rate=1e-2, steps=200).save(folder / "run")
    return folder


def test_the_table_is_printed_as_json_and_drawn(work: Path) -> None:
    few = ["--held-out", 0.5, "--resamples", 20, "--permutations", 20, "--k", 2]
    done = run("rivals", work / "stats", work / "run", *few, "--figure", work / "rivals.png", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert set(data["best"]) == {"contexts", "tokens", "held-out contexts"}
    assert {row["rival"] for row in data["rows"]} == {"ETF", "PMI", "L_in", "P", "S~", "L_mm"}
    assert {"value", "low", "high", "null"} <= set(data["rows"][0]["similarity"])
    assert (work / "rivals.png").read_bytes().startswith(b"\x89PNG")


def test_unusable_options_are_refused(work: Path) -> None:
    wrong = run("rivals", work / "stats", work / "run", "--held-out", 0.9)
    assert wrong.returncode == 2
    assert "at most 0.5" in wrong.stderr
    unknown = run("rivals", work / "stats", work / "run", "--held-out", 0, "--figure", work / "rivals.bmp")
    assert unknown.returncode == 2
    assert "--figure must end in" in unknown.stderr
    assert unknown.stdout == "", "a picture that cannot be is refused before the work, not after"
    plain = run("rivals", work / "stats", work / "run", "--held-out", 0, "--resamples", 20, "--permutations", 20)
    assert "explains them best" in plain.stdout
    assert "Held out" not in plain.stdout
