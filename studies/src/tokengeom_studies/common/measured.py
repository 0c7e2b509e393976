"""Studies whose rows are measured once, on a machine with a GPU or for hours, and kept; findings are made from them.

``tokengeom study NAME --size paper --rows FILE --minutes 9`` adds rows to a file of JSON lines, one after the other. It
does not measure again what the file has, so a measurement can be made in pieces. ``tokengeom study NAME --from FOLDER``
makes tables and figures from all such files in a folder, on any machine.

Hypotheses are stated in the study, with the rule that decides each of them, before anything is measured.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from scipy import special

from tokengeom.extending import Curve, InputError
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table, table_of

if TYPE_CHECKING:
    from tokengeom.extending import AbstractProgress

Row = Mapping[str, Any]
"""One measurement as plain data: what was measured, and what was found."""
Decision = Literal["yes", "no", "undecided"]

SETTING = "setting"
"""Kind of the row that says how and where the rows after it were measured."""
WITHDRAWN = "withdrawn"
"""Kind of the row that takes back an earlier line of its file, which stays: ``line``, from 1, and ``reason``."""


@dataclass(frozen=True)
class Hypothesis:
    """A statement that measurements can refute, and the rule that decides; both are written before measuring."""

    statement: str
    rule: str


@dataclass(frozen=True)
class Answer:
    """What the rows say about a hypothesis, with the numbers behind it."""

    decision: Decision
    because: str


class Rows:
    """Rows of a measurement, in memory or in a file of JSON lines to which each is added as soon as it is known.

    ``path``
        The file; rows that it has are read first. None keeps rows in memory.
    ``minutes``
        Time after which `in_time` is false and a study stops measuring.
    """

    def __init__(self, path: Path | None = None, minutes: float | None = None) -> None:
        self.path = path
        self.rows: list[Row] = [] if path is None or not path.exists() else read_rows([path])
        self.deadline = None if minutes is None else time.monotonic() + 60.0 * minutes

    @property
    def in_time(self) -> bool:
        """Whether there is time left."""
        return self.deadline is None or time.monotonic() < self.deadline

    @property
    def seconds_left(self) -> float:
        """Time left, infinite without a limit."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def add(self, **row: Any) -> None:
        """Keep a row with the time (UTC) at which it is known; numbers of NumPy become plain ones."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        plain = json.loads(json.dumps({**row, "time": now}, default=_plain))
        self.rows.append(plain)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(plain) + "\n")

    def where(self, **entries: Any) -> list[Row]:
        """The rows that have these entries."""
        return chosen(self.rows, **entries)

    def has(self, **entries: Any) -> bool:
        """Whether a row with these entries is known."""
        return bool(self.where(**entries))


def chosen(rows: Iterable[Row], **entries: Any) -> list[Row]:
    """The rows that have these entries."""
    return [row for row in rows if all(name in row and row[name] == value for name, value in entries.items())]


def firsts(rows: Iterable[Row], *names: str) -> list[Row]:
    """The rows of which no earlier one has the same entries of these names: what was measured again is left out."""
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(json.dumps([row.get(name) for name in names]), row)
    return list(found.values())


def text_table(rows: Iterable[Row]) -> Table:
    """The rows that describe texts, as a table."""
    return table_of([{key: row[key] for key in row if key != "kind"} for row in chosen(rows, kind="text")])


def checks_of(rows: Iterable[Row]) -> list[Check]:
    """Whether runs were read at their loss gaps, and whether the predictions are proven, if there are any."""
    runs, solved = chosen(rows, kind="run"), chosen(rows, kind="prediction")
    far = max(abs(gap / row["target"] - 1.0) for row in runs for gap in row.get("loss_gaps") or [row["loss_gap"]])
    checks = [Check("largest distance of a run from its loss gap", far, high=0.1)]
    if solved:
        proven = max(row["relative_gap"] for row in solved)
        checks.append(Check("largest proven relative gap of a prediction", proven, high=0.01))
    return checks


def ranks(solved: Iterable[tuple[str, Row]], dim: int) -> Table:
    """Ranks of named predictions, how many have more dimensions than the trainings, and what is proven of all."""
    of: dict[str, list[int]] = {}
    proven: dict[str, float] = {}
    for name, row in solved:
        of.setdefault(name, []).append(row["rank"])
        proven[name] = max(row["relative_gap"], proven.get(name, 0.0))
    above = f"above {dim} dimensions"
    return table_of(
        [
            {"prediction": name, "lowest rank": min(found), "highest rank": max(found)}
            | {above: f"{sum(rank > dim for rank in found)} of {len(found)}", "largest proven gap": proven[name]}
            for name, found in of.items()
        ]
    )


def read_rows(paths: Iterable[Path]) -> list[Row]:
    """The rows of files of JSON lines, without those that were withdrawn and a last line that was cut off by a kill."""
    return [row for path in paths for row in _kept(_lines_of(path), path)]


def _kept(rows: Sequence[Row], path: Path) -> list[Row]:
    """All rows but those of kind "withdrawn" and the lines (from 1) that these name, each with a reason."""
    notes = chosen(rows, kind=WITHDRAWN)
    if any(not note.get("reason") or not 0 < note.get("line", 0) <= len(rows) for note in notes):
        raise InputError(f"{path} is damaged: a row that withdraws another must name its line and a reason.")
    gone = {note["line"] for note in notes}
    return [row for line, row in enumerate(rows, 1) if line not in gone and row.get("kind") != WITHDRAWN]


def _lines_of(path: Path) -> list[Row]:
    rows: list[Row] = []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines) and not line.endswith("\n"):
                continue
            raise InputError(f"{path} is damaged: line {number} is not JSON ({error}).") from error
        if not isinstance(row, dict):
            raise InputError(f"{path} is damaged: line {number} must be an object with names and values.")
        rows.append(row)
    return rows


class AbstractMeasuredStudy(AbstractStudy):
    """A study in two steps: `measure` adds rows, and `judge` makes findings from rows, wherever they come from.

    ``hypotheses``
        What the study tests, by a short name.
    """

    hypotheses: ClassVar[Mapping[str, Hypothesis]]

    @abstractmethod
    def measure(self, recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
        """Measure everything that ``rows`` does not have, until its time is over."""

    @abstractmethod
    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Findings from rows; those of kind "setting" are left out."""

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Measure with the settings of the recipe, and judge."""
        rows = Rows()
        self.measure(recipe, rows, progress)
        return self.judge(recipe, chosen_measurements(rows.rows))

    def measure_into(self, recipe: Recipe, path: Path, minutes: float | None, progress: AbstractProgress) -> Rows:
        """Add rows to a file, after a row that says with which recipe and where they are measured."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = Rows(path, minutes)
        here = json.loads(json.dumps({"recipe": dict(recipe), **machine()}))
        before = chosen(rows.rows, kind=SETTING)
        # Rows belong to the setting above them, so another machine, version or commit is another setting.
        if not before or any(before[-1].get(name) != value for name, value in here.items()):
            rows.add(kind=SETTING, study=self.name, command=["tokengeom", *map(_without_folder, sys.argv[1:])], **here)
        self.measure(recipe, rows, progress)
        return rows

    def from_kept(self, folder: Path) -> Findings:
        """Findings from the rows that are kept in a folder."""
        files = sorted(folder.glob("*.jsonl"))
        if not files:
            raise InputError(
                f"{folder} has no rows of the study '{self.name}' (files *.jsonl). Measure them first: "
                f"tokengeom study {self.name} --rows {folder}/rows.jsonl"
            )
        rows = read_rows(files)
        settings = chosen(rows, kind=SETTING)
        other = {row.get("study") for row in settings} - {self.name}
        if other or not settings:
            raise InputError(f"{folder} has rows of {', '.join(map(str, other)) or 'no study'}, not of '{self.name}'.")
        return self.judge(settings[0]["recipe"], chosen_measurements(rows))

    def answers(self, answers: Mapping[str, Answer]) -> Table:
        """The table of hypotheses: statement, rule, decision and the numbers behind it."""
        missing = set(self.hypotheses) ^ set(answers)
        assert not missing, f"every hypothesis has one answer: {missing}"
        return table_of(
            [
                {
                    "hypothesis": hypothesis.statement,
                    "rule": hypothesis.rule,
                    "answer": answers[name].decision,
                    "because": answers[name].because,
                }
                for name, hypothesis in self.hypotheses.items()
            ]
        )


