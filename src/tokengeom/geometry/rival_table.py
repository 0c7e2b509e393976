"""`Rivals`: which explanation fits a run's geometry best, by how much, and whether that is more than chance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tokengeom.errors import missing_extra
from tokengeom.folders import as_json
from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.comparison import describe_draws, nan_to_none, none_to_nan
from tokengeom.results import AbstractResult, close, html_table

if TYPE_CHECKING:
    from pandas import DataFrame

RESOLUTION = 1e-4
"""Differences of SIM below this are within the accuracy of L_mm."""
FILE = "rivals.json"


@dataclass(frozen=True)
class Lead:
    """Difference in SIM between the best explanation and another, with its paired 95% interval."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes a tie."""
        return self.low > RESOLUTION

    def __str__(self) -> str:
        interval = f" [{self.low:.3g}, {self.high:.3g}]" if np.isfinite(self.low) else ""
        return f"{self.value:.3g}{interval}"


@dataclass(frozen=True)
class RivalRow:
    """One explanation, evaluated on one kind of items of a run.

    ``rival``, ``meaning``
        Its short name and what it is.
    ``items``
        "contexts", "tokens" or "held-out contexts".
    ``similarity``, ``cka``
        SIM of cosines and CKA of Gram matrices with the run's; 1 is best; with interval and null.
    ``behind``
        How far it is behind the best explanation of these items, in SIM; 0 for the best itself.
    ``without_direction``
        Number of items without a direction; they count as unlike all others.
    """

    rival: str
    meaning: str
    items: str
    similarity: Agreement
    cka: Agreement
    behind: Lead
    without_direction: int

    @property
    def is_chance(self) -> bool:
        """Whether its SIM is no more than chance (`Agreement.beats_chance`); False where that was not tested."""
        return self.similarity.has_null and not self.similarity.beats_chance

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, nested."""
        return asdict(self)


@dataclass(frozen=True, eq=False, repr=False)
class Rivals(AbstractResult):
    """Rival explanations of a run's geometry: rows by kind of items, best first.

    ``held_out``
        Number of contexts that were evaluated as held-out: explanations were made without them.
    ``limitations``
        Sentences: how the numbers must not be read.
    ``resamples``, ``permutations``, ``seed``
        Draws behind intervals and null; the seed also determines the random splits into folds.
    """

    kind: ClassVar[str] = "tokengeom-rivals"
    title: ClassVar[str] = "Rival explanations"

    rows: tuple[RivalRow, ...]
    held_out: int
    limitations: tuple[str, ...]
    resamples: int
    permutations: int
    seed: int

    @property
    def items(self) -> tuple[str, ...]:
        """Kinds of items that were evaluated."""
        return tuple(dict.fromkeys(row.items for row in self.rows))

    @property
    def best(self) -> dict[str, RivalRow]:
        """Kind of items -> the row with the largest SIM."""
        return {items: self.of(items)[0] for items in self.items}

    def of(self, items: str) -> tuple[RivalRow, ...]:
        """Rows of one kind of items, best first."""
        return tuple(row for row in self.rows if row.items == items)

    def to_dict(self) -> dict[str, Any]:
        """The best explanation of each kind of items by name, all rows, the draws and the limitations."""
        tested = {items: row.similarity for items, row in self.best.items()}
        return {
            "best": {items: row.rival for items, row in self.best.items()},
            "beats_chance": {items: one.beats_chance if one.has_null else None for items, one in tested.items()},
            "clear": {items: _second(self.of(items)).behind.is_clear for items in self.items},
            "rows": [row.to_dict() for row in self.rows],
            "held_out": self.held_out,
            "resamples": self.resamples,
            "permutations": self.permutations,
            "seed": self.seed,
            "limitations": list(self.limitations),
        }

    def to_frame(self) -> DataFrame:
        """Data frame with one row per explanation and kind of items: SIM, CKA, intervals, difference to the best."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            missing_extra("pandas", "pandas", "A data frame of the rivals (to_dict needs nothing)")
        return pd.DataFrame([_flat(row) for row in self.rows]).set_index(["items", "rival"])

    def summary(self) -> str:
        """Verdict and table for each kind of items, then the limitations."""
        lines = []
        for items in self.items:
            lines += [_verdict(self.of(items)), *_table(self.of(items))]
        return "\n".join([*lines, *describe_draws(self.resamples, self.permutations), *self.limitations])

    def checks(self) -> Mapping[str, bool]:
        """Order and differences, recomputed from the similarities."""
        ordered, differences = True, True
        for items in self.items:
            values = [row.similarity.value for row in self.of(items)]
            ranked = [-math.inf if math.isnan(value) else value for value in values]
            ordered &= ranked == sorted(ranked, reverse=True)
            behind = [row.behind.value for row in self.of(items)]
            differences &= all(_equal(b, values[0] - value) for b, value in zip(behind, values, strict=True))
        return {
            "explanations are in the order of their similarity": ordered,
            "differences to the best explanation are those of the similarities": differences,
        }

    def _facts(self) -> list[tuple[str, str]]:
        best = [(items, f"{row.rival}, SIM {row.similarity}") for items, row in self.best.items()]
        return [*best, ("explanations", str(len({row.rival for row in self.rows})))]

    def _repr_html_(self) -> str:
        columns = ("items", "explanation", "SIM", "95% interval", "chance", "CKA", "behind the best", "meaning")
        rows = [
            (row.items, row.rival, *row.similarity.cells(), f"{row.cka.value:.4g}", str(row.behind), row.meaning)
            for row in self.rows
        ]
        verdicts = [_verdict(self.of(items)) for items in self.items]
        return html_table(self.title, rows, [*verdicts, *self.limitations], columns)

    def _write(self, folder: Path) -> dict[str, Any]:
        draws = {name: getattr(self, name) for name in ("held_out", "resamples", "permutations", "seed")}
        rows = [_row_to_json(row) for row in self.rows]
        (folder / FILE).write_bytes(as_json({"rows": rows, "limitations": list(self.limitations), **draws}))
        return draws

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        rows = tuple(_row_from_json(row) for row in content["rows"])
        return cls(**{**content, "rows": rows, "limitations": tuple(content["limitations"])})


