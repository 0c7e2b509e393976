"""`Rivals`: which explanation fits a run's geometry best, by how much, and whether that is more than chance."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.comparison import describe_scale, nan_to_none
from tokengeom.comparison.made_from import MadeFrom
from tokengeom.comparison.rival_numbers import RivalRow
from tokengeom.core.checks import Entries
from tokengeom.results.contract import ALONE, AbstractResult, NearbyResults, close, data_frame, html_table
from tokengeom.results.manifests import as_json

if TYPE_CHECKING:
    from pandas import DataFrame

FILE = "rivals.json"
_STORED = ("held_out", "permutations", "seed", "prediction", "runs", "loss_gap")


@dataclass(frozen=True, eq=False, repr=False)
class Rivals(AbstractResult):
    """Rival explanations of a run's geometry: rows by kind of items, best first.

    ``rows``
        One row per explanation and kind of items; `of` gives those of one kind.
    ``held_out``
        Number of contexts that were evaluated as held-out: explanations were made without them.
    ``limitations``
        Sentences: how the numbers must not be read.
    ``permutations``, ``seed``
        Permutations behind the floors; the seed also determines the random split into folds.
    ``prediction``
        Name of the explanation that is the prediction for this run, which the others are compared with.
    ``runs``
        Number of runs: the first was explained, the others give the ceiling.
    ``loss_gap``
        ``CE - H`` of the run in nats; None where nothing that depends on it was compared.
    ``made_from``
        Hashes of the saved results behind it, and the settings; None where they are not known.
    """

    kind: ClassVar[str] = "tokengeom-rivals"
    title: ClassVar[str] = "Rival explanations"

    rows: tuple[RivalRow, ...]
    held_out: int
    limitations: tuple[str, ...]
    permutations: int
    seed: int
    prediction: str | None = None
    runs: int = 1
    loss_gap: float | None = None
    made_from: MadeFrom | None = None

    @property
    def items(self) -> tuple[str, ...]:
        """Kinds of items that were evaluated."""
        return tuple(dict.fromkeys(row.items for row in self.rows))

    @property
    def best(self) -> dict[str, RivalRow]:
        """Kind of items -> the row with the largest agreement."""
        return {items: self.of(items)[0] for items in self.items}

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One sentence or two per kind of items: which explanation fits best, and by how much."""
        return tuple(_verdict(self.of(items), self.prediction) for items in self.items)

    def of(self, items: str) -> tuple[RivalRow, ...]:
        """Rows of one kind of items, best first."""
        return tuple(row for row in self.rows if row.items == items)

    def to_dict(self) -> dict[str, Any]:
        """The best explanation of each kind of items, every explanation by name, and the limitations.

        ``rivals`` has per explanation what it is, and per kind of items ``value, low, high`` with floors, ceiling, CKA,
        SIM and differences.
        """
        found: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            about = {name: getattr(row, name) for name in ("meaning", "uses", "parameters", "ours")}
            found.setdefault(row.rival, about)[row.items] = _numbers(row)
        return {
            "best": {items: row.rival for items, row in self.best.items()},
            "above_floor": {items: _above_floor(row.agreement) for items, row in self.best.items()},
            "clear": {items: _second(self.of(items)).behind.is_clear for items in self.items},
            "rivals": found,
            **{name: getattr(self, name) for name in _STORED},
            "verdicts": list(self.verdicts),
            "limitations": list(self.limitations),
        }

    def to_frame(self) -> DataFrame:
        """Data frame with one row per explanation and kind of items: agreement, CKA, SIM, floors and differences."""
        return data_frame([_flat(row) for row in self.rows]).set_index(["items", "rival"])

    def summary(self) -> str:
        """Verdict and table for each kind of items, how to read them, then the limitations."""
        lines = []
        for items, verdict in zip(self.items, self.verdicts, strict=True):
            lines += [verdict, *_table(self.of(items))]
        about = [
            f"{row.rival}: {row.meaning}; uses {row.uses}; free parameters: {row.parameters}."
            for items in self.items[:1]
            for row in sorted(self.of(items), key=lambda row: row.rival)
        ]
        return "\n".join([*lines, *describe_scale(self.permutations), *about, *self.limitations])

    def checks(self, beside: NearbyResults = ALONE) -> dict[str, bool | None]:
        """Order and differences, recomputed from the agreements; and every number, from the results beside it."""
        # That module makes such tables, and so imports this one.
        from tokengeom.comparison.computed_again import rivals_again

        ordered, behind, ahead, inside = True, True, True, True
        for items in self.items:
            rows = self.of(items)
            values = [row.agreement.value for row in rows]
            ranked = [-math.inf if math.isnan(value) else value for value in values]
            ordered &= ranked == sorted(ranked, reverse=True)
            behind &= all(_equal(row.behind.value, values[0] - row.agreement.value) for row in rows)
            mine = next((row.agreement.value for row in rows if row.rival == self.prediction), math.nan)
            ahead &= all(_equal(row.ahead.value, row.agreement.value - mine) for row in rows)
            inside &= all(row.agreement.is_inside for row in rows)
        return {
            "explanations are in the order of their agreement": ordered,
            "differences to the best explanation are those of the agreements": behind,
            "differences to the prediction are those of the agreements": ahead,
            "every interval contains its value": inside,
            **rivals_again(self, beside),
        }

    def _facts(self) -> list[tuple[str, str]]:
        best = [(items, f"{row.rival}, agreement {row.agreement}") for items, row in self.best.items()]
        return [*best, ("explanations", str(len({row.rival for row in self.rows})))]

    def _repr_html_(self) -> str:
        columns = (
            "items", "explanation", "agreement", "95% interval", "floor", "ceiling", "CKA", "SIM", "behind the best",
            "uses", "free parameters", "meaning",
        )  # fmt: skip
        rows = [
            (row.items, row.rival, *row.agreement.cells(), *_others(row), str(row.behind), *_about(row))
            for row in self.rows
        ]
        return html_table(self.title, rows, [*self.verdicts, *self.limitations], columns)

    def _write(self, folder: Path) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _STORED}
        content = {"rows": [row.to_dict() for row in self.rows], "limitations": list(self.limitations), **plain}
        content["made_from"] = None if self.made_from is None else self.made_from.to_dict()
        (folder / FILE).write_bytes(as_json(nan_to_none(content)))
        return dict(nan_to_none(plain))

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        stored = Entries(json.loads((folder / FILE).read_text(encoding="utf-8")), folder)
        stored.only("rows", "limitations", "made_from", *_STORED)
        for name in _STORED:
            if name not in manifest or stored.value(name) != manifest[name]:
                raise stored.damaged(f"{name} is not the same in {FILE} and in the manifest")
        rows = tuple(map(RivalRow.read, stored.several("rows")))
        if len({(row.items, row.rival) for row in rows}) < len(rows):
            raise stored.damaged("an explanation has two rows for the same items")
        return cls(
            rows,
            held_out=stored.whole("held_out"),
            limitations=stored.texts("limitations"),
            permutations=stored.whole("permutations"),
            seed=stored.whole("seed"),
            prediction=stored.text("prediction") if stored.has("prediction") else None,
            runs=stored.whole("runs", 1),
            loss_gap=stored.number("loss_gap") if stored.has("loss_gap") else None,
            made_from=MadeFrom.read(stored.inside("made_from")) if stored.has("made_from") else None,
        )


