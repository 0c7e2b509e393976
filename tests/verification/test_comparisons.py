"""Saved comparisons and tables of explanations, computed again: genuine ones pass, forged ones are named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokengeom as tg
from forging import Entry, forge_json
from geometry_cases import grouped_counts
from tokengeom.comparison.inputs import NOT_SAVED, MadeFrom
from tokengeom.results.contract import saved_hash
from tokengeom.results.manifests import read_seal
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.verification.comparisons import EARLIER
from tokengeom.verification.verify import AS_RECORDED, verify

EXPLANATIONS = ("proxy", "pmi", "maximum_margin")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Statistics, prediction, two runs, a comparison and a table of explanations, side by side."""
    folder = tmp_path_factory.mktemp("saved")
    stats = NextTokenStatistics.from_counts(grouped_counts(12, 14, 2, 3, seed=0))
    stats.save(folder / "stats")
    tg.predict(stats).save(folder / "prediction")
    for seed in (0, 1):
        tg.train(stats, "ufm", dim=4, steps=100, learning_rate=0.1, seed=seed).save(folder / f"run-{seed}")
    runs = [folder / "run-0", folder / "run-1"]
    tg.compare(folder / "prediction", runs, permutations=20, at_loss=False).save(folder / "comparison")
    tg.rivals(
        folder / "stats", runs, folder / "prediction", permutations=20, at_loss=False, explanations=EXPLANATIONS
    ).save(folder / "rivals")
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "copy")
    return tmp_path / "copy"


def test_genuine_results_are_computed_again(saved: Path) -> None:
    for name, groups in (("comparison", 11), ("rivals", 6)):
        found = verify(saved / name)
        assert found.ok, found.failed
        assert found.not_checked == (AS_RECORDED,)
        assert sum("computed again" in sentence for sentence in found.checked) == groups


def bump(number: float) -> float:
    return number + 0.01


COMPARISON: list[tuple[Entry, Callable[[Any], Any], str]] = [
    (("agreements", "limit_token_similarity", "value"), lambda x: x - 1e-4, "same agreements"),
    (("agreements", "limit_context_agreement", "low"), lambda x: x - 1e-4, "same agreements"),
    (("agreements", "limit_logit_cosine", "high"), bump, "same agreements"),
    (("agreements", "limit_token_agreement", "reproducible"), bump, "same agreements"),
    (("agreements", "limit_support_agreement", "corrected"), bump, "same agreements"),
    (("agreements", "limit_support_agreement", "corrected_low"), bump, "same agreements"),
    (("agreements", "limit_token_agreement", "mean"), bump, "same agreements"),
    (("unexplained", 0, "correlation"), bump, "same unexplained"),
    (("unexplained", 1, "name"), lambda x: f"{x} and more", "same unexplained"),
    (("rows", 3, "similarity", "value"), bump, "same rows"),
    (("rows", 2, "ahead", "low"), lambda x: x - 0.01, "same rows"),
    (("rows", 1, "parameters"), lambda x: f"{x}, all chosen well", "same rows"),
    (("disagreement", "split_tokens"), bump, "same disagreement"),
    (("loss_gap",), bump, "same loss gap"),
    (("circumstances", "groups"), lambda x: x + 1, "same circumstances"),
    (("runs",), lambda x: x + 1, "same runs"),
    (("limitations",), lambda x: x[:-1], "limitations"),
    (("reasons", 0), lambda x: f"{x} All is well.", "verdict and its reasons follow"),
    (("reasons",), lambda x: [*x, "All is well."], "sentences on norm and ties"),
    (("verdict",), lambda x: "agrees" if x != "agrees" else "does not agree", "verdict and its reasons follow"),
    (("better_explanation",), lambda x: "PMI", "verdict and its reasons follow"),
]


@pytest.mark.parametrize(("entry", "change", "named"), COMPARISON, ids=lambda x: str(x) if isinstance(x, tuple) else "")
def test_a_forged_comparison_is_named(copy: Path, entry: Entry, change: Callable[[Any], Any], named: str) -> None:
    kept = read_seal(copy / "comparison")
    forge_json(copy / "comparison", "comparison.json", entry, change)
    found = verify(copy / "comparison")
    assert any(named in sentence for sentence in found.failed), found.failed
    assert "the result's hash is the expected one" in verify(copy / "comparison", expect=kept).failed


def test_a_forged_floor_is_named(copy: Path) -> None:
    """With a floor that fits its parts, so that only computing it again shows the forgery."""

    def lower(agreement: dict[str, Any]) -> dict[str, Any]:
        parts = {name: agreement[name] - 0.01 for name in ("null", "gaussian", "untrained")}
        return {**agreement, **parts, "floor": max(parts.values())}

    folder = forge_json(copy / "comparison", "comparison.json", ("agreements", "limit_token_similarity"), lower)
    assert verify(folder).failed == ("computed again, it has the same agreements",)
    forge_json(folder, "comparison.json", ("agreements", "limit_token_similarity", "floor"), lambda x: x - 0.01)
    assert "and its parts give" in verify(folder).failed[0]


