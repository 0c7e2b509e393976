"""``tokengeom study``: several studies in turn, saved by default, continued after an interruption."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tokengeom_studies
from command_line import assert_one_paragraph, say
from tokengeom.cli.output import hash_of_saved
from tokengeom.verification.verify import verify
from tokengeom_studies.base import PACKAGE, Findings, study_names

STUDY = '''
"""A study of one number."""

from pathlib import Path

from tokengeom.core.errors import ResourceError
from tokengeom_studies.base import AbstractStudy, Check


class Added(AbstractStudy):
    """One number."""

    question = "Is the number small?"
    small = {"number": NUMBER, "list": [1, 2]}
    paper = {"number": 100.0, "list": (1, 2)}

    def run(self, recipe, progress):
        log = Path("runs.txt")
        log.write_text((log.read_text() if log.exists() else "") + self.name + " ")
        if Path(f"stop-{self.name}").exists():
            raise KeyboardInterrupt
        if Path(f"break-{self.name}").exists():
            raise ResourceError("There is no such device.")
        number = recipe["number"]
        return self.findings(recipe, f"It is {number}.", [Check("number", number, high=10.0)], tables={"t": {"x": [1]}})
'''
NAMES = ["aa-test", "bb-test", "cc-test"]


@pytest.fixture(autouse=True)
def three_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three quick studies in place of all others; the third fails."""
    folder = tmp_path / "added"
    folder.mkdir()
    for name, number in zip(NAMES, ("1.0", "2.0", "11.0"), strict=True):
        (folder / f"{name.replace('-', '_')}.py").write_text(STUDY.replace("NUMBER", number))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(tokengeom_studies, "__path__", [*tokengeom_studies.__path__, str(folder)])
    monkeypatch.setattr("tokengeom_studies.base.member_names", lambda package: [n.replace("-", "_") for n in NAMES])
    yield
    for name in NAMES:
        sys.modules.pop(f"{PACKAGE}.{name.replace('-', '_')}", None)


def ran() -> list[str]:
    """Names of the studies that were run, in order."""
    log = Path("runs.txt")
    return log.read_text().split() if log.exists() else []


def test_one_study_is_saved_by_default_and_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert study_names() == NAMES
    done = say(capsys, "study", "aa-test")
    assert done.code == 0, done.err
    assert "pass  number: 1  (must be at most 10)" in done.out
    seal = hash_of_saved(Path("results/studies/aa-test"))
    assert done.out.splitlines()[-1].endswith(f"s. Figures and data are in results/studies/aa-test, hash {seal}.")
    assert verify("results/studies/aa-test").ok
    assert say(capsys, "study", "aa-test").code == 0
    assert ran() == ["aa-test", "aa-test"], "a single study is run whenever it is asked for"
    elsewhere = json.loads(say(capsys, "study", "aa-test", "--out", "here", "--json").out)
    assert (elsewhere["out"], elsewhere["passed"]) == ("here", True)
    assert "not saved" in say(capsys, "study", "bb-test", "--no-save").out
    assert not Path("results/studies/bb-test").exists()
    assert_one_paragraph(say(capsys, "study", "aa-test", "--no-save", "--out", "x"))


def test_all_studies_end_in_one_table_and_a_failure_in_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    done = say(capsys, "study", "--all")
    assert done.code == 1
    lines = done.err.splitlines()
    assert [re.sub(r"[\d.]+ s", "T", line) for line in lines] == [
        "1 of 3, aa-test: passed, T.",
        "2 of 3, bb-test: passed, T.",
        "3 of 3, cc-test: FAILED, T.",
    ]
    rows = [re.split(r" {2,}", line) for line in done.out.splitlines()]
    assert rows[0] == ["study", "outcome", "time", "answer"]
    assert [(row[0], row[1], row[3]) for row in rows[1:4]] == [
        ("aa-test", "passed", "It is 1.0."),
        ("bb-test", "passed", "It is 2.0."),
        ("cc-test", "FAILED", "It is 11.0."),
    ]
    assert done.out.splitlines()[-1] == "2 of 3 studies passed. Figures and data are in results/studies."
    assert all(verify(Path("results/studies", name)) for name in NAMES)
    assert say(capsys, "study", "aa-test", "bb-test", "--quiet").err == ""


def test_finished_studies_are_kept_and_not_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    Path("stop-bb-test").touch()
    stopped = say(capsys, "study", "--all", "--out", "all")
    assert stopped.code == 130
    assert "1 of 3 studies are saved: the same command continues with the others." in stopped.err
    assert ran() == ["aa-test", "bb-test"]
    Path("stop-bb-test").unlink()
    data = json.loads(say(capsys, "study", "--all", "--out", "all", "--json").out)
    assert ran() == ["aa-test", "bb-test", "bb-test", "cc-test"]
    assert [one["seconds"] is None for one in data["studies"]] == [True, False, False]
    assert [one["passed"] for one in data["studies"]] == [True, True, False]
    assert data["passed"] is False
    again = say(capsys, "study", "--all", "--out", "all")
    assert len(ran()) == 4
    assert again.out.count("run before") == 3
    assert again.code == 1, "a study that failed before has still failed"