def _without_folder(argument: str) -> str:
    """An argument of a command as rows keep it: of an absolute path, which only one machine has, the name."""
    return PurePath(argument).name if PurePath(argument).is_absolute() else argument


def chosen_measurements(rows: Iterable[Row]) -> list[Row]:
    """All rows but those that describe the setting, without their times: findings do not depend on when."""
    return [
        {name: value for name, value in row.items() if name != "time"} for row in rows if row.get("kind") != SETTING
    ]


def machine() -> dict[str, Any]:
    """Processor or graphics card, versions of what computes, and the commit of the code."""
    versions: dict[str, str] = {"python": platform.python_version()}
    for name in ("numpy", "scipy", "torch", "transformers"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    card = platform.processor() or platform.machine()
    if "torch" in versions:
        import torch

        card = torch.cuda.get_device_name() if torch.cuda.is_available() else card
    return {"machine": card, "versions": versions, "commit": commit()}


def commit() -> str:
    """The commit of this code: of its repository, or as ``TOKENGEOM_COMMIT`` says where there is none; may be empty."""
    stated = os.environ.get("TOKENGEOM_COMMIT", "")
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return stated or subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@dataclass(frozen=True)
class Interval:
    """Mean of a few values and its 95% interval by Student's t; the interval is infinite for a single value."""

    mean: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Iterable[float]) -> Interval:
        """The interval of these values; NaN without any."""
        known = np.array(list(values), float)
        if known.size == 0:
            return Interval(float("nan"), float("nan"), float("nan"), 0)
        mean = float(known.mean())
        if known.size == 1:
            return Interval(mean, -float("inf"), float("inf"), 1)
        half = float(t_quantile(known.size) * known.std(ddof=1) / np.sqrt(known.size))
        return Interval(mean, mean - half, mean + half, int(known.size))

    def __str__(self) -> str:
        if np.isnan(self.mean):
            return "-"
        if not np.isfinite(self.high):
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"

    @property
    def half(self) -> float:
        """Half its width."""
        return self.high - self.mean