ROWS: list[tuple[Entry, Callable[[Any], Any], str]] = [
    (("agreement", "high"), bump, "same rows"),
    (("agreement", "reproducible"), bump, "same rows"),
    (("agreement", "corrected"), bump, "same rows"),
    (("similarity", "value"), bump, "same rows"),
    (("without_direction",), lambda x: x + 1, "same rows"),
    (("agreement", "mean"), lambda x: x + 0.2, "order of their agreement"),
    (("behind", "high"), bump, "same rows"),
    (("ahead", "value"), bump, "same rows"),
    (("meaning",), lambda x: "the best one", "same rows"),
]


@pytest.mark.parametrize(("entry", "change", "named"), ROWS, ids=lambda x: str(x) if isinstance(x, tuple) else "")
def test_a_forged_table_of_explanations_is_named(
    copy: Path, entry: Entry, change: Callable[[Any], Any], named: str
) -> None:
    folder = forge_json(copy / "rivals", "rivals.json", ("rows", 1, *entry), change)
    assert any(named in sentence for sentence in verify(folder).failed), verify(folder).failed


def test_forged_limitations_of_a_table_are_named(copy: Path) -> None:
    folder = forge_json(copy / "rivals", "rivals.json", "limitations", lambda x: x[1:])
    assert verify(folder).failed == ("computed again, it has the same limitations, within 0.002",)


def test_another_run_in_place_of_the_compared_one_is_not_taken_for_it(saved: Path, copy: Path) -> None:
    run = tg.load(copy / "run-0")
    assert isinstance(run, tg.Run)
    forge_json(copy / "comparison", "comparison.json", ("made_from", "runs"), lambda seals: seals[::-1])
    assert any("same agreements" in sentence for sentence in verify(copy / "comparison").failed)
    shutil.rmtree(copy / "run-0")
    found = verify(copy / "comparison")
    seal = str(saved_hash(run))[:8]
    assert found.ok
    assert found.not_checked == (
        "agreements, intervals, floors, what is explained, and other explanations were not computed again: the run "
        f"with the hash {seal} is not beside it (give its folder: --with FOLDER)",
        AS_RECORDED,
    )
    forge_json(copy / "comparison", "comparison.json", ("made_from", "runs"), lambda seals: seals[::-1])
    named = verify(copy / "comparison", beside=[saved / "run-0"])
    assert named.ok
    assert named.not_checked == (AS_RECORDED,)


def test_predictions_at_the_loss_that_were_not_saved_are_solved_for_again(copy: Path) -> None:
    tg.compare(copy / "prediction", copy / "run-0", permutations=20).save(copy / "at-loss")
    found = verify(copy / "at-loss")
    assert found.ok, found.failed
    assert any("within 0.002" in sentence for sentence in found.checked)
    forge_json(copy / "at-loss", "comparison.json", ("disagreement", "efficiency"), lambda x: 0.9 * x)
    assert [sentence for sentence in verify(copy / "at-loss").failed if "disagreement" in sentence]


GOLDEN = Path(__file__).parents[1] / "golden" / "saved"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """What version 0.1.0 saved."""
    for name in ("statistics", "features", "run-ufm", "comparison-limit", "rivals"):
        shutil.copytree(GOLDEN / name, tmp_path / name)
    return tmp_path


def test_what_an_earlier_version_measured_differently_is_listed(earlier: Path) -> None:
    folder = forge_json(earlier / "comparison-limit", "comparison.json", "reasons", lambda x: ["All is well."])
    for saved in (folder, earlier / "rivals"):
        found = verify(saved)
        assert found.ok, found.failed
        said, last = found.not_checked
        assert said.endswith(EARLIER)
        assert last == AS_RECORDED
        assert not any("computed again" in sentence for sentence in found.checked)


def test_what_was_not_saved_is_not_checked_and_says_so(copy: Path) -> None:
    prediction, run = tg.load(copy / "prediction"), tg.load(copy / "run-0")
    assert isinstance(prediction, tg.FeaturePrediction)
    assert isinstance(run, tg.Run)
    tg.compare(prediction, (run.W, run.H), permutations=0, at_loss=False).save(copy / "arrays")
    found = verify(copy / "arrays")
    assert found.ok
    assert "the run was not a saved result" in found.not_checked[0]
    made = MadeFrom.of(prediction, [run, (run.W, run.H)], [], None, {})
    assert made.runs == (saved_hash(run), NOT_SAVED)
    assert made.hashes == [saved_hash(prediction), saved_hash(run)]


@pytest.mark.parametrize(("name", "value"), [("tolerance", "small"), ("at_loss", 3), ("unknown", 1), ("loss_gap", [])])
def test_a_forged_origin_does_not_crash(copy: Path, name: str, value: object) -> None:
    folder = copy / "comparison"
    forge_json(folder, "comparison.json", ("made_from", "settings"), lambda settings: {**settings, name: value})
    assert "can be read" in verify(folder).failed[0]
