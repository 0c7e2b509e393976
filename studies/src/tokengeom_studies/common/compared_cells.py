"""Cells of compared trainings: the runs of one training on one text at one loss, and how explanations stand to them.

Every agreement is corrected (`corrected`): for what two seeds agree to, and, of a rival that is a mean of trainings,
for its own reliability. Leads have intervals of a jackknife over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tokengeom_studies.base import Check, Table, table_of
from tokengeom_studies.common.corrected import Measured, corrected, corrected_difference
from tokengeom_studies.common.measured import MOST, Answer, Interval, Row, chosen, decided_by_share
from tokengeom_studies.common.on_device import ITEMS

CELL = "cell"
"""Kind of the rows of the second measurement, one per cell."""
FREE = "UFM"
"""How the names of the rivals begin that are trainings of unconstrained features."""
SPLIT = "gamma2, own split"
"""The prediction whose logits are shared between tokens and contexts as the run shares its own."""
NOT_MEASURED = "not measured, not reached, or not reproducible"


def is_free(name: str) -> bool:
    """Whether a rival is a training of unconstrained features."""
    return name.startswith(FREE)


RIVALS: Mapping[str, Callable[[str], bool]] = {
    "every rival": lambda name: True,
    "unconstrained features": is_free,
    "other rivals": lambda name: not is_free(name),
}
"""Kinds of rivals in tables -> which ones they are."""


@dataclass(frozen=True)
class Cell:
    """One row of kind `CELL` whose runs reached the loss."""

    row: Row

    @property
    def text(self) -> str:
        """Name of the text."""
        return str(self.row["text"])

    @property
    def training(self) -> str:
        """Name of the way of training."""
        return str(self.row["training"])

    @property
    def model(self) -> str:
        """The kind of model."""
        return str(self.row["model"])

    @property
    def target(self) -> float:
        """The loss gap."""
        return float(self.row["target"])

    @property
    def is_network(self) -> bool:
        """Whether the model is not unconstrained features."""
        return self.model != "ufm"

    def agreement(self, name: str, item: str) -> Measured:
        """Agreement of each seed with an explanation, which is freed of its own noise where it is a training.

        Empty where there is no such explanation.
        """
        of = {**self.row["agreement"], **self.row["rivals"]}.get(name)
        if of is None:
            return {}
        own = max(of.get("reliability", {}).get(item, 1.0), 1e-9)
        return {(seed,): value / np.sqrt(own) for seed, value in zip(self.row["seeds"], of[item], strict=True)}

    def between(self, item: str) -> Measured:
        """Agreement of pairs of seeds."""
        return {(a, b): of[item] for a, b, of in self.row["between"]}

    def agreed(self, name: str, item: str) -> float:
        """Mean agreement over seeds, not corrected."""
        return float(np.mean({**self.row["agreement"], **self.row["rivals"]}[name][item]))

    def reproducible(self, item: str) -> float:
        """Mean agreement between two seeds; NaN without two."""
        pairs = list(self.between(item).values())
        return float(np.mean(pairs)) if pairs else float("nan")

    def corrected(self, name: str, item: str) -> Interval:
        """Corrected agreement with a prediction or a rival; NaN where seeds have next to nothing in common."""
        return corrected(self.agreement(name, item), self.between(item))

    def lead(self, name: str, other: str, item: str) -> Interval:
        """How far the corrected agreement with one explanation is ahead of that with another."""
        pairs = self.between(item)
        return corrected_difference((self.agreement(name, item), pairs), (self.agreement(other, item), pairs))

    def best_rival(self, item: str, kind: str = "every rival") -> str:
        """The rival of a kind that agrees best on average; empty without one."""
        # To unconstrained features, others of their kind are another seed.
        known = [name for name in self.row["rivals"] if RIVALS[kind](name) and (self.is_network or not is_free(name))]
        means = {name: np.mean(list(self.agreement(name, item).values())) for name in known}
        return max(means, key=means.__getitem__, default="")

    def mean(self, name: str) -> float:
        """Mean over seeds of a number of the run."""
        return float(np.mean(self.row[name]))


def cell_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows of the second measurement; where there are none, those of the first."""
    return chosen(rows, kind=CELL) or first_rows(rows)


