"""Rows that are kept, intervals over seeds, and findings from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats

from tokengeom.extending import AbstractProgress, InputError, SilentProgress
from tokengeom_studies.base import Check, Findings, Recipe
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Hypothesis,
    Interval,
    Row,
    Rows,
    chosen,
    chosen_measurements,
    decided,
    decided_by_share,
    machine,
    read_rows,
    share_of,
    signed,
)


class Squares(AbstractMeasuredStudy):
    """Squares of numbers; one row per number."""

    question = "Are squares positive?"
    small: ClassVar[Recipe] = {"numbers": [1, 2]}
    paper: ClassVar[Recipe] = {"numbers": [1, 2, 3]}
    hypotheses: ClassVar[Mapping[str, Hypothesis]] = {"positive": Hypothesis("Squares are positive.", "All are.")}
    measured = 0

    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        for number in recipe["numbers"]:
            if not rows.has(number=number) and rows.in_time:
                type(self).measured += 1
                rows.add(kind="run", number=number, square=np.float64(number**2))

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        positive = all(row["square"] > 0 for row in rows)
        answer = Answer("yes" if positive else "no", f"{len(rows)} squares")
        tables = {"hypotheses": self.answers({"positive": answer})}
        return self.findings(recipe, f"{len(rows)} squares.", [Check("squares", float(len(rows)), low=1)], (), tables)


def test_measuring_continues_where_it_ended(tmp_path: Path) -> None:
    study, path = Squares(), tmp_path / "rows" / "a.jsonl"
    Squares.measured = 0
    study.measure_into(study.recipe(), path, None, SilentProgress())
    assert Squares.measured == 2
    study.measure_into(study.recipe("paper"), path, None, SilentProgress())
    assert Squares.measured == 3
    found = study.from_kept(tmp_path / "rows")
    assert found.sentence == "3 squares."
    assert found.tables["hypotheses"]["answer"] == ["yes"]
    assert len(chosen(read_rows([path]), kind="setting")) == 2


def test_the_command_is_kept_without_the_folders_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    monkeypatch.setattr("sys.argv", ["tokengeom", "study", "squares", "--rows", str(path), "--set", "text=a/b"])
    Squares().measure_into(Squares().recipe(), path, None, SilentProgress())
    (setting,) = chosen(read_rows([path]), kind="setting")
    assert setting["command"] == ["tokengeom", "study", "squares", "--rows", "rows.jsonl", "--set", "text=a/b"]


def test_no_row_is_measured_when_the_time_is_over(tmp_path: Path) -> None:
    rows = Squares().measure_into(Squares().recipe(), tmp_path / "a.jsonl", 0.0, SilentProgress())
    assert not rows.in_time
    assert not chosen(rows.rows, kind="run")


def test_a_line_that_a_kill_cut_off_is_left_out_and_damage_elsewhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 2')
    assert read_rows([path]) == [{"a": 1}]
    path.write_text('{"a": 1\n{"a": 2}\n')
    with pytest.raises(InputError, match="line 1 is not JSON"):
        read_rows([path])
    path.write_text("[1]\n")
    with pytest.raises(InputError, match="must be an object"):
        read_rows([path])


def test_rows_of_another_study_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no rows of the study"):
        Squares().from_kept(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"kind": "setting", "study": "other", "recipe": {}}\n')
    with pytest.raises(InputError, match="has rows of other"):
        Squares().from_kept(tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_intervals_are_those_of_students_t(seed: int) -> None:
    values = np.random.default_rng(seed).normal(1.0, 0.1, 5)
    found = Interval.of(values)
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 4, values.mean(), stats.sem(values)))
    assert found.mean == pytest.approx(values.mean())


def test_one_value_decides_nothing() -> None:
    assert decided(Interval.of([1.0])) == "undecided"
    assert decided(Interval.of([1.0, 1.1, 1.2])) == "yes"
    assert decided(Interval.of([-1.0, -1.1, -1.2])) == "no"
    assert decided(Interval.of([1.0, 1.1, 1.2]), least=2.0) == "no"
    assert np.isnan(Interval.of([]).mean)
    assert [decided_by_share(share, 0.75) for share in (0.8, 0.5, 0.2)] == ["yes", "undecided", "no"]


def test_the_machine_is_described() -> None:
    found = machine()
    assert found["machine"]
    assert found["versions"]["numpy"] == np.__version__


def test_a_withdrawn_row_stays_in_its_file_and_is_not_read(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows.jsonl")
    rows.add(kind="run", value=1)
    rows.add(kind="run", value=2)
    rows.add(kind="withdrawn", line=1, reason="measured on another text")
    read = read_rows([tmp_path / "rows.jsonl"])
    assert [row["value"] for row in read] == [2]
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("note", [{"line": 1}, {"line": 9, "reason": "x"}, {"reason": "x"}])
def test_a_row_is_not_withdrawn_without_its_line_and_a_reason(tmp_path: Path, note: dict[str, Any]) -> None:
    rows = Rows(tmp_path / "rows.jsonl")
    rows.add(kind="run", value=1)
    rows.add(kind="withdrawn", **note)
    with pytest.raises(InputError, match="line and a reason"):
        read_rows([tmp_path / "rows.jsonl"])


def test_rows_have_a_time_and_settings_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENGEOM_COMMIT", "abc")
    rows = Rows(tmp_path / "rows.jsonl")
    rows.add(kind="run")
    assert datetime.fromisoformat(rows.rows[0]["time"]).utcoffset() == timedelta(0)
    assert machine()["commit"] == "abc"
    assert chosen_measurements(rows.rows) == [{"kind": "run"}]


def test_a_difference_is_signed_where_its_interval_is_on_one_side() -> None:
    intervals = [Interval(x, x - 1.0, x + 1.0, 5) for x in (2.0, -2.0, 0.5)]
    assert [signed(interval) for interval in intervals] == ["yes", "no", "undecided"]
    assert signed(Interval(0.0, 0.0, 0.0, 5)) == "undecided"


def test_a_share_decides() -> None:
    cases: tuple[list[bool], ...] = ([True] * 3 + [False], [True] + [False] * 3, [True, False], [])
    assert [share_of(held).decision for held in cases] == ["yes", "no", "undecided", "undecided"]
