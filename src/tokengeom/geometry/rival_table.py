"""What rivals say: which explanation gives a run's geometry best, by how much, and against what chance.

Rival explanations on disk: the table in one JSON file, under a manifest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import InputError, missing_extra
from tokengeom.folders import as_json, read_manifest, write_manifest, written_beside
from tokengeom.geometry.agreement import Agreement
from tokengeom.geometry.comparison import with_nan, with_null

RESOLUTION = 1e-4
"""Differences of SIM below this are the accuracy of L_mm, not a lead."""


CHANCE_TIE = 1e-6
"""Relative difference below which a number equals what chance reaches: shuffling changed the rounding alone."""


@dataclass(frozen=True)
class Lead:
    """How far the best rival's SIM is ahead, with the 95% interval over the same resamples of both."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves no tie."""
        return self.low > RESOLUTION

    def __str__(self) -> str:
        interval = f" [{self.low:.3g}, {self.high:.3g}]" if np.isfinite(self.low) else ""
        return f"{self.value:.3g}{interval}"


@dataclass(frozen=True)
class RivalRow:
    """One explanation against one kind of items of a run.

    ``rival``, ``meaning``
        Its short name and what it is.
    ``items``
        "contexts", "tokens" or "held-out contexts".
    ``similarity``, ``cka``
        SIM of cosines and CKA of Grams with the run's; both 1 at best, with interval and null.
    ``behind``
        How far it is behind the best rival of these items, in SIM; 0 for the best itself.
    ``without_direction``
        Items of which it says nothing: they count as like no other.
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
        """Whether one shuffling in twenty has as large a SIM, up to rounding; False where that was not asked for."""
        value, null = self.similarity.value, self.similarity.null
        return bool(np.isfinite(null) and value <= null + CHANCE_TIE * abs(null))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return asdict(self)


@dataclass(frozen=True)
class Rivals:
    """Rival explanations of a run's geometry: rows by items, best first.

    ``held_out``
        Contexts that were left out when explanations were made, and judged.
    ``caveats``
        Plain sentences: what the numbers must not be taken for.
    ``resamples``, ``permutations``, ``seed``
        The draws behind intervals and null; the seed also draws the contexts that are held out.
    """

    rows: tuple[RivalRow, ...]
    held_out: int
    caveats: tuple[str, ...]
    resamples: int
    permutations: int
    seed: int

    @property
    def items(self) -> tuple[str, ...]:
        """Kinds of items that were judged."""
        return tuple(dict.fromkeys(row.items for row in self.rows))

    @property
    def best(self) -> dict[str, RivalRow]:
        """The row with the largest SIM of each kind of items."""
        return {items: self.of(items)[0] for items in self.items}

    def of(self, items: str) -> tuple[RivalRow, ...]:
        """Rows of one kind of items, best first."""
        return tuple(row for row in self.rows if row.items == items)

    def to_dict(self) -> dict[str, Any]:
        """The best of each kind by name, all rows, and the draws, as plain data."""
        return {
            "best": {items: row.rival for items, row in self.best.items()},
            "beats_chance": {items: not row.is_chance for items, row in self.best.items()},
            "clear": {items: _second(self.of(items)).behind.is_clear for items in self.items},
            "rows": [row.to_dict() for row in self.rows],
            "held_out": self.held_out,
            "caveats": list(self.caveats),
            "resamples": self.resamples,
            "permutations": self.permutations,
            "seed": self.seed,
        }

    def to_frame(self) -> Any:
        """Table with a row a rival and kind of items: SIM, its interval and null, CKA, distance to the best."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            missing_extra("pandas", "pandas", "A data frame of the rivals (to_dict needs nothing)")
        return pd.DataFrame([_flat(row) for row in self.rows]).set_index(["items", "rival"])

    def summary(self) -> str:
        """Put the table in plain words."""
        lines = []
        for items in self.items:
            lines += [_verdict(self.of(items)), *_table(self.of(items))]
        draws = f"Brackets: 95% of {self.resamples} resamples. " if self.resamples else ""
        if self.permutations:
            draws += f"Chance: what 1 in 20 of {self.permutations} permutations reaches."
        return "\n".join([*lines, *([draws.strip()] if draws else []), *self.caveats])


