"""Studies of networks on tiny recipes: what they find, that their checks can fail, what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengeom.errors import InputError, ResourceError
from tokengeom.figures.base import HeatmapPanel
from tokengeom.progress import SilentProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import Findings, find_study
from tokengeom.studies.natural_text import _places
from tokengeom.training.settings import NETWORKS

SHARED: dict[str, Any] = {
    "stories": 300, "context": 3, "contexts": 100, "vocabulary": 40, "layers": 1, "heads": 2, "steps": 100,
    "learning_rate": 1e-2, "draws": 20,
}  # fmt: skip
WITH_UFM: dict[str, Any] = {**SHARED, "dim": 48, "ufm_steps": 500, "ufm_learning_rate": 1e-2}
TINY: dict[str, dict[str, Any]] = {
    "networks-simplified-stories": WITH_UFM,
    "architectures": {**WITH_UFM, "contexts": 60, "steps": 120},
    "natural-text": {**WITH_UFM, "support": "count:2"},
    "small-d-network": {**SHARED, "dims": [4, 48]},
}


def run(name: str, **changes: Any) -> Findings:
    study = find_study(name)
    return study.run(study.recipe("small", **{**TINY[name], **changes}), SilentProgress())


def failed(findings: Findings) -> list[str]:
    return [check.name for check in findings.checks if not check.passed]


@pytest.fixture(scope="module")
def found() -> dict[str, Findings]:
    return {name: run(name) for name in TINY}


@pytest.mark.parametrize("name", sorted(TINY))
def test_a_tiny_recipe_passes(name: str, found: dict[str, Findings]) -> None:
    assert failed(found[name]) == []


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("networks-simplified-stories", {"steps": 1}, "transformer, natural counts: CE - H"),
        ("networks-simplified-stories", {"steps": 1}, "transformer, random repeats: SIM of contexts"),
        ("natural-text", {"steps": 1}, "transformer, raw supports: SIM of contexts gained in training"),
        ("small-d-network", {"dims": [48, 64]}, "dimensions d below the rank of L_mm"),
        ("small-d-network", {"dims": [4, 8]}, "largest d over the rank of L_mm"),
        ("small-d-network", {"steps": 1}, "CE - H at the largest d"),
    ],
)
def test_a_check_fails_where_it_must(name: str, changes: dict[str, Any], expected: str) -> None:
    assert expected in failed(run(name, **changes))


@pytest.mark.parametrize("name", sorted(TINY))
def test_a_device_that_is_not_there_ends_the_study_before_any_work(name: str) -> None:
    study = find_study(name)
    assert study.recipe("small")["device"] == "cpu"
    assert study.recipe("paper")["device"] == "cuda"
    with pytest.raises(ResourceError, match="cuda:99"):
        study.run(study.recipe("paper", device="cuda:99", stories=-1), SilentProgress())


@pytest.mark.parametrize("name", sorted(TINY))
def test_the_papers_size_is_that_of_the_papers(name: str) -> None:
    recipe = find_study(name).recipe("paper")
    expected = {"layers": 4, "heads": 6, "steps": 30_000, "learning_rate": 1e-4, "weight_decay": 1e-6}
    assert {key: recipe[key] for key in expected} == expected
    assert recipe["schedule"] == "papers"
    assert recipe.get("dim", 128) == 128


def test_every_pair_of_architectures_is_compared_once(found: dict[str, Findings]) -> None:
    table = found["architectures"].tables["pairs"]
    models = [*NETWORKS, "UFM"]
    pairs = {frozenset(pair) for pair in zip(table["one"], table["other"], strict=True)}
    assert pairs == {frozenset((a, b)) for a in models for b in models if a != b}
    assert set(found["architectures"].tables["agreement"]["model"]) == set(models)


def test_the_heat_map_of_architectures_holds_the_tables(found: dict[str, Findings]) -> None:
    findings = found["architectures"]
    panel = findings.figures[0].panels[0]
    assert isinstance(panel, HeatmapPanel)
    values, names = panel.values, list(panel.x_names)
    assert np.array_equal(values, values.T)
    assert np.array_equal(np.diag(values), np.ones(7))
    agreement = findings.tables["agreement"]
    rows = zip(agreement["model"], agreement["number"], agreement["value"], strict=True)
    for model, number, value in rows:
        if number == "context_similarity":
            assert values[names.index(model), names.index("L_mm")] == value
    pairs = findings.tables["pairs"]
    for one, other, number, value in zip(*(pairs[key] for key in ("one", "other", "number", "value")), strict=True):
        if number == "context_similarity":
            assert values[names.index(one), names.index(other)] == value


def test_built_in_stories_are_not_called_natural(found: dict[str, Findings]) -> None:
    assert "which a grammar writes and which are no natural text" in found["natural-text"].sentence


def random_text(path: Path, followers: int) -> Path:
    """40 documents of 60 tokens out of 12, each followed by so many others, between markers."""
    rng = np.random.default_rng(0)
    documents = []
    for _ in range(40):
        walk = np.cumsum(rng.integers(1, followers + 1, 60)) % 12
        documents.append(" ".join(f"w{i}" for i in walk))
    path.write_text(" @@ ".join(documents))
    return path


def test_a_text_of_the_users_is_read_and_named(tmp_path: Path) -> None:
    path = random_text(tmp_path / "diary.txt", followers=4)
    changes = {"context": 1, "steps": 2, "ufm_steps": 30, "support": "count:50"}
    findings = run("natural-text", text=str(path), separator="@@", **changes)
    assert "diary.txt" in findings.sentence
    assert "grammar" not in findings.sentence
    assert str(tmp_path) not in findings.sentence
    windows = findings.tables["supports"]["windows"]
    # 40 documents of 60 tokens have 59 windows each, none across two documents.
    assert windows[0] == 40 * 59
    assert windows[1] < windows[0]
    assert findings.tables["supports"]["supports"][0] == 12


def test_a_text_in_which_everything_follows_everything_is_refused(tmp_path: Path) -> None:
    path = random_text(tmp_path / "soup.txt", followers=12)
    with pytest.raises(InputError, match=r"all 12 tokens follow each of the 12 contexts .*longer context"):
        run("natural-text", text=str(path), separator="@@", context=1)


def test_cut_supports_are_found_among_the_raw_contexts() -> None:
    contexts = np.array([[1, 2], [1, 3], [2, 2], [4, 1]], np.int32)
    counts = np.array([[5, 1, 4, 1], [2, 1, 1, 6]])
    raw = NextTokenStatistics.from_counts(counts, contexts=contexts)
    cut = raw.limited(support="count:2")
    assert cut.m == 3
    assert _places(raw, cut).tolist() == [0, 2, 3]


def test_the_second_policy_must_be_another_one() -> None:
    with pytest.raises(InputError, match="support='raw'"):
        run("natural-text", support="raw")