def _verdict(rows: Sequence[RivalRow]) -> str:
    """Which explanation fits best, by how much, and whether that is more than noise."""
    first, second = rows[0], _second(rows)
    items = f"{first.items[:1].upper()}{first.items[1:]}"
    if np.isnan(first.similarity.value):
        return f"{items}: too few or too similar to rank explanations."
    if first.is_chance:
        return f"{items}: {_only_chance(rows)}"
    best = f"{items}: {first.rival} ({first.meaning}) explains them best, SIM {first.similarity}"
    if second is first:
        return f"{best}."
    if not np.isfinite(second.behind.low):
        return f"{best}; {second.rival} is {second.behind} behind."
    clear = "the 95% interval excludes 0" if second.behind.is_clear else "a tie within the 95% interval"
    return f"{best}; {second.rival} is {second.behind} behind, {clear}.{_by_cka(rows)}"


def _only_chance(rows: Sequence[RivalRow]) -> str:
    """For a largest SIM that permutations reach too, such as that of equal angles, which explains nothing."""
    first, better = rows[0], [row for row in rows if not row.is_chance]
    found = f"{first.rival} ({first.meaning}) has the largest SIM, {first.similarity}, which is no more than chance"
    if not better:
        return f"{found}; no other explanation does better than chance."
    best = better[0]
    return f"{found}; of those that beat chance, {best.rival} ({best.meaning}) is best, SIM {best.similarity}."


def _by_cka(rows: Sequence[RivalRow]) -> str:
    best = max(rows, key=lambda row: np.nan_to_num(row.cka.value, nan=-1.0))
    return "" if best is rows[0] else f" By CKA {best.rival} is first."


def _second(rows: Sequence[RivalRow]) -> RivalRow:
    return rows[min(1, len(rows) - 1)]


def _table(rows: Sequence[RivalRow]) -> list[str]:
    width = max(len(row.rival) for row in rows)
    return [
        f"  {row.rival:<{width}}  SIM {row.similarity}; CKA {row.cka}{_behind(row) if place else ''}{_missing(row)}"
        for place, row in enumerate(rows)
    ]


def _behind(row: RivalRow) -> str:
    return f"; behind by {row.behind}"


def _missing(row: RivalRow) -> str:
    return f"; no direction for {row.without_direction}" if row.without_direction else ""


def _flat(row: RivalRow) -> dict[str, Any]:
    found: dict[str, Any] = {"items": row.items, "rival": row.rival}
    for name, number in {"similarity": row.similarity, "cka": row.cka}.items():
        found |= {name: number.value, f"{name}_low": number.low, f"{name}_high": number.high}
        found[f"{name}_null"] = number.null
    found |= {"behind": row.behind.value, "behind_low": row.behind.low, "behind_high": row.behind.high}
    return found | {"without_direction": row.without_direction, "meaning": row.meaning}


def _equal(a: float, b: float) -> bool:
    return close(a, b) or (math.isnan(a) and math.isnan(b))


_PARTS = {"similarity": Agreement, "cka": Agreement, "behind": Lead}


def _row_to_json(row: RivalRow) -> dict[str, Any]:
    content = asdict(row)
    return content | {name: nan_to_none(content[name]) for name in _PARTS}


def _row_from_json(content: dict[str, Any]) -> RivalRow:
    parts: dict[str, Any] = {name: kind(**none_to_nan(content[name])) for name, kind in _PARTS.items()}
    return RivalRow(**{**content, **parts})