def _above_floor(one: Agreement) -> bool | None:
    return one.above_floor if one.has_floor else None


def _verdict(rows: Sequence[RivalRow], prediction: str | None) -> str:
    """Which explanation fits best, by how much, where the prediction is, and what a second training gives."""
    first, second = rows[0], _second(rows)
    items = f"{first.items[:1].upper()}{first.items[1:]}"
    if np.isnan(first.agreement.value):
        return f"{items}: too few or too similar to rank explanations."
    if _above_floor(first.agreement) is False:
        return f"{items}: {_only_chance(rows)}"
    best = f"{items}: {first.rival} ({first.meaning}) fits best, agreement {first.agreement}"
    if second is not first and np.isfinite(second.behind.value):
        clear = ""
        if np.isfinite(second.behind.low):
            clear = ", clearly" if second.behind.is_clear else ", not clearly"
        best += f"; {second.rival} is {second.behind} behind{clear}"
    return f"{best}.{_about_prediction(rows, prediction)}"


def _only_chance(rows: Sequence[RivalRow]) -> str:
    first, better = rows[0], [row for row in rows if row.agreement.above_floor]
    found = f"{first.rival} ({first.meaning}) has the largest agreement, {first.agreement}, which chance gives as well"
    if not better:
        return f"{found}; no other explanation does better than chance."
    best = better[0]
    return f"{found}; of those above the floor, {best.rival} ({best.meaning}) is best, agreement {best.agreement}."


