"""Tables of explanations: how well each one fits a run's contexts or tokens, all on the same pairs.

`RivalRow` is one explanation on one kind of items; `Rivals` says which explanation fits best, by how much, and whether
that is more than chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from tokengeom.comparison.agreement import Agreement, describe_scale
from tokengeom.comparison.explained import RivalRow
from tokengeom.comparison.inputs import MadeFrom
from tokengeom.core.settings import takes
from tokengeom.results.contract import AbstractJsonResult, data_frame, html_table
from tokengeom.results.convert import Within

if TYPE_CHECKING:
    from pandas import DataFrame

CALLED = {
    "contexts": "Contexts",
    "supports": "Contexts, each pair of supports counted once",
    "tokens": "Tokens",
    "held-out contexts": "Held-out contexts",
}
"""Kind of items -> what it is called at the beginning of a sentence."""
_STORED = ("held_out", "permutations", "seed", "prediction", "runs", "loss_gap")


@dataclass(frozen=True, eq=False, repr=False)
class Rivals(AbstractJsonResult):
    """Rival explanations of a run's geometry: rows by kind of items, best first.

    ``rows``
        One row per explanation and kind of items; `of` gives those of one kind.
    ``held_out``
        Number of contexts that were evaluated as held-out; 0 but in tables of earlier versions.
    ``limitations``
        Sentences: how the numbers must not be read.
    ``permutations``, ``seed``
        Permutations behind the floors; the seed of every random choice.
    ``prediction``
        Name of the explanation that is the prediction for this run, which the others are compared with.
    ``runs``
        Number of runs: trainings with different seeds, which say what is reproducible.
    ``loss_gap``
        ``CE - H`` of the run in nats; None where nothing that depends on it was compared.
    ``made_from``
        Hashes of the saved results behind it, and the settings; None where they are not known.
    """

    kind: ClassVar[str] = "tokengeom-rivals"
    title: ClassVar[str] = "Rival explanations"
    file: ClassVar[str] = "rivals.json"
    repeated: ClassVar[tuple[str, ...]] = _STORED

    saved_order: ClassVar[tuple[str, ...]] = ("rows", "limitations", *_STORED, "made_from")

    rows: tuple[RivalRow, ...]
    held_out: Annotated[int, Within(0)]
    limitations: tuple[str, ...]
    permutations: Annotated[int, Within(0)]
    seed: Annotated[int, Within(0)]
    prediction: str | None = None
    runs: Annotated[int, Within(1)] = 1
    loss_gap: float | None = None
    made_from: MadeFrom | None = None

    def __post_init__(self) -> None:
        if len({(row.items, row.rival) for row in self.rows}) < len(self.rows):
            raise ValueError("an explanation has two rows for the same items")

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

    @takes()
    def of(self, items: str) -> tuple[RivalRow, ...]:
        """Rows of one kind of items, best first."""
        return tuple(row for row in self.rows if row.items == items)

    def to_dict(self) -> dict[str, Any]:
        """The best explanation of each kind of items, every explanation by name, and the limitations.

        ``rivals`` has per explanation what it is, and per kind of items ``value, low, high`` with floors, what is
        explained, SIM and differences.
        """
        explanations: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            about = {name: getattr(row, name) for name in ("meaning", "uses", "parameters", "ours")}
            explanations.setdefault(row.rival, about)[row.items] = _numbers(row)
        return {
            "best": {items: row.rival for items, row in self.best.items()},
            "above_floor": {items: _above_floor(row.agreement) for items, row in self.best.items()},
            "clear": {items: _second(self.of(items)).behind.is_clear for items in self.items},
            "rivals": explanations,
            **{name: getattr(self, name) for name in _STORED},
            "verdicts": list(self.verdicts),
            "limitations": list(self.limitations),
        }

    def to_frame(self) -> DataFrame:
        """Data frame with one row per explanation and kind of items: agreement, SIM, floors and differences."""
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
        return "\n".join([*lines, *describe_scale(self.permutations, self.runs), *about, *self.limitations])

    def _facts(self) -> list[tuple[str, str]]:
        best = [(items, f"{row.rival}, agreement {row.agreement}") for items, row in self.best.items()]
        return [*best, ("explanations", str(len({row.rival for row in self.rows})))]

    def _repr_html_(self) -> str:
        columns = (
            "items", "explanation", "agreement", "95% interval", "floor", "attainable", "explained", "SIM",
            "behind the best", "uses", "free parameters", "meaning",
        )  # fmt: skip
        rows = [
            (
                *(row.items, row.rival, *row.agreement.cells(), row.agreement.explained_text()),
                *(f"{row.similarity.value:.4g}", str(row.behind)),
                *(row.uses, row.parameters, row.meaning),
            )
            for row in self.rows
        ]
        return html_table(self.title, rows, [*self.verdicts, *self.limitations], columns)


def _above_floor(agreement: Agreement) -> bool | None:
    return agreement.above_floor if agreement.has_floor else None


def _verdict(rows: Sequence[RivalRow], prediction: str | None) -> str:
    """Which explanation fits best, by how much, and where the prediction is."""
    first, second = rows[0], _second(rows)
    items = CALLED[first.items]
    if np.isnan(first.agreement.value):
        return f"{items}: too few or too similar to rank explanations."
    if _above_floor(first.agreement) is False:
        return f"{items}: {_only_chance(rows)}"
    agreement = str(first.agreement)
    if first.agreement.fair != first.agreement.value:
        share = first.agreement.explained_text()
        agreement = f"{first.agreement.fair:.3g}" + (f", explains {share} of what is reproducible" if share else "")
    best = f"{items}: {first.rival} ({first.meaning}) fits best, agreement {agreement}"
    if second is not first and np.isfinite(second.behind.value):
        clear = ""
        if np.isfinite(second.behind.low):
            clear = ", clearly" if second.behind.is_clear else ", not clearly"
        best += f"; {second.rival} is {second.behind} behind{clear}"
    return f"{best}.{_about_prediction(rows, prediction)}"


def _only_chance(rows: Sequence[RivalRow]) -> str:
    first, better = rows[0], [row for row in rows if row.agreement.above_floor]
    # Explanations are ordered without their own noise.
    largest = first.agreement.value >= max(row.agreement.value for row in rows if np.isfinite(row.agreement.value))
    agreement = "agreement" if largest else f"agreement without its own noise ({first.agreement.fair:.3g})"
    chance = (
        f"{first.rival} ({first.meaning}) has the largest {agreement}, {first.agreement}, which chance gives as well"
    )
    if not better:
        return f"{chance}; no other explanation does better than chance."
    best = better[0]
    return f"{chance}; of those above the floor, {best.rival} ({best.meaning}) is best, agreement {best.agreement}."


def _about_prediction(rows: Sequence[RivalRow], prediction: str | None) -> str:
    """How the prediction compares with the best explanation that is not one of its own."""
    own = next((row for row in rows if row.rival == prediction and np.isfinite(row.agreement.value)), None)
    others = [row for row in rows if not row.ours and row.rival != prediction and np.isfinite(row.agreement.value)]
    if own is None or not others:
        return ""
    ahead = others[0].ahead
    if ahead.value > 0:
        clear = "clearly" if ahead.is_clear else "not clearly"
        return f" The prediction ({own.rival}, {own.agreement.fair:.3g}) is {clear} behind {others[0].rival}."
    # The interval of the difference with its sign turned.
    clear = "clearly" if ahead.high < 0 else "not clearly"
    return (
        f" The prediction ({own.rival}, {own.agreement.fair:.3g}) is {clear} ahead of the best other explanation, "
        f"{others[0].rival} ({others[0].agreement.fair:.3g})."
    )


def _second(rows: Sequence[RivalRow]) -> RivalRow:
    return rows[min(1, len(rows) - 1)]


def _table(rows: Sequence[RivalRow]) -> list[str]:
    width = max(len(row.rival) for row in rows)
    return [
        f"  {row.rival:<{width}}  agreement {row.agreement}; SIM {row.similarity.value:.3g}"
        f"{f'; behind by {row.behind}' if place else ''}"
        f"{f'; no direction for {row.without_direction}' if row.without_direction else ''}"
        for place, row in enumerate(rows)
    ]


def _numbers(row: RivalRow) -> dict[str, Any]:
    numbers = {name: x for name, x in row.agreement.to_dict().items() if name not in ("better", "items")}
    for name in ("similarity", "behind", "ahead"):
        number = getattr(row, name)
        numbers[name] = {end: getattr(number, end) for end in ("value", "low", "high")}
    return numbers | {"without_direction": row.without_direction}


def _flat(row: RivalRow) -> dict[str, Any]:
    cells: dict[str, Any] = {"items": row.items, "rival": row.rival}
    for name in ("agreement", "similarity", "behind", "ahead"):
        number = getattr(row, name)
        cells |= {name: number.value, f"{name}_low": number.low, f"{name}_high": number.high}
    names = ("floor", "reproducible", "attainable", "corrected", "explained", "reliability")
    cells |= {name: getattr(row.agreement, name) for name in names}
    about = {name: getattr(row, name) for name in ("uses", "parameters", "meaning")}
    return cells | {"without_direction": row.without_direction, **about}