def first_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows of the first measurement, one per seed, as rows of cells.

    Its rivals were fitted to the contexts of each run, on grids that were not widened, and unconstrained features were
    trained once.
    """
    keys = ("text", "training", "model", "target")
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in chosen(rows, kind="run"):
        grouped.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [_joined(dict(zip(keys, key, strict=True)), of) for key, of in grouped.items()]


def _joined(key: dict[str, Any], tried: Sequence[Row]) -> Row:
    runs = [row for row in tried if row["reached"]]
    joined: dict[str, Any] = {**key, "kind": CELL, "tried": len(tried), "seeds": [row["seed"] for row in runs]}
    if not runs:
        return joined
    for kind in ("agreement", "rivals"):
        names = [name for name in runs[0][kind] if all(name in row[kind] for row in runs)]
        joined[kind] = {name: {item: [row[kind][name][item] for row in runs] for item in ITEMS} for name in names}
    numbers = [name for name, value in runs[0].items() if isinstance(value, float | int) and name not in (*key, "seed")]
    joined |= {name: [row[name] for row in runs] for name in numbers}
    joined["between"] = [
        [row["seed"], before["seed"], agreed]
        for place, row in enumerate(runs)
        for before, agreed in zip(
            runs[place - len(row["with_earlier_seeds"]) : place], row["with_earlier_seeds"], strict=True
        )
    ]
    return joined


def cells(rows: Iterable[Row]) -> list[Cell]:
    """The cells of rows of kind `CELL` with runs that got to their loss, in the order in which they were measured."""
    return [Cell(row) for row in rows if row["seeds"]]


def by_text(some: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Text -> its cells."""
    return {text: [cell for cell in some if cell.text == text] for text in dict.fromkeys(cell.text for cell in some)}


def run_checks(rows: Sequence[Row]) -> list[Check]:
    """Whether runs were compared at their loss, predictions are proven, and most runs got there."""
    known = cell_rows(rows)
    far = max(abs(gap / cell.target - 1.0) for cell in cells(known) for gap in cell.row["loss_gap"])
    proven = [row["relative_gap"] for row in chosen(rows, kind="prediction")]
    share = sum(len(row["seeds"]) for row in known) / sum(row["tried"] for row in known)
    return [
        Check("largest relative distance of a loss gap from the one compared at", far, high=0.25),
        Check("largest proven relative gap of a prediction", float(np.nanmax(proven)), high=0.05),
        Check("share of runs that reached their loss", share, low=0.5),
    ]


def share_ahead(some: Iterable[Cell], lead: Callable[[Cell], Interval]) -> Answer:
    """In how many cells a lead's interval is above 0; cells where nothing is reproducible do not count."""
    leads = [known for cell in some if np.isfinite((known := lead(cell)).mean)]
    if not leads:
        return Answer("undecided", NOT_MEASURED)
    ahead, behind = sum(of.low > 0 for of in leads), sum(of.high < 0 for of in leads)
    mean = float(np.mean([of.mean for of in leads]))
    because = f"ahead in {ahead} of {len(leads)} cells, behind in {behind}; mean difference {mean:+.3f}"
    return Answer(decided_by_share(ahead / len(leads), MOST), because)


def ahead_of_rivals(some: Iterable[Cell], name: str, item: str, kind: str = "every rival") -> Answer:
    """In how many cells an explanation is ahead of the rival of a kind that is best there."""
    return share_ahead(some, lambda cell: cell.lead(name, cell.best_rival(item, kind), item))


def over_texts(answers: Mapping[str, Answer]) -> Answer:
    """Yes, or no, where it is so on most of the texts on which it was measured."""
    known = {text: answer for text, answer in answers.items() if answer.because != NOT_MEASURED}
    if not known:
        return Answer("undecided", NOT_MEASURED)
    because = "; ".join(f"{text}: {answer.decision} ({answer.because})" for text, answer in known.items())
    for decision in ("yes", "no"):
        if np.mean([answer.decision == decision for answer in known.values()]) >= MOST:
            return Answer(decision, because)
    return Answer("undecided", because)


def both(number: Callable[[str], float | Interval]) -> str:
    """A number of contexts and of tokens; of intervals, the mean."""
    values = [value.mean if isinstance(value, Interval) else value for value in map(number, ITEMS)]
    return " / ".join("-" if np.isnan(value) else f"{value:.3f}" for value in values)


def shared_tables(rows: Sequence[Row], measured: Sequence[Cell], explanations: Mapping[str, str]) -> dict[str, Table]:
    """What every study of compared trainings shows; ``explanations`` are names in tables -> names in the rows."""
    return {
        "cells": _cell_table(measured, explanations),
        "edges": _edge_table(measured),
        "features": _free_table(measured),
        "ranks": _rank_table(rows, measured),
        "not reached": _missed_table(cell_rows(rows)),
    }