def _about_prediction(rows: Sequence[RivalRow], prediction: str | None) -> str:
    """How the prediction compares with the best explanation that is not one of its own."""
    own = next((row for row in rows if row.rival == prediction and np.isfinite(row.agreement.value)), None)
    others = [row for row in rows if not row.ours and row.rival != prediction and np.isfinite(row.agreement.value)]
    if own is None or not others:
        return ""
    ahead = others[0].ahead
    if ahead.value > 0:
        clear = "clearly" if ahead.is_clear else "not clearly"
        return f" The prediction ({own.rival}, {own.agreement.value:.3g}) is {clear} behind {others[0].rival}."
    # The interval of the difference with its sign turned.
    clear = "clearly" if ahead.high < 0 else "not clearly"
    return (
        f" The prediction ({own.rival}, {own.agreement.value:.3g}) is {clear} ahead of the best other explanation, "
        f"{others[0].rival} ({others[0].agreement.value:.3g})."
    )


def _second(rows: Sequence[RivalRow]) -> RivalRow:
    return rows[min(1, len(rows) - 1)]


def _table(rows: Sequence[RivalRow]) -> list[str]:
    width = max(len(row.rival) for row in rows)
    return [
        f"  {row.rival:<{width}}  agreement {row.agreement}; CKA {row.cka.value:.3g}; SIM {row.similarity.value:.3g}"
        f"{f'; behind by {row.behind}' if place else ''}{_missing(row)}"
        for place, row in enumerate(rows)
    ]


def _others(row: RivalRow) -> tuple[str, str]:
    return f"{row.cka.value:.4g}", f"{row.similarity.value:.4g}"


def _about(row: RivalRow) -> tuple[str, str, str]:
    return row.uses, row.parameters, row.meaning


def _missing(row: RivalRow) -> str:
    return f"; no direction for {row.without_direction}" if row.without_direction else ""


def _numbers(row: RivalRow) -> dict[str, Any]:
    found = {name: x for name, x in row.agreement.to_dict().items() if name not in ("better", "items")}
    found |= {name: _plain(getattr(row, name)) for name in ("cka", "similarity", "behind", "ahead")}
    return found | {"without_direction": row.without_direction}


def _plain(one: Any) -> dict[str, float]:
    return {name: getattr(one, name) for name in ("value", "low", "high")}


def _flat(row: RivalRow) -> dict[str, Any]:
    found: dict[str, Any] = {"items": row.items, "rival": row.rival}
    for name in ("agreement", "cka", "similarity", "behind", "ahead"):
        one = getattr(row, name)
        found |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
    found |= {"floor": row.agreement.floor, "ceiling": row.agreement.ceiling}
    about = {name: getattr(row, name) for name in ("uses", "parameters", "meaning")}
    return found | {"without_direction": row.without_direction, **about}


def _equal(a: float, b: float) -> bool:
    return close(a, b) or (math.isnan(a) and math.isnan(b))
