"""A model that somebody else trained, on parts of texts: plain agreement with each explanation, part by part.

There is one training, so that nothing is known of what is reproducible, and agreement is not corrected. Its square is
the share of this one training's geometry that an explanation has. Intervals are of Student's t over parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from tokengeom.extending import Figure, HeatmapPanel
from tokengeom_studies.base import Check, Findings, Recipe, table_of
from tokengeom_studies.common.corrected import explained
from tokengeom_studies.common.measured import (
    AbstractMeasuredStudy,
    Answer,
    Interval,
    Row,
    chosen,
    decided_together,
    signed,
)


class AbstractPublishedModel(AbstractMeasuredStudy):
    """Rows of kind "part" have a text, the number of a part, and ``agreement``: explanation -> item -> number.

    where
        items      what is compared
        leads      hypothesis -> an explanation, that which it must be ahead of, and the items
        reaches    hypothesis -> an explanation, the agreement that it must reach, and the items
        title      of the figure
        proven     relative gap within which predictions must be proven
    """

    items: ClassVar[Sequence[str]]
    leads: ClassVar[Mapping[str, tuple[str, str, Sequence[str]]]]
    reaches: ClassVar[Mapping[str, tuple[str, float, Sequence[str]]]] = {}
    title: ClassVar[str]
    proven: ClassVar[float] = 5e-3

    def judge(self, recipe: Recipe, rows: Sequence[Row]) -> Findings:
        """Means over parts, and the differences that decide."""
        texts, names = list(dict.fromkeys(row["text"] for row in rows)), list(rows[0]["agreement"])
        answers = {
            **{key: _above(rows, name, least, items) for key, (name, least, items) in self.reaches.items()},
            **{key: _above(rows, name, other, items) for key, (name, other, items) in self.leads.items()},
        }
        means = {
            (text, name, item): Interval.of(_numbers(chosen(rows, text=text), name, item))
            for text in texts
            for name in names
            for item in self.items
        }
        facts = ("contexts", "tokens", "entropy", "loss_gap")
        of_texts = {
            text: {fact: float(np.mean([row[fact] for row in chosen(rows, text=text)])) for fact in facts}
            for text in texts
        }
        tables = {
            "hypotheses": self.answers(answers),
            "texts": table_of([{"text": text, **known} for text, known in of_texts.items()]),
        }
        for table, shown in (("agreement", str), ("shares", lambda found: str(explained(found)))):
            tables[table] = table_of(
                [
                    {"text": t, "explanation": n, **{item: shown(means[t, n, item]) for item in self.items}}
                    for t in texts
                    for n in names
                ]
            )
        overall = {(n, i): float(np.mean([means[t, n, i].mean for t in texts])) for n in names for i in self.items}
        best = {item: max(names, key=lambda name: overall[name, item]) for item in self.items}
        parts = [f"{item}: {name} {overall[name, item]:.2f}" for item, name in best.items()]
        panels = [
            HeatmapPanel(
                item.capitalize(), np.array([[means[t, n, item].mean for t in texts] for n in names]), "text",
                "explanation", texts, names, [], [], 0.0, 1.0, "agreement",
            )
            for item in self.items
        ]  # fmt: skip
        caption = "Plain correlation of cosines with the published model, mean over the parts of each text."
        figure = Figure("agreement", self.title, caption, panels, columns=len(self.items))
        proven = max(gap for row in rows for gap in row["relative_gap"].values())
        check = Check("largest proven relative gap", float(proven), high=self.proven)
        return self.findings(recipe, f"Largest mean agreement: {'; '.join(parts)}.", [check], [figure], tables)


def _numbers(rows: Sequence[Row], name: str, item: str) -> list[float]:
    return [row["agreement"][name][item] for row in rows]


def _above(rows: Sequence[Row], one: str, other: str | float, items: Sequence[str]) -> Answer:
    """Whether an explanation is ahead of another, or above a number, on every text."""
    found = {}
    for text in dict.fromkeys(row["text"] for row in rows):
        of = chosen(rows, text=text)
        for item in items:
            least = _numbers(of, other, item) if isinstance(other, str) else [other] * len(of)
            lead = Interval.of(np.subtract(_numbers(of, one, item), least))
            found[f"{text}, {item}"] = lead
    shown = "; ".join(f"{name}: {lead}" for name, lead in found.items())
    return Answer(decided_together(map(signed, found.values())), shown)
