"""Checks, findings on disk, recipes, and studies that are found as files."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom_studies
from forging import forge, forge_json
from study_cases import run_study
from tokengeom import load, verify
from tokengeom.extending import MANIFEST, Curve, Figure, InputError, LinePanel, SilentProgress, member_names
from tokengeom_studies.base import (
    PACKAGE,
    REPLACED,
    AbstractStudy,
    Check,
    Findings,
    all_studies,
    find_study,
    study_names,
    table_of,
)

GOOD, BAD = Check("good", 1.0, low=0.0), Check("bad", 1.0, high=0.0)


def findings(*checks: Check, **parts: Any) -> Findings:
    return Findings("some-study", "Does it hold?", {"steps": 3, "rates": [0.1, 1]}, "1 of 2.", checks, **parts)


@pytest.mark.parametrize(
    ("value", "low", "high", "passed"),
    [
        (1.0, 0.0, 2.0, True),
        (0.0, 0.0, 2.0, True),
        (2.0, 0.0, 2.0, True),
        (-0.1, 0.0, 2.0, False),
        (2.1, 0.0, 2.0, False),
        (5.0, 0.0, None, True),
        (-5.0, None, 0.0, True),
        (5.0, None, 0.0, False),
        (math.nan, 0.0, 2.0, False),
        (math.nan, None, None, False),
        (math.inf, 0.0, None, True),
    ],
)
def test_a_check_passes_exactly_inside_its_range(
    value: float, low: float | None, high: float | None, passed: bool
) -> None:
    assert Check("number", value, low, high).passed is passed


@pytest.mark.parametrize(
    ("low", "high", "allowed"),
    [
        (0.9, None, "at least 0.9"),
        (None, 1e-6, "at most 1e-6"),
        (0.1, 0.2, "between 0.1 and 0.2"),
        (None, None, "any number"),
        (2.0, 2.0, "exactly 2"),
        (-1e-12, 3e20, "between -1e-12 and 3e20"),
        (-3.0, -1.5, "between -3 and -1.5"),
        (0.0, None, "at least 0"),
        (10.0, 1e6, "between 10 and 1e6"),
    ],
)
def test_a_range_is_a_phrase(low: float | None, high: float | None, allowed: str) -> None:
    assert Check("number", 1.0, low, high).allowed == allowed


def test_a_check_of_a_numpy_number_can_be_written_as_json() -> None:
    check = Check("number", np.float64(1.0), low=0.0)
    assert json.loads(json.dumps(check.to_dict()))["passed"] is True


def test_findings_pass_only_if_every_check_does() -> None:
    assert findings(GOOD).passed
    assert not findings(GOOD, BAD).passed


def test_a_summary_names_the_checks_that_failed() -> None:
    lines = findings(GOOD, BAD).summary().splitlines()
    assert lines[:3] == ["Does it hold?", "1 of 2.", "1 of 2 checks passed."]
    assert lines[3:] == ["Failed: bad = 1, must be at most 0."]
    assert repr(findings(GOOD, BAD)) == "Findings(study=some-study, passed=no, checks=1 of 2, figures=0, tables=0)"


@pytest.fixture
def full() -> Findings:
    curve = Curve("one", np.array([1.0, 2.0]), np.array([0.5, np.nan]))
    figure = Figure("curve-of-numbers", "Numbers", "One curve.", [LinePanel("All", "x", "y", [curve])])
    table = {"name": ["a", "b"], "number": [1.5, math.nan], "holds": [True, False], "steps": [3, 4]}
    return findings(GOOD, BAD, Check("nan", math.nan, low=0.0), figures=[figure], tables={"numbers": table})


def test_saved_findings_have_every_form_of_a_figure(full: Findings, tmp_path: Path) -> None:
    folder = full.save(tmp_path / "found")
    names = {path.name for path in folder.iterdir()}
    drawn = {f"curve-of-numbers{end}" for end in (".png", ".svg", ".html", "-data")}
    assert names == {*drawn, "numbers.parquet", MANIFEST}


def test_findings_are_read_back_whole(full: Findings, tmp_path: Path) -> None:
    again = load(full.save(tmp_path / "found"))
    assert isinstance(again, Findings)
    # repr tells NaN from a number.
    assert repr(again.to_dict()) == repr(full.to_dict())
    assert repr(again.tables) == repr(full.tables)
    assert repr(list(again.numbers)) == repr(list(full.numbers))
    (panel,) = again.figures[0].panels
    assert isinstance(panel, LinePanel)
    assert panel.curves[0].y[0] == 0.5
    assert again.summary() == full.summary()


def test_findings_that_were_loaded_can_be_saved_again(full: Findings, tmp_path: Path) -> None:
    again = Findings.load(full.save(tmp_path / "found")).save(tmp_path / "again")
    assert verify(again).ok
    assert repr(Findings.load(again).to_dict()) == repr(full.to_dict())


@pytest.mark.parametrize("of_one_check", [True, False])
def test_a_verdict_that_does_not_follow_from_the_numbers_is_found(
    full: Findings, tmp_path: Path, of_one_check: bool
) -> None:
    folder = full.save(tmp_path / "found")
    assert verify(folder).ok
    forge(folder, lambda manifest: (manifest["checks"][1] if of_one_check else manifest).update(passed=True))
    found = verify(folder)
    assert found.failed == ("every verdict follows from its number and range",)
    assert any("only running the study again" in sentence for sentence in found.not_checked)


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("tables", ["../numbers"], "must be the plain name"),
        ("figures", ["/etc/passwd"], "must be the plain name"),
        ("figures", ["other"], "must have one JSON file"),
        ("passed", "yes", "passed must be true or false"),
        ("recipe", [], "recipe must be an object"),
        ("checks", [{"name": "x"}], "is missing"),
        ("checks", [{**GOOD.to_dict(), "value": "high"}], "value must be a number"),
        ("checks", {}, "checks must be a list"),
        ("sentence", 3, "sentence must be a text"),
    ],
)
def test_forged_findings_are_refused(full: Findings, tmp_path: Path, entry: str, value: object, message: str) -> None:
    folder = forge(full.save(tmp_path / "found"), lambda manifest: manifest.update({entry: value}))
    with pytest.raises(InputError, match="is damaged") as found:
        Findings.load(folder)
    assert message in str(found.value)


def test_a_figure_whose_table_is_elsewhere_is_refused(full: Findings, tmp_path: Path) -> None:
    folder = full.save(tmp_path / "found")
    forge_json(folder, "curve-of-numbers-data/curve-of-numbers.json", ("panels", 0, "table"), lambda name: f"../{name}")
    with pytest.raises(InputError, match="without a path"):
        Findings.load(folder)


def test_a_damaged_table_is_refused(full: Findings, tmp_path: Path) -> None:
    folder = full.save(tmp_path / "found")
    (folder / "numbers.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"is damaged: numbers\.parquet"):
        Findings.load(folder)


def test_findings_name_their_study_and_recipe() -> None:
    found = run_study("linear-2d", steps=20)
    study = find_study("linear-2d")
    assert (found.study, found.question) == ("linear-2d", study.question)
    assert found.recipe == study.recipe("small", steps=20)


def test_a_table_is_made_of_rows() -> None:
    assert table_of([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]) == {"a": [1, 2], "b": ["x", "y"]}


def test_a_study_is_found_by_its_name_and_an_unknown_one_is_named() -> None:
    assert find_study("linear-2d").name == "linear-2d"
    with pytest.raises(InputError, match=r"no study 'linear-3d'\. Did you mean 'linear-2d'"):
        find_study("linear-3d")


@pytest.mark.parametrize("name", REPLACED)
def test_a_study_that_was_replaced_names_the_one_that_answers_its_question(name: str) -> None:
    assert name not in study_names()
    assert REPLACED[name] in study_names()
    with pytest.raises(InputError, match=f"was replaced by '{REPLACED[name]}'"):
        find_study(name)


def test_every_file_but_base_is_one_study_and_a_package_is_none() -> None:
    folder = Path(tokengeom_studies.__file__).parent
    files = {path.stem.replace("_", "-") for path in folder.glob("*.py")} - {"base", "--init--"}
    assert study_names() == sorted(files)
    assert (folder / "common" / "__init__.py").exists()
    assert "common" not in member_names(PACKAGE)


def test_names_are_listed_without_importing_a_study_and_one_study_imports_no_other() -> None:
    script = f"""