def test_another_recipe_or_version_or_a_damaged_folder_is_run_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ["study", "aa-test", "bb-test", "--out", "both"]
    say(capsys, *both)
    say(capsys, *both, "--set", "number=3.0")
    assert len(ran()) == 4
    say(capsys, *both, "--set", "number=3.0")
    assert len(ran()) == 4
    (Path("both") / "aa-test" / "t.parquet").write_bytes(b"")
    say(capsys, *both, "--set", "number=3.0")
    assert ran()[4:] == ["aa-test"]
    monkeypatch.setattr("tokengeom_studies.base.version", lambda name: "99")
    say(capsys, *both, "--set", "number=3.0")
    assert len(ran()) == 7
    assert Findings.made_before("both/aa-test", "bb-test", {}) is None
    assert Findings.made_before("nowhere", "aa-test", {}) is None


def test_the_same_recipe_of_the_paper_size_is_known_again(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        say(capsys, "study", "aa-test", "bb-test", "--size", "paper")
    assert len(ran()) == 2, "a tuple in a recipe is a list in a file"


def test_an_error_of_one_study_does_not_stop_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    Path("break-aa-test").touch()
    done = say(capsys, "study", "aa-test", "bb-test")
    assert done.code == 1
    assert "There is no such device." in done.out
    assert ran() == ["aa-test", "bb-test"]
    assert not Path("results/studies/aa-test").exists()
    assert_one_paragraph(say(capsys, "study", "aa-test"))


def test_what_is_not_ours_is_refused_before_any_work(capsys: pytest.CaptureFixture[str]) -> None:
    mine = Path("results", "studies", "bb-test")
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("mine")
    assert_one_paragraph(say(capsys, "study", "--all"))
    assert ran() == []
    assert (mine / "notes.txt").read_text() == "mine"
    assert_one_paragraph(say(capsys, "study", "--all", "aa-test"))
    assert_one_paragraph(say(capsys, "study", "aa-test", "dd-test"))


def test_without_matplotlib_studies_run_and_say_why_nothing_is_saved(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokengeom_studies.common.command.find_spec", lambda name: None)
    done = say(capsys, "study", "aa-test")
    assert "pip install 'tokengeom[figures]'" in done.out
    assert not Path("results").exists()
    assert "pip install 'tokengeom[figures]'" in say(capsys, "study", "aa-test", "--out", "x").err
    assert ran() == ["aa-test"]


def test_the_time_of_a_study_is_not_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    refused = say(capsys, "study", "aa-test", "--estimate")
    assert refused.code == 2
    assert "tokengeom train --estimate" in " ".join(refused.err.split())
    assert ran() == []


MEASURED = '''
"""A study that keeps rows."""

from tokengeom_studies.base import Check
from tokengeom_studies.common.measured import AbstractMeasuredStudy, Answer, Hypothesis


class Added(AbstractMeasuredStudy):
    """One row per number."""

    question = "Are the numbers small?"
    small = {"numbers": [1, 2]}
    paper = {"numbers": [1, 2, 3]}
    hypotheses = {"small": Hypothesis("They are small.", "All are below 10.")}

    def measure(self, recipe, rows, progress):
        for number in recipe["numbers"]:
            if not rows.has(number=number) and rows.in_time:
                rows.add(kind="run", number=number)

    def judge(self, recipe, rows):
        answers = self.answers({"small": Answer("yes", f"{len(rows)} numbers")})
        checks = [Check("rows", float(len(rows)), low=1)]
        return self.findings(recipe, f"{len(rows)} rows.", checks, tables={"a": answers})
'''


@pytest.fixture
def measured(tmp_path: Path) -> None:
    (tmp_path / "added" / "aa_test.py").write_text(MEASURED)


@pytest.mark.usefixtures("measured")
def test_rows_are_measured_in_pieces_and_findings_are_made_from_them(capsys: pytest.CaptureFixture[str]) -> None:
    first = say(capsys, "study", "aa-test", "--rows", "kept/a.jsonl", "--minutes", "1")
    assert (first.code, first.out) == (0, "")
    assert "Complete: 3 rows in kept/a.jsonl" in first.err
    more = say(capsys, "study", "aa-test", "--rows", "kept/b.jsonl", "--set", "numbers=[3]")
    assert more.code == 0
    over = say(capsys, "study", "aa-test", "--rows", "kept/c.jsonl", "--minutes", "0")
    assert "Out of time; the same command continues" in over.err
    found = say(capsys, "study", "aa-test", "--from", "kept", "--out", "here")
    assert found.code == 0
    assert "3 rows." in found.out
    assert Findings.load("here").recipe == {"numbers": [1, 2]}


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["bb-test", "--from", "kept"], "keeps no rows"),
        (["bb-test", "--rows", "a.jsonl"], "keeps no rows"),
        (["aa-test", "bb-test", "--from", "kept"], "one study at a time"),
        (["aa-test", "--from", "kept", "--size", "paper"], "leave out --size"),
        (["aa-test", "--from", "nowhere"], "Measure them first"),
        (["aa-test", "--minutes", "3"], "give both"),
    ],
)
def test_rows_are_refused_where_they_mean_nothing(
    capsys: pytest.CaptureFixture[str], given: list[str], words: str
) -> None:
    refused = say(capsys, "study", *given)
    assert refused.code == 2
    assert words in " ".join(refused.err.split())
    assert_one_paragraph(refused)


WITHOUT = """
import importlib.metadata as metadata
known = metadata.entry_points
metadata.entry_points = lambda **given: () if given.get("group") == "tokengeom.commands" else known(**given)
import runpy
runpy.run_module("tokengeom", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("given", [[], ["linear-2d"], ["--list"], ["linear-2d", "--size", "paper"]])
def test_without_the_distribution_the_command_says_how_to_install_it(given: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, "study", *given], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "pip install ./studies" in " ".join(done.stderr.split())
