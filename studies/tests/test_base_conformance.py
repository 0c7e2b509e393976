"""Every study satisfies the same contract, on a recipe that takes seconds.

A new study is found by its file; for this test it needs a table in ``tiny.toml`` with the settings that make its small
recipe tiny.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from study_cases import run_study
from tokengeom.extending import (
    Figure,
    HeatmapPanel,
    LinePanel,
    Panel,
    ResourceError,
    SilentProgress,
)
from tokengeom_studies.base import Check, Findings, find_study, study_names
from tokengeom_studies.common.figure_data import load_data, save_data
from tokengeom_studies.common.measured import AbstractMeasuredStudy

TINY: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "tiny.toml").read_text())
NAMES = study_names()
OF_NETWORKS = [name for name in NAMES if "device" in find_study(name).recipe()]
MEASURED = [name for name in NAMES if isinstance(find_study(name), AbstractMeasuredStudy)]


def tiny_findings(name: str) -> Findings:
    assert name in TINY, f"Give the study '{name}' a table in studies/tests/tiny.toml"
    return run_study(name, **TINY[name])


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def findings(name: str) -> Findings:
    return tiny_findings(name)


def test_a_study_has_a_question_and_both_sizes(name: str) -> None:
    study = find_study(name)
    assert study.name == name
    assert study.question.endswith("?")
    assert list(study.recipe("small")) == list(study.recipe("paper"))
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)


def test_the_answer_is_a_sentence_with_numbers(findings: Findings) -> None:
    assert findings.sentence.endswith(".")
    assert re.search(r"\d", findings.sentence)
    # A number that could not be computed must not appear in an answer.
    assert not re.search(r"\bnan\b|\binf\b|None", findings.sentence)


def test_every_check_can_fail(findings: Findings) -> None:
    assert findings.numbers
    names = [check.name for check in findings.numbers]
    assert len(set(names)) == len(names)
    for check in findings.numbers:
        assert isinstance(check, Check)
        assert check.low is not None or check.high is not None, f"{check.name} cannot fail"
        assert isinstance(check.value, float)


def test_tables_have_columns_of_one_length(findings: Findings) -> None:
    assert findings.tables
    for columns in findings.tables.values():
        assert len({len(column) for column in columns.values()}) == 1
        assert len(next(iter(columns.values()))) > 0


def check_panel(panel: Panel) -> None:
    if isinstance(panel, LinePanel):
        assert panel.curves
        assert all(np.shape(curve.x) == np.shape(curve.y) for curve in panel.curves)
        assert any(np.isfinite(curve.y).any() for curve in panel.curves)
    elif isinstance(panel, HeatmapPanel):
        rows, columns = np.shape(panel.values)
        assert len(panel.y_names) in (0, rows)
        assert len(panel.x_names) in (0, columns)
    else:
        assert all(np.shape(points.x) == np.shape(points.y) for points in panel.points)


def test_figures_are_complete_and_can_be_saved_as_data(findings: Findings, tmp_path: Path) -> None:
    assert findings.figures
    assert len({figure.name for figure in findings.figures}) == len(findings.figures)
    for figure in findings.figures:
        assert isinstance(figure, Figure)
        assert figure.title
        assert figure.caption
        assert figure.panels
        for panel in figure.panels:
            check_panel(panel)
        save_data(figure, tmp_path / figure.name)
        page = next((tmp_path / figure.name).rglob("*.json"))
        assert [type(panel) for panel in load_data(page).panels] == [type(panel) for panel in figure.panels]


def without_times(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Tables without their column of times, the one that may differ between runs."""
    return {
        name: {key: column for key, column in columns.items() if key != "seconds"} for name, columns in tables.items()
    }


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in MEASURED else name for name in NAMES],
    indirect=True,
    scope="module",
)
def test_the_same_recipe_gives_the_same_findings(name: str, findings: Findings) -> None:
    again = tiny_findings(name)
    assert again.sentence == findings.sentence
    # repr tells NaN from a number, and equal floats have equal reprs.
    assert repr(again.numbers) == repr(findings.numbers)
    assert repr(without_times(again.tables)) == repr(without_times(findings.tables))


def test_the_prose_says_token_and_not_word(name: str, findings: Findings) -> None:
    texts = [find_study(name).question, findings.sentence, *(check.name for check in findings.numbers)]
    texts += [text for figure in findings.figures for text in (figure.title, figure.caption)]
    assert not [text for text in texts if re.search(r"\bwords?\b", text, re.IGNORECASE)]


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_a_device_that_does_not_exist_ends_the_study_before_any_work(name: str) -> None:
    study = find_study(name)
    assert study.recipe("small")["device"] == "cpu"
    assert study.recipe("paper")["device"] == "cuda"
    # A negative number of stories would be refused as soon as a text is made.
    work = {"stories": -1} if "stories" in study.recipe("paper") else {}
    with pytest.raises(ResourceError, match="cuda:99"):
        study.run(study.recipe("paper", device="cuda:99", **work), SilentProgress())


def test_the_paper_size_has_the_settings_of_the_papers() -> None:
    recipe = find_study("networks-simplified-stories").recipe("paper")
    expected = {"layers": 4, "heads": 6, "steps": 30_000, "learning_rate": 1e-4, "weight_decay": 1e-6}
    assert {key: recipe[key] for key in expected} == expected
    assert recipe["schedule"] == "papers"
    assert recipe.get("dim", 128) == 128


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("linear", "separability"))])
def test_every_linear_study_passes_at_its_default_size(name: str) -> None:
    found = run_study(name)
    assert found.passed, found.summary()
