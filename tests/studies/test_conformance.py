"""Every study of the house goes through the same trial, at a size that ends within seconds.

A new study is found by itself; what it needs here is ``tiny/NAME.toml``: the settings that make its recipe tiny.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, Panel
from tokengeom.figures.data import load_data, save_data
from tokengeom.progress import SilentProgress
from tokengeom.studies.base import AbstractStudy, Check, Findings, all_studies

TINY = Path(__file__).parent / "tiny"
STUDIES = all_studies()
NAMES = sorted(STUDIES)


def tiny_recipe(study: AbstractStudy) -> dict[str, Any]:
    path = TINY / f"{study.name}.toml"
    assert path.exists(), f"Give the study '{study.name}' a tiny recipe: tests/studies/tiny/{path.name}"
    return study.recipe("small", **tomllib.loads(path.read_text()))


def findings_of(name: str) -> Findings:
    return STUDIES[name].run(tiny_recipe(STUDIES[name]), SilentProgress())


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def findings(name: str) -> Findings:
    return findings_of(name)


def test_a_study_has_a_question_and_both_sizes(name: str) -> None:
    study = STUDIES[name]
    assert study.question.endswith("?")
    assert set(study.recipe("small")) == set(study.recipe("paper"))
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)


def test_the_answer_is_a_sentence_with_numbers(findings: Findings) -> None:
    assert findings.sentence.endswith(".")
    assert re.search(r"\d", findings.sentence)
    # A number that could not be computed must not end up in an answer.
    assert not re.search(r"\bnan\b|\binf\b|None", findings.sentence)


def test_the_answer_is_held_against_known_numbers(findings: Findings) -> None:
    assert findings.checks
    names = [check.name for check in findings.checks]
    assert len(set(names)) == len(names)
    for check in findings.checks:
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


def test_figures_are_complete_and_survive_being_saved(findings: Findings, tmp_path: Path) -> None:
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


def timeless(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Tables without the time that things took, the one number that may differ."""
    return {
        name: {key: column for key, column in columns.items() if key != "seconds"} for name, columns in tables.items()
    }


def test_the_same_recipe_gives_the_same_findings(name: str, findings: Findings) -> None:
    again = findings_of(name)
    assert again.sentence == findings.sentence
    # repr tells NaN from a number, and equal floats have one repr.
    assert repr(again.checks) == repr(findings.checks)
    assert repr(timeless(again.tables)) == repr(timeless(findings.tables))