import sys
from tokengeom_studies.base import find_study, study_names

def imported():
    return [n for n in sys.modules if n.startswith("{PACKAGE}.") and n.count(".") == 1]

assert len(study_names()) > 10 and "linear-2d" in study_names()
print(*imported())
find_study("separability-random")
print(*imported())
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, after = (set(line.split()) for line in run.stdout.splitlines())
    assert before == {f"{PACKAGE}.base"}
    assert after - before == {f"{PACKAGE}.common", f"{PACKAGE}.separability_random"}


NEW_STUDY = '''
"""A study of one number."""

from tokengeom_studies.base import AbstractStudy, Check


class NewStudy(AbstractStudy):
    """One number."""

    question = "Is the number small?"
    small = {"number": 1.0}
    paper = {"number": 100.0}

    def run(self, recipe, progress):
        number = recipe["number"]
        return self.findings(recipe, f"It is {number}.", [Check("number", number, high=10.0)])
'''


@pytest.fixture
def new_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file with a study in a folder that is added to the package."""
    (tmp_path / "added_by_a_test.py").write_text(NEW_STUDY)
    monkeypatch.setattr(tokengeom_studies, "__path__", [*tokengeom_studies.__path__, str(tmp_path)])
    yield "added-by-a-test"
    sys.modules.pop(f"{PACKAGE}.added_by_a_test", None)


def test_a_new_file_is_a_new_study(new_study: str) -> None:
    assert new_study in study_names()
    assert new_study in all_studies()
    study = find_study(new_study)
    assert isinstance(study, AbstractStudy)
    assert study.run(study.recipe(), SilentProgress()).passed
    found = study.run(study.recipe("paper"), SilentProgress())
    assert not found.passed
    assert (found.study, found.question, found.sentence) == (new_study, "Is the number small?", "It is 100.0.")


def test_an_unknown_size_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'linear-2d' has no size 'huge'; it has: small, paper"):
        find_study("linear-2d").recipe("huge")


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no setting 'step'; its settings are: .*steps"):
        find_study("linear-2d").recipe("small", step=3)


def test_changes_replace_single_settings_and_leave_the_recipe_alone() -> None:
    study = find_study("linear-2d")
    changed = study.recipe("small", steps=7)
    assert changed["steps"] == 7
    assert study.recipe("small")["steps"] != 7
    assert {**changed, "steps": study.recipe("small")["steps"]} == study.recipe("small")