def _verdict(rows: Sequence[RivalRow]) -> str:
    """Which explains best, by how much, and whether that is more than noise."""
    first, second = rows[0], _second(rows)
    items = f"{first.items[:1].upper()}{first.items[1:]}"
    if np.isnan(first.similarity.value):
        return f"{items}: they are too few or too alike for any explanation to be judged by them."
    if first.is_chance:
        return f"{items}: {_only_chance(rows)}"
    told = f"{items}: {first.rival} ({first.meaning}) explains them best, SIM {first.similarity}"
    if not np.isfinite(second.behind.low):
        return f"{told}; {second.rival} is {second.behind} behind."
    verdict = "which resampling does not undo" if second.behind.is_clear else "a tie within the interval"
    return f"{told}; {second.rival} is {second.behind} behind, {verdict}.{_by_cka(rows)}"


def _only_chance(rows: Sequence[RivalRow]) -> str:
    """The largest number explains nothing where any shuffling has it too, such as that of equal angles."""
    first, known = rows[0], [row for row in rows if not row.is_chance]
    told = (
        f"{first.rival} ({first.meaning}) has the largest SIM, {first.similarity}, and chance reaches as much, so that "
        "it explains nothing"
    )
    if not known:
        return f"{told}; nor does any other, for the same reason."
    return (
        f"{told}; of those that beat chance {known[0].rival} ({known[0].meaning}) is best, SIM {known[0].similarity}."
    )


def _by_cka(rows: Sequence[RivalRow]) -> str:
    best = max(rows, key=lambda row: np.nan_to_num(row.cka.value, nan=-1.0))
    return "" if best is rows[0] else f" By CKA {best.rival} is first."


def _second(rows: Sequence[RivalRow]) -> RivalRow:
    return rows[min(1, len(rows) - 1)]


def _table(rows: Sequence[RivalRow]) -> list[str]:
    width = max(len(row.rival) for row in rows)
    return [
        f"  {row.rival:<{width}}  SIM {row.similarity}; CKA {row.cka}{_behind(row) if place else ''}{_silent(row)}"
        for place, row in enumerate(rows)
    ]


def _behind(row: RivalRow) -> str:
    return f"; behind by {row.behind}"


def _silent(row: RivalRow) -> str:
    return f"; says nothing of {row.without_direction}" if row.without_direction else ""


def _flat(row: RivalRow) -> dict[str, Any]:
    named = {"similarity": row.similarity, "cka": row.cka}
    found: dict[str, Any] = {"items": row.items, "rival": row.rival}
    for name, number in named.items():
        found |= {name: number.value, f"{name}_low": number.low, f"{name}_high": number.high}
        found[f"{name}_null"] = number.null
    found |= {"behind": row.behind.value, "behind_low": row.behind.low, "behind_high": row.behind.high}
    return found | {"without_direction": row.without_direction, "meaning": row.meaning}


FORMAT, FORMAT_VERSION = "tokengeom-rivals", 1
TABLE = "rivals.json"
_PARTS = {"similarity": Agreement, "cka": Agreement, "behind": Lead}


def save_rivals(table: Rivals, folder: str | Path) -> None:
    """Write a table; an older one of that name is replaced only once the new one is whole."""
    with written_beside(Path(folder), FORMAT) as work:
        (work / TABLE).write_bytes(as_json(asdict(table) | {"rows": [_plain(row) for row in table.rows]}))
        write_manifest(work, FORMAT, FORMAT_VERSION, {"seed": table.seed})


def load_rivals(folder: str | Path) -> Rivals:
    """Read a table back, refusing what is broken, foreign or from a newer version."""
    folder = Path(folder)
    read_manifest(folder, FORMAT, FORMAT_VERSION)
    try:
        content = json.loads((folder / TABLE).read_text(encoding="utf-8"))
        rows = tuple(_row(one) for one in content["rows"])
        return Rivals(**{**content, "rows": rows, "caveats": tuple(content["caveats"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder} is incomplete or damaged: {error!r}. Make the table again.") from error


def _plain(row: RivalRow) -> dict[str, Any]:
    content = asdict(row)
    return content | {name: with_null(content[name]) for name in _PARTS}


def _row(content: dict[str, Any]) -> RivalRow:
    parts: dict[str, Any] = {name: kind(**with_nan(content[name])) for name, kind in _PARTS.items()}
    return RivalRow(**{**content, **parts})
