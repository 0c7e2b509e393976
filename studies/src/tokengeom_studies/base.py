"""`AbstractStudy`, a named experiment, and `Findings`, what running one returns.

A study is one file in this package: a final subclass of `AbstractStudy` with a question, a recipe for each size and
``run``. Its name is the file's name with dashes. `study_names` lists the files, and `find_study` imports one of them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from tokengeom import AbstractResult, TokengeomError
from tokengeom.extending import (
    MANIFEST,
    InputError,
    Matches,
    damaged,
    data_frame,
    did_you_mean,
    from_plain,
    html_table,
    member,
    member_names,
    read_json,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.extending import AbstractProgress, Figure

Recipe = Mapping[str, Any]
"""Settings of one run of a study, by name."""
Table = Mapping[str, Sequence[Any]]
"""Columns by name, all of one length."""

PACKAGE = "tokengeom_studies"
REPLACED = {
    "architectures": "at-the-loss-reached",
    "early-stopping": "predicted-start",
    "linear-dimension-sweep": "separability-random",
    "natural-text": "at-the-loss-reached",
    "overparameterisation": "memory-capacity",
    "proxy-exactness": "proxy-excess",
    "regularisation-schedules": "path-vs-gd",
    "separability-threshold": "separability-random",
    "small-d-network": "memory-capacity",
}
"""Studies of earlier versions -> the study that answers their question."""


def table_of(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table from its rows, which all have the same names."""
    return {name: [row[name] for row in rows] for name in rows[0]}


@dataclass(frozen=True)
class Check:
    """A number and the range it must lie in; None leaves a side open."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the number lies in its range; NaN never does."""
        above = self.low is None or self.value >= self.low
        below = self.high is None or self.value <= self.high
        return bool(above and below and self.value == self.value)

    @property
    def allowed(self) -> str:
        """The range as a phrase: "at least 0.9", "at most 1e-6", "between 0.1 and 0.2"."""
        low, high = ("" if end is None else _short(end) for end in (self.low, self.high))
        if low and high:
            return f"exactly {low}" if self.low == self.high else f"between {low} and {high}"
        return f"at least {low}" if low else f"at most {high}" if high else "any number"

    def to_dict(self) -> dict[str, Any]:
        """Name, value, range and verdict."""
        return {**vars(self), "passed": self.passed}


def _short(number: float) -> str:
    """A number without zeros that nobody writes: 1e-6 instead of 1e-06."""
    return re.sub(r"e([+-])0*", lambda sign: f"e{sign[1].strip('+')}", f"{number:g}")