def t_quantile(count: int) -> float:
    """The 97.5% quantile of Student's distribution for so many values."""
    return float(special.stdtrit(count - 1, 0.975))


def decided(difference: Interval, least: float = 0.0) -> Decision:
    """Whether a difference is above ``least``: yes or no where the interval is on one side, otherwise undecided."""
    return "yes" if difference.low > least else "no" if difference.high <= least else "undecided"


def signed(difference: Interval) -> Decision:
    """Yes for a difference whose interval lies above 0, no for one whose interval lies below."""
    return "yes" if difference.low > 0 else "no" if difference.high < 0 else "undecided"


def decided_by_share(share: float, most: float) -> Decision:
    """Yes where at least ``most`` of the cases agree, no where at most the rest of them do."""
    return "yes" if share >= most else "no" if share <= 1.0 - most else "undecided"


MOST = 0.75
"""Share of the cells in which a statement must hold to be called true; at most 1 - MOST calls it false."""


def share_of(holds: Iterable[bool]) -> Answer:
    """Yes, no or undecided by the share of cells in which a statement holds."""
    held = list(holds)
    if not held:
        return Answer("undecided", "not measured")
    return Answer(decided_by_share(float(np.mean(held)), MOST), f"holds in {sum(held)} of {len(held)} cells")


def decided_together(decisions: Iterable[Decision]) -> Decision:
    """No where one of several cases says no, yes where all of them say yes."""
    known = set(decisions)
    return "no" if "no" in known else "yes" if known == {"yes"} else "undecided"


def interval_curve(label: str, x: Iterable[float], intervals: Sequence[Interval], **style: Any) -> Curve:
    """A curve of means, with a band where every interval is known."""
    mean, low, high = (np.array([getattr(interval, end) for interval in intervals]) for end in ("mean", "low", "high"))
    known = bool(np.isfinite([low, high]).all())
    return Curve(label, np.array(list(x), float), mean, low if known else None, high if known else None, **style)


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be kept in a row.")
