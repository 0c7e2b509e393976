"""What a study is: a question, a recipe, and findings that are held against known numbers.

Findings on disk: the recipe, the checks, every figure drawn and as data, every table as Parquet.
"""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar

from tokengeom.errors import InputError
from tokengeom.figures.base import Figure
from tokengeom.figures.data import save_data
from tokengeom.figures.interactive import save_interactive
from tokengeom.figures.static import save_static
from tokengeom.folders import write_manifest, written_beside
from tokengeom.progress import AbstractProgress

Recipe = Mapping[str, Any]


@dataclass(frozen=True)
class Check:
    """One number held against what is known of it: it must lie in ``low .. high`` (None leaves a side open)."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the number is where it must be; NaN never is."""
        above = self.low is None or self.value >= self.low
        below = self.high is None or self.value <= self.high
        return bool(above and below and self.value == self.value)


@dataclass(frozen=True)
class Findings:
    """What a study found.

    ``sentence``
        The answer to the study's question, with its numbers, in one or two plain sentences.
    ``checks``
        Numbers held against known ones; the study passes if all do.
    ``figures``, ``tables``
        What it shows; a table is columns by name, all of one length.
    """

    sentence: str
    checks: Sequence[Check]
    figures: Sequence[Figure] = ()
    tables: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return all(check.passed for check in self.checks)


class AbstractStudy(ABC):
    """A named experiment. Its recipe lies in ``recipes/NAME.toml``, one table a size (``small`` is the default)."""

    name: ClassVar[str]
    question: ClassVar[str]

    @abstractmethod
    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Do the experiment as the recipe says."""

    def recipe(self, size: str = "small", **changes: Any) -> dict[str, Any]:
        """The recipe of a size, with single settings changed."""
        text = files("tokengeom.studies").joinpath("recipes", f"{self.name}.toml").read_text(encoding="utf-8")
        sizes = tomllib.loads(text)
        if size not in sizes:
            raise InputError(f"The study '{self.name}' has no size '{size}'; it has: {', '.join(sizes)}.")
        unknown = sorted(set(changes) - set(sizes[size]))
        if unknown:
            known = ", ".join(sizes[size])
            raise InputError(f"The study '{self.name}' has no setting '{unknown[0]}'; its settings are: {known}.")
        return {**sizes[size], **changes}


def all_studies() -> dict[str, AbstractStudy]:
    """Every study of the house by name: each is one file beside this one."""
    for module in iter_modules(import_module("tokengeom.studies").__path__):
        if module.name not in ("base", "storage"):
            import_module(f"tokengeom.studies.{module.name}")
    found = [kind() for kind in AbstractStudy.__subclasses__()]
    return {study.name: study for study in sorted(found, key=lambda study: study.name)}


def find_study(name: str) -> AbstractStudy:
    """A study by name."""
    studies = all_studies()
    if name not in studies:
        raise InputError(f"There is no study '{name}'; there are: {', '.join(studies)}.")
    return studies[name]


FORMAT, FORMAT_VERSION = "tokengeom-findings", 1


def save_findings(study: AbstractStudy, recipe: Recipe, findings: Findings, folder: Path) -> None:
    """Write everything that a study found; an older result of that name is replaced once the new one is whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with written_beside(folder, FORMAT) as work:
        for figure in findings.figures:
            save_static(figure, work / f"{figure.name}.png")
            save_static(figure, work / f"{figure.name}.svg")
            save_interactive(figure, work / f"{figure.name}.html")
            save_data(figure, work / f"{figure.name}-data")
        for name, columns in findings.tables.items():
            pq.write_table(pa.table({key: list(values) for key, values in columns.items()}), work / f"{name}.parquet")
        content = {
            "study": study.name,
            "question": study.question,
            "recipe": dict(recipe),
            "passed": findings.passed,
            "sentence": findings.sentence,
            "checks": [{**vars(check), "passed": check.passed} for check in findings.checks],
        }
        write_manifest(work, FORMAT, FORMAT_VERSION, content)