def lead_table(some: Sequence[Cell], name: str) -> Table:
    """By text, in how many cells an explanation is ahead of the rival that is best, and behind it."""
    return table_of(
        [
            {"text": text, "ahead of": kind}
            | {item: ahead_of_rivals(mine, name, item, kind).because.replace("ahead ", "") for item in ITEMS}
            for text, mine in by_text(some).items()
            for kind in RIVALS
        ]
        or [{"text": "-"}]
    )


def _cell_table(some: Sequence[Cell], explanations: Mapping[str, str]) -> Table:
    """Of each cell: corrected agreement, contexts / tokens, what two seeds agree to, and numbers of the runs."""

    def rivals(cell: Cell) -> str:
        names = {item: cell.best_rival(item) for item in ITEMS}
        values = both(lambda item: cell.corrected(names[item], item))
        return f"{values} ({' / '.join(dict.fromkeys(names.values()))})"

    return table_of(
        [
            {
                "text": cell.text,
                "training": cell.training,
                "loss gap": f"{cell.target:g}",
                "seeds": len(cell.row["seeds"]),
                **{label: both(partial(cell.corrected, name)) for label, name in explanations.items()},
                "best rivals": rivals(cell),
                "reproducible": both(cell.reproducible),
                "steps": f"{cell.mean('step'):.0f}",
                "efficiency": f"{cell.mean('efficiency'):.2f}",
                "split exponent": f"{cell.mean('split_exponent'):.2f}",
            }
            for cell in some
        ]
    )


def _edge_table(some: Sequence[Cell]) -> Table:
    """How often the best parameter of a rival lies on the edge of its grid, where widening gained next to nothing."""
    rows: list[dict[str, object]] = []
    for name in dict.fromkeys(name for cell in some for name, of in cell.row["rivals"].items() if "chosen" in of):
        for item in ITEMS:
            found = [cell.row["rivals"][name] for cell in some if name in cell.row["rivals"]]
            best = [of["chosen"][item] for of in found]
            values = sorted(float(text.partition("=")[2].partition(",")[0]) for text in best)
            spread = f"{values[0]:g} to {values[-1]:g} ({best[0].partition('=')[0]})"
            on_edge = sum(bool(of["edge"][item]) for of in found)
            rows.append({"rival": name, "for": item, "cells": len(found), "best values": spread, "on an edge": on_edge})
    return table_of(rows or [{"rival": "-"}])


def _free_table(some: Sequence[Cell]) -> Table:
    """Reliability of the mean of trainings of unconstrained features, by text, loss gap and learning rate."""
    rows: dict[tuple[object, ...], dict[str, object]] = {}
    for cell in some:
        for name, of in cell.row["rivals"].items():
            if own := of.get("reliability"):
                facts = {"text": cell.text, "loss gap": f"{cell.target:g}", "rival": name}
                rows[tuple(facts.values())] = facts | {"reliability": both(own.__getitem__)}
    return table_of(list(rows.values()) or [{"rival": "-"}])


def _rank_table(rows: Sequence[Row], some: Sequence[Cell]) -> Table:
    """Rank of every prediction by text and loss gap, and the dimension of the runs."""
    dims = {(cell.text, gap): cell.row.get("dim", "-") for cell in some for gap in (cell.target, 0.0)}
    found = {(row["text"], row["norm"], row["target"]): row["rank"] for row in chosen(rows, kind="prediction")}
    return table_of(
        [
            {"text": text, "prediction": norm, "loss gap": f"{gap:g}", "rank": rank, "d of the runs": dims[text, gap]}
            for (text, norm, gap), rank in found.items()
            if (text, gap) in dims
        ]
        or [{"text": "-"}]
    )


def without_rules(answers: Table) -> Table:
    """A table of answers without the column of rules."""
    return {name: column for name, column in answers.items() if name != "rule"}


def _missed_table(rows: Sequence[Row]) -> Table:
    """Trainings of which not all seeds reached a loss."""
    missed = [row for row in rows if len(row["seeds"]) < row["tried"]]
    return table_of(
        [
            {"training": row["training"], "text": row["text"], "loss gap": f"{row['target']:g}"}
            | {"seeds that reached it": f"{len(row['seeds'])} of {row['tried']}"}
            for row in missed
        ]
        or [{"training": "none"}]
    )
