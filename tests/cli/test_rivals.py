"""``tokengeom rivals``: the table as text and as JSON, and its figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import run_here, say
from geometry_cases import explained_contexts, grouped_counts
from tokengeom.comparison.explanations.base import explanation_classes
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.train import train
from tokengeom.verification.verify import verify


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Statistics and two short runs."""
    folder = tmp_path_factory.mktemp("rivals")
    stats = NextTokenStatistics.from_counts(grouped_counts(12, 8, 3, 3, seed=0), explained_contexts())
    stats.save(folder / "stats")
    for seed in (0, 1):
        found = train(stats, "ufm", dim=12, steps=100, seed=seed, optimizer="adamw", learning_rate=1e-2)
        found.save(folder / f"run{seed}")
    return folder


def test_the_table_is_printed_as_json_saved_and_drawn(work: Path) -> None:
    few = ["--permutations", 20]
    done = run_here(
        "rivals", work / "stats", work / "run0", work / "run1", *few,
        "--figure", work / "rivals.png", "--out", work / "table", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert set(data["best"]) == {"contexts", "supports", "tokens"}
    assert set(data["rivals"]) == {kind.name for kind in explanation_classes()} - {"tied"}, (
        "the run does not read tokens"
    )
    scale = {"value", "low", "high", "floor", "reproducible", "attainable", "corrected", "explained"}
    for one in data["rivals"].values():
        assert scale <= set(one["contexts"]) & set(one["supports"]) & set(one["tokens"])
    assert data["runs"] == 2
    assert data["rivals"]["S~"]["contexts"]["explained"] is not None
    assert (work / "rivals.png").read_bytes().startswith(b"\x89PNG")
    assert verify(work / "table")


def test_unusable_options_are_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = say(capsys, "rivals", work / "stats", work / "run0", "--figure", work / "rivals.bmp")
    assert unknown.code == 2
    assert "--figure must end in" in unknown.err
    assert unknown.out == "", "a picture that cannot be is refused before the work, not after"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["stats"], "Rivals needs STATS and RUN, or --model PATH and --text FILE"),
        (["stats", "run0", "--text", "a.txt"], "--text needs --model PATH"),
        (["stats", "run0", "--model", "m", "--text", "a.txt"], "leave out STATS, RUN and --prediction"),
        (["--model", "m"], "--model needs --text FILE"),
    ],
)
def test_a_run_or_a_model_is_needed_and_not_both(
    work: Path, given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = say(capsys, "rivals", *(work / one if one in ("stats", "run0") else one for one in given))
    assert done.code == 2
    assert said in " ".join(done.err.split())


def test_chosen_explanations_as_text(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--explanations", "proxy", "--explanations", "support_cosines"]
    done = say(capsys, "rivals", work / "stats", work / "run0", "--permutations", 20, *chosen)
    assert done.code == 0, done.err
    assert "fits best" in done.out
    assert "PMI" not in done.out