@dataclass(frozen=True, eq=False, repr=False)
class Findings(AbstractResult):
    """What a study found.

    ``study``, ``question``, ``recipe``
        Name of the study, what it asks, and the settings it ran with.
    ``sentence``
        The answer, with its numbers, in a few sentences.
    ``numbers``
        Numbers with the ranges they must lie in; the study passes if all of them do.
    ``figures``, ``tables``
        Figures as data, and tables by name.
    ``stated``
        Of findings that were loaded: the verdict on each number, and on the whole, as the folder states them.

    Loading reads everything back. Figures come from their saved data and are not drawn again until they are saved.
    """

    kind: ClassVar[str] = "tokengeom-findings"
    title: ClassVar[str] = "Study"

    study: str
    question: str
    recipe: Recipe
    sentence: str
    numbers: Sequence[Check]
    figures: Sequence[Figure] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)
    stated: Sequence[bool] | None = None

    @property
    def passed(self) -> bool:
        """Whether every number lies in its range."""
        return all(check.passed for check in self.numbers)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the contents of figures and tables, as plain data."""
        return {
            "study": self.study,
            "question": self.question,
            "recipe": dict(self.recipe),
            "passed": self.passed,
            "sentence": self.sentence,
            "checks": [check.to_dict() for check in self.numbers],
            "figures": [figure.name for figure in self.figures],
            "tables": list(self.tables),
        }

    def to_frame(self, table: str | None = None) -> DataFrame:
        """Data frame with one row per number that was checked: value, range, and whether it lies in it.

        ``table``
            Name of one of `tables`, to get that table instead.
        """
        if table is None:
            rows = [{**check.to_dict(), "allowed": check.allowed} for check in self.numbers]
            return data_frame(rows).set_index("name")
        if table not in self.tables:
            raise InputError(f"The study '{self.study}' has no table {table!r}. {did_you_mean(table, self.tables)}")
        return data_frame({name: list(values) for name, values in self.tables[table].items()})

    def summary(self) -> str:
        """The question, the answer, and every check that failed."""
        failed = [check for check in self.numbers if not check.passed]
        passed = f"{len(self.numbers) - len(failed)} of {len(self.numbers)} checks passed."
        missed = [f"Failed: {check.name} = {check.value:.6g}, must be {check.allowed}." for check in failed]
        return "\n".join([self.question, self.sentence, passed, *missed])

    def _facts(self) -> list[tuple[str, str]]:
        passed = sum(check.passed for check in self.numbers)
        return [
            ("study", self.study),
            ("passed", "yes" if self.passed else "no"),
            ("checks", f"{passed} of {len(self.numbers)}"),
            ("figures", str(len(self.figures))),
            ("tables", str(len(self.tables))),
        ]

    def _repr_html_(self) -> str:
        rows = [
            (check.name, f"{check.value:.6g}", check.allowed, "yes" if check.passed else "no") for check in self.numbers
        ]
        title = f"{self.title} {self.study}: {'passed' if self.passed else 'failed'}"
        columns = ("number", "value", "must be", "passed")
        return html_table(title, rows, [self.question, self.sentence], columns)

    @classmethod
    def made_before(cls, folder: str | Path, study: str, recipe: Recipe) -> Self | None:
        """Findings that are saved in a folder, of this study, recipe and version of tokengeom; None without them."""
        path = Path(folder)
        try:
            same_version = read_json(path / MANIFEST).get("tokengeom") == version("tokengeom")
            saved = cls.load(path) if same_version else None
        except (TokengeomError, OSError):
            return None
        if saved is None or saved.study != study or saved.recipe != json.loads(json.dumps(dict(recipe))):
            return None
        return saved

    def _write(self, folder: Path) -> dict[str, Any]:
        """Each figure as png, svg, html and data, and each table as Parquet; the rest goes into the manifest."""
        import pyarrow as pa
        from pyarrow import parquet

        from tokengeom.extending import save_interactive, save_static
        from tokengeom_studies.common.figure_data import save_data

        for figure in self.figures:
            save_static(figure, folder / f"{figure.name}.png")
            save_static(figure, folder / f"{figure.name}.svg")
            save_interactive(figure, folder / f"{figure.name}.html")
            save_data(figure, folder / f"{figure.name}-data")
        for name, columns in self.tables.items():
            table = pa.table({key: list(values) for key, values in columns.items()})
            parquet.write_table(table, folder / f"{name}.parquet")
        return self.to_dict()

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        from pyarrow import parquet

        from tokengeom_studies.common.figure_data import load_data

        names = [entry.name for entry in dataclasses.fields(_SavedFindings)]
        saved = from_plain(_SavedFindings, {name: manifest[name] for name in names if name in manifest}, folder)
        figures = [load_data(_figure_file(folder, name)) for name in saved.figures]
        if [figure.name for figure in figures] != list(saved.figures):
            raise damaged(folder, "its figures do not have the names in the manifest")
        return cls(
            study=saved.study,
            question=saved.question,
            recipe=saved.recipe,
            sentence=saved.sentence,
            numbers=[Check(check.name, check.value, check.low, check.high) for check in saved.checks],
            figures=figures,
            tables={name: parquet.read_table(folder / f"{name}.parquet").to_pydict() for name in saved.tables},
            stated=[*(check.passed for check in saved.checks), saved.passed],
        )


_FileName = Annotated[str, Matches(r"(?!\.{1,2}$)[^/\\\0]+", "the plain name of a figure or table")]


@dataclass(frozen=True)
class _SavedCheck:
    """A `Check` in a manifest; its numbers may be NaN or infinite."""

    name: str
    value: Any
    low: Any
    high: Any
    passed: bool

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if type(number) not in (int, float) and (name == "value" or number is not None):
                raise ValueError(f"{name} must be a number; got {number!r}")


@dataclass(frozen=True)
class _SavedFindings:
    """What the manifest of findings holds, besides what every manifest has."""

    study: str
    question: str
    recipe: dict[str, Any]
    passed: bool
    sentence: str
    checks: tuple[_SavedCheck, ...]
    figures: tuple[_FileName, ...]
    tables: tuple[_FileName, ...]


def _figure_file(folder: Path, name: str) -> Path:
    """The JSON file of a saved figure."""
    files = list((folder / f"{name}-data").glob("*.json"))
    if len(files) != 1:
        raise damaged(folder, f"{name}-data must have one JSON file; it has {len(files)}")
    return files[0]


def check_findings(findings: Findings, nearby: object) -> dict[str, bool | None]:
    """Whether the verdicts in a saved folder follow from its numbers and ranges; ``verify`` asks for this."""
    computed = [*(check.passed for check in findings.numbers), findings.passed]
    return {
        "every verdict follows from its number and range": findings.stated is None or list(findings.stated) == computed,
        "numbers, sentence, figures and tables: only running the study again would show them": None,
        "ranges, question and recipe: they are as the study had them when it ran": None,
    }


class AbstractStudy(ABC):
    """A named experiment.

    ``question``
        What it asks, as one sentence.
    ``small``, ``paper``
        Its recipes: the default, for minutes on a CPU, and the size of the papers. Both have the same settings.
    """

    question: ClassVar[str]
    small: ClassVar[Recipe]
    paper: ClassVar[Recipe]

    @property
    def name(self) -> str:
        """Name of its file, with dashes."""
        return type(self).__module__.rpartition(".")[2].replace("_", "-")

    @abstractmethod
    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Run the experiment with the settings of the recipe."""

    def recipe(self, size: str = "small", **changes: object) -> dict[str, Any]:
        """The recipe of a size, with single settings changed."""
        sizes = {"small": self.small, "paper": self.paper}
        if size not in sizes:
            raise InputError(f"The study '{self.name}' has no size '{size}'; it has: {', '.join(sizes)}.")
        unknown = sorted(set(changes) - set(sizes[size]))
        if unknown:
            known = ", ".join(sizes[size])
            raise InputError(f"The study '{self.name}' has no setting '{unknown[0]}'; its settings are: {known}.")
        return {**sizes[size], **changes}

    def findings(
        self,
        recipe: Recipe,
        sentence: str,
        numbers: Sequence[Check],
        figures: Sequence[Figure] = (),
        tables: Mapping[str, Table] | None = None,
    ) -> Findings:
        """Findings of this study; what ``run`` returns."""
        return Findings(self.name, self.question, recipe, sentence, numbers, figures, tables or {})


def study_names() -> list[str]:
    """Names of all studies, one per file of this package; no study is imported."""
    return [name.replace("_", "-") for name in member_names(PACKAGE)]


def find_study(name: str) -> AbstractStudy:
    """A study by name, importing only its file; an unknown name is refused with the one that was likely meant."""
    if name in REPLACED:
        raise InputError(f"The study '{name}' was replaced by '{REPLACED[name]}', which answers its question.")
    if name not in study_names():
        raise InputError(f"There is no study '{name}'. {did_you_mean(name, study_names())}")
    return member(PACKAGE, name.replace("-", "_"), AbstractStudy, "a study")()  # type: ignore[type-abstract]


def all_studies() -> dict[str, AbstractStudy]:
    """Every study by name; imports them all."""
    return {name: find_study(name) for name in study_names()}
