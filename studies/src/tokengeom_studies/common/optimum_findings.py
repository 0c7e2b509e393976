"""Findings about several optima: distances by pattern and rule, answers, tables and the figure, from measured rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tokengeom.extending import Curve, Figure, LinePanel
from tokengeom_studies.base import Check, Table, table_of
from tokengeom_studies.common.measured import Answer, Interval, Row, chosen, decided, decided_by_share

PATH, SAME_LOSS = "path, small loss", "path, same losses"
PATHS = SAME_LOSS, PATH
RULES = ("smallest Frobenius norm", "analytic centre", "largest margins", "symmetric", "returned by the solver")
SAME = 0.02
"""Solutions closer than this count as one."""
APART = 0.05
MOST = 0.8
PROVEN = 1e-6


class OptimumFindings:
    """What rows say, by pattern."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.patterns = sorted(chosen(rows, kind="pattern"), key=lambda row: row["pattern"])
        done = {row["pattern"] for row in self.patterns}
        self.path = [row for row in chosen(rows, kind="path") if row["pattern"] in done]
        self.trainings = [row for row in chosen(rows, kind="training") if row["pattern"] in done]
        self.reached = [row for row in self.trainings if row["distances"] is not None]
        self.starts = sorted({row["start"] for row in self.trainings})

    def of_path(self, pattern: int, rule: str, name: str = PATH) -> float:
        """Mean distance of the path's direction from the solution of a rule; NaN without one."""
        rows = chosen(self.path, pattern=pattern, name=name)
        return _mean(row["distances"].get(rule) for row in rows)

    def of_training(self, pattern: int, rule: str, optimizer: str, start: float) -> float:
        """Mean distance of the trainings' directions."""
        rows = chosen(self.reached, pattern=pattern, optimizer=optimizer, start=start)
        return _mean(row["distances"].get(rule) for row in rows)

    def answers(self) -> dict[str, Answer]:
        """What is decided about each hypothesis."""
        apart = [row["between_probabilities"] > APART for row in self.patterns]
        margins = [self.of_path(row["pattern"], "largest margins") for row in self.patterns]
        margins = [margin for margin in margins if np.isfinite(margin)]
        smaller = Interval.of(self._nearer_from_smaller_starts())
        return {
            "probabilities matter": _counted(apart, "apart by more than 0.05"),
            "largest margins": _counted([margin <= APART for margin in margins], "within 0.05"),
            "descent follows the path": self._nearest(PATH, "gd"),
            "descent follows the path at equal loss": self._nearest(SAME_LOSS, "gd"),
            "smaller starts are nearer": Answer(decided(smaller), f"distance less by {smaller}"),
            "adam follows the path": self._nearest(SAME_LOSS, "adam"),
        }

    def _nearest(self, path: str, optimizer: str) -> Answer:
        """In how many patterns trainings are nearer to the path than to every solution that is not the path's."""
        nearer = []
        for row in self.patterns:
            number = row["pattern"]
            mine = self.of_training(number, path, optimizer, self.starts[0])
            others = [rule for rule in RULES if self.of_path(number, rule, path) > SAME]
            rest = [self.of_training(number, rule, optimizer, self.starts[0]) for rule in others]
            if np.isfinite(mine):
                nearer.append(bool(mine < min(rest, default=np.inf)))
        share = sum(nearer) / max(len(nearer), 1)
        return Answer("yes" if nearer and share >= MOST else "no", f"{sum(nearer)} of {len(nearer)} patterns")

    def _nearer_from_smaller_starts(self) -> Iterator[float]:
        for row in self.patterns:
            small, large = (
                self.of_training(row["pattern"], SAME_LOSS, "gd", start) for start in (self.starts[0], self.starts[-1])
            )
            if np.isfinite(large - small):
                yield large - small

    def pattern_table(self) -> Table:
        """Size, free directions and spread of the solutions of each pattern, and how the path moves."""
        differ = {row["pattern"] for row in self.told_apart}
        return table_of(
            [
                {
                    "pattern": row["pattern"],
                    "V": row["V"],
                    "m": row["m"],
                    "free directions": row["dimension"],
                    "free margins": row["free_margins"],
                    "spread": round(row["spread"], 3),
                    "rules differ": "yes" if row["pattern"] in differ else "no",
                    "from largest margins": round(self.of_path(row["pattern"], RULES[2]), 3),
                    "between probabilities": round(row["between_probabilities"], 3),
                }
                for row in self.patterns
            ]
        )

    @property
    def told_apart(self) -> list[Row]:
        """Patterns in which the rules select solutions that differ, as seen from the path."""

        def differ(pattern: int, name: str) -> bool:
            distances = [self.of_path(pattern, rule, name) for rule in RULES[:3]]
            return bool(np.nanmax(distances) - np.nanmin(distances) > SAME)

        return [row for row in self.patterns if any(differ(row["pattern"], name) for name in PATHS)]

    def rule_table(self) -> Table:
        """Distances of the path at larger and at small loss, for each pattern in which the rules differ."""
        shown = self.told_apart or self.patterns
        return table_of(
            [
                {"pattern": row["pattern"], "V": row["V"], "m": row["m"]}
                | {
                    f"{rule}, {loss}": round(self.of_path(row["pattern"], rule, name), 3)
                    for rule in RULES[:3]
                    for name, loss in zip(PATHS, ("larger loss", "small loss"), strict=True)
                }
                for row in shown
            ]
        )

    def distance_table(self, kind: str) -> Table:
        """Distances from the solution of each rule, mean and interval over patterns."""
        if kind == "path":
            return table_of(
                [
                    {"direction": name}
                    | {rule: str(self._over_patterns(self.of_path, rule, name)) for rule in RULES}
                    | {"excess": _mean(row["excess"] for row in chosen(self.path, name=name))}
                    for name in (PATH, SAME_LOSS)
                ]
            )
        plans = sorted({(row["optimizer"], row["start"]) for row in self.trainings}, reverse=True)
        return table_of(
            [
                {
                    "optimizer": optimizer,
                    "start": start,
                    "runs": len(chosen(self.reached, optimizer=optimizer, start=start)),
                }
                | {
                    rule: str(self._over_patterns(self.of_training, rule, optimizer, start))
                    for rule in (*RULES, PATH, SAME_LOSS)
                }
                | {"excess": _mean(r["excess"] for r in chosen(self.reached, optimizer=optimizer, start=start))}
                for optimizer, start in plans
            ]
        )

    def _over_patterns(self, number: Any, *which: Any) -> Interval:
        values = [number(row["pattern"], *which) for row in self.patterns]
        return Interval.of(value for value in values if np.isfinite(value))

    def checks(self) -> list[Check]:
        """Whether every pattern is proven to have several solutions, and the trainings reached their losses."""
        return [
            Check("smallest spread of the solutions of a pattern", min(r["spread"] for r in self.patterns), low=SAME),
            Check("largest proven gap of these solutions", max(r["gap"] for r in self.patterns), high=PROVEN),
            Check("largest excess of a selected solution", max(r["excess"] for r in self.patterns), high=1e-4),
            Check("share of trainings that reached the loss", len(self.reached) / len(self.trainings), low=0.95),
            Check("patterns", float(len(self.patterns)), low=1.0),
        ]

    def sentence(self, answers: Mapping[str, Answer]) -> str:
        """The answer with its main numbers."""
        apart = Interval.of(row["between_probabilities"] for row in self.patterns)
        start = self.starts[0]
        same, centre, frobenius = (
            self._over_patterns(self.of_training, name, "gd", start).mean for name in (SAME_LOSS, RULES[1], RULES[0])
        )
        said = ", ".join(f"{name} ({answer.decision})" for name, answer in answers.items())
        return (
            f"For {len(self.patterns)} patterns of supports with several solutions, two sets of probabilities lead the "
            f"path to directions that are {apart.mean:.3f} apart on average. Gradient descent from the smallest start "
            f"is {same:.3f} from the path between the same losses, {centre:.3f} from the analytic centre and "
            f"{frobenius:.3f} from the solution of smallest Frobenius norm. Hypotheses: {said}."
        )

    def figure(self) -> Figure:
        """Distances by pattern, of the path and of gradient descent, where the rules differ."""
        shown = self.told_apart or self.patterns
        x = np.arange(1.0, len(shown) + 1.0)
        numbers = [row["pattern"] for row in shown]
        path = [Curve(rule, x, np.array([self.of_path(number, rule) for number in numbers])) for rule in RULES[:3]]
        descent = [
            Curve(rule, x, np.array([self.of_training(number, rule, "gd", self.starts[0]) for number in numbers]))
            for rule in (*RULES[:3], PATH, SAME_LOSS)
        ]
        names = [f"{row['pattern']}: {row['V']} x {row['m']}" for row in shown]
        panels = [
            LinePanel("The path at small loss", "pattern: V x m", "distance", path, x_names=names),
            LinePanel("Gradient descent, smallest start", "pattern: V x m", "distance", descent, x_names=names),
        ]
        caption = (
            "Distance of the direction of the logits, of the regularisation path and of gradient descent, from the "
            "solution that each rule selects, for the patterns of supports in which the rules select different ones."
        )
        return Figure("distances", "Which solution is selected", caption, panels)


def _counted(true: Sequence[bool], what: str) -> Answer:
    decision = decided_by_share(sum(true) / len(true), MOST) if true else "undecided"
    return Answer(decision, f"{sum(true)} of {len(true)} patterns {what}")


def _mean(values: Any) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")
