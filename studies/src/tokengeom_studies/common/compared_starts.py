"""Runs from several starts of W, paired by seed: ratios of steps, differences of held-out loss, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tokengeom.extending import Curve, Figure, LinePanel
from tokengeom_studies.base import Table, table_of
from tokengeom_studies.common.measured import Answer, Decision, Interval, Row, decided_together

RANDOM, AT_LOSS, PROXY, PERMUTED = "random", "at loss", "proxy", "permuted"
STARTS = (RANDOM, AT_LOSS, PROXY, PERMUTED)
ADAMW, LOW, DESCENT = "adamw", "adamw-low", "gd"
SAVED = 0.8
"""Share of the steps of a random start at which steps count as saved."""
ENOUGH_SEEDS = 5
"""Seeds of a claim; numbers from fewer are marked."""


@dataclass(frozen=True, eq=False)
class Cell:
    """The runs of one text, network and optimizer; ``gaps`` are those at which their steps were counted, falling."""

    text: str
    network: str
    optimizer: str
    gaps: Sequence[float]
    runs: Sequence[Row]

    @property
    def name(self) -> str:
        """Text, network and optimizer as a phrase."""
        return f"{self.network}, {self.text}" + ("" if self.optimizer == ADAMW else f", {self.optimizer}")

    @property
    def decisive(self) -> float:
        """The gap that decides: the second smallest."""
        return self.gaps[-2]

    @cached_property
    def by_start(self) -> dict[str, dict[int, Row]]:
        """Runs by start and seed."""
        runs: dict[str, dict[int, Row]] = {}
        for row in self.runs:
            runs.setdefault(row["start"], {})[row["seed"]] = row
        return runs

    @property
    def share_reached(self) -> float:
        """Share of the runs that reached the gap that decides."""
        return sum(f"{self.decisive:g}" in row["steps_to"] for row in self.runs) / len(self.runs)

    def pairs(self, start: str, against: str = RANDOM) -> list[tuple[Row, Row]]:
        """Runs of two starts with the same seed."""
        mine, other = self.by_start.get(start, {}), self.by_start.get(against, {})
        return [(mine[seed], other[seed]) for seed in sorted(set(mine) & set(other))]

    def ratio(self, start: str, against: str = RANDOM, *, gap: float | None = None) -> Interval:
        """Steps to a gap as a multiple of those of another start; all steps made where one of the two is not there."""
        name = f"{self.decisive if gap is None else gap:g}"
        pairs = [(a, b) for a, b in self.pairs(start, against) if name in a["steps_to"] or name in b["steps_to"]]
        return Interval.of(a["steps_to"].get(name, a["steps"]) / b["steps_to"].get(name, b["steps"]) for a, b in pairs)

    def held_out(self, start: str) -> Interval:
        """Held-out loss less that of the random start, where each first falls below the gap that decides."""
        name = f"{self.decisive:g}"
        pairs = [(a["held_out_at"], b["held_out_at"]) for a, b in self.pairs(start)]
        return Interval.of(a[name]["all"] - b[name]["all"] for a, b in pairs if name in a and name in b)

    def best_held_out(self, start: str) -> Interval:
        """Lowest held-out loss less that of the random start."""
        return Interval.of(a["best_held_out"]["all"] - b["best_held_out"]["all"] for a, b in self.pairs(start))

    def mean_steps(self, start: str, gap: float) -> float:
        """Mean steps to a gap, NaN where some run did not get there."""
        runs = self.by_start.get(start, {}).values()
        return float(np.mean([row["steps_to"].get(f"{gap:g}", np.nan) for row in runs])) if runs else float("nan")


def cells_of(runs: Sequence[Row], gaps: Mapping[str, Sequence[float]]) -> list[Cell]:
    """Runs by text, network and optimizer; ``gaps`` as in `gaps_of`."""
    by_cell: dict[tuple[str, str, str], list[Row]] = {}
    for row in runs:
        by_cell.setdefault((row["text"], row["network"], row["optimizer"]), []).append(row)
    return [Cell(*place, gaps_of(gaps, place[0], place[2]), rows) for place, rows in by_cell.items()]


def gaps_of(gaps: Mapping[str, Sequence[float]], text: str, optimizer: str) -> list[float]:
    """Loss gaps, falling, of a text and optimizer ("TEXT OPTIMIZER" in a recipe), or those of the text alone."""
    return sorted(gaps.get(f"{text} {optimizer}", gaps[text]), reverse=True)


Measured = Callable[[Cell], Interval]


def at_most(cells: Sequence[Cell], measured: Measured, bound: float) -> Answer:
    """Whether a number is at most a bound in every cell."""

    def decide(interval: Interval) -> Decision:
        return "yes" if interval.high <= bound else "no" if interval.low > bound else "undecided"

    return _combined(cells, measured, decide)


def at_least(cells: Sequence[Cell], measured: Measured, bound: float) -> Answer:
    """Whether a number is at least a bound in every cell."""

    def decide(interval: Interval) -> Decision:
        return "yes" if interval.low >= bound else "no" if interval.high < bound else "undecided"

    return _combined(cells, measured, decide)


def _combined(cells: Sequence[Cell], measured: Measured, decide: Callable[[Interval], Decision]) -> Answer:
    """No where some cell says no, yes where all cells do."""
    intervals = {cell.name: measured(cell) for cell in cells}
    intervals = {name: known for name, known in intervals.items() if known.count}
    if not intervals:
        return Answer("undecided", "not measured")
    decision = decided_together(decide(interval) for interval in intervals.values())
    return Answer(decision, "; ".join(f"{name}: {_shown(known)}{_few(known)}" for name, known in intervals.items()))


def _few(interval: Interval) -> str:
    """The number of seeds where it is too small for a claim."""
    return f" ({interval.count} seeds)" if 1 < interval.count < ENOUGH_SEEDS else ""


def _shown(interval: Interval) -> str:
    return str(interval) if interval.count > 1 else f"{interval.mean:.3f} (one seed)" if interval.count else "-"


def norm_spread(cells: Sequence[Cell]) -> float:
    """Largest relative difference of the norm of W at the start between starts of one cell and seed."""
    pairs = [pair for cell in cells for start in STARTS[1:] for pair in cell.pairs(start)]
    return float(max((abs(a["norm_W"] / b["norm_W"] - 1.0) for a, b in pairs), default=0.0))


def step_table(cells: Sequence[Cell]) -> Table:
    """Mean steps to each gap and start, and ratios to the random start."""
    lines = []
    for cell in cells:
        for gap in cell.gaps:
            steps = {start: cell.mean_steps(start, gap) for start in STARTS}
            if np.isnan(list(steps.values())).all():
                continue
            line: dict[str, Any] = {"text": cell.text, "network": cell.network, "optimizer": cell.optimizer}
            line |= {"gap": gap, "seeds": min(len(runs) for runs in cell.by_start.values())}
            line |= {start: "-" if np.isnan(value) else f"{value:.0f}" for start, value in steps.items()}
            for start in STARTS[1:]:
                line[f"{start} / random"] = _shown(cell.ratio(start, gap=gap))
            lines.append(line | {"at loss / permuted": _shown(cell.ratio(AT_LOSS, PERMUTED, gap=gap))})
    return table_of(lines or [{"text": "no run reached any gap"}])


def held_out_table(cells: Sequence[Cell]) -> Table:
    """Held-out loss at equal training loss and at its lowest, and differences from the random start."""
    lines = []
    for cell in cells:
        name = f"{cell.decisive:g}"
        for start, runs in cell.by_start.items():
            at = [row["held_out_at"][name] for row in runs.values() if name in row["held_out_at"]]
            line: dict[str, Any] = {"text": cell.text, "network": cell.network, "start": start, "gap": cell.decisive}
            for part in ("all", "known", "new"):
                known = [losses[part] for losses in at if part in losses]
                line[part] = f"{np.mean(known):.3f}" if known else "-"
            best = [row["best_held_out"]["all"] for row in runs.values()]
            line |= {"less random": "-" if start == RANDOM else _shown(cell.held_out(start))}
            line |= {"lowest": f"{np.mean(best):.3f}"}
            line |= {"lowest, less random": "-" if start == RANDOM else _shown(cell.best_held_out(start))}
            lines.append(line)
    return table_of(lines)


def rate_table(cells: Sequence[Cell]) -> Table:
    """Both rates of AdamW side by side, at the gaps that runs of both were read at.

    Entries are mean steps and, after the slash, the mean held-out loss there. The last line of a network is where its
    held-out loss is lowest. The ratio compares the prediction at the low rate with a random start at the usual one.
    """
    by_place = {(cell.text, cell.network, cell.optimizer): cell for cell in cells}
    lines = []
    for low in (cell for cell in cells if cell.optimizer == LOW):
        usual = by_place.get((low.text, low.network, ADAMW))
        if usual is None:
            continue
        compared = [*low.by_start.get(AT_LOSS, {}).values(), *usual.by_start.get(RANDOM, {}).values()]
        both = Cell(low.text, low.network, LOW, low.gaps, compared)
        for gap in (*(gap for gap in low.gaps if gap in usual.gaps), None):
            line: dict[str, Any] = {"text": low.text, "network": low.network}
            line["gap"] = "lowest held-out loss" if gap is None else f"{gap:g}"
            for cell in (usual, low):
                for start in (RANDOM, AT_LOSS):
                    line[f"{start}, {cell.optimizer}"] = _steps_and_held_out(cell, start, gap)
            ratio = "-" if gap is None else _shown(both.ratio(AT_LOSS, gap=gap))
            line["at loss, low rate / random, usual rate"] = ratio
            lines.append(line)
    return table_of(lines or [{"text": "only one rate was measured"}])


def _steps_and_held_out(cell: Cell, start: str, gap: float | None) -> str:
    """Mean steps and mean held-out loss of the runs from a start; "-" where some run did not reach the gap."""
    runs, name = list(cell.by_start.get(start, {}).values()), f"{gap:g}" if gap is not None else ""
    if not runs or (gap is not None and any(name not in row["steps_to"] for row in runs)):
        return "-"
    points = [row["best_held_out"] if gap is None else row["held_out_at"][name] for row in runs]
    steps = [row["best_held_out"]["step"] if gap is None else row["steps_to"][name] for row in runs]
    return f"{np.mean(steps):.0f} / {np.mean([losses['all'] for losses in points]):.3f}"


def curve_figure(cells: Sequence[Cell]) -> Figure:
    """Loss gap over training from each start, one panel per cell with AdamW."""
    panels = []
    for cell in cells:
        curves = []
        for start in STARTS:
            runs = list(cell.by_start.get(start, {}).values())
            for number, row in enumerate(runs):
                points = np.array(row["curve"][1:], float)
                curves.append(
                    Curve(start, points[:, 0], points[:, 1], colour=STARTS.index(start), in_legend=number == 0)
                )
        levels = [("decides", cell.decisive)]
        panels.append(LinePanel(cell.name, "step", "loss gap in nats", curves, "log", "log", levels))
    caption = (
        "Loss above the entropy floor over training, one line per seed, from four starts of W with the same norm: "
        "random, tokens of the prediction at a loss, tokens of the proxy, and predicted rows given to other tokens."
    )
    return Figure("curves", "Loss over training from four starts", caption, panels, columns=3)


def ratio_figure(cells: Sequence[Cell]) -> Figure:
    """Ratio of steps to the random start, against the gap, one panel per start and optimizer."""
    networks, texts = (list(dict.fromkeys(getattr(cell, name) for cell in cells)) for name in ("network", "text"))

    def curves(start: str, optimizer: str) -> list[Curve]:
        drawn = []
        for cell in (cell for cell in cells if cell.optimizer == optimizer):
            ratios = [(gap, cell.ratio(start, gap=gap)) for gap in cell.gaps]
            known = [(gap, ratio) for gap, ratio in ratios if ratio.count]
            if not known:
                continue
            x, y = np.array([gap for gap, _ in known]), np.array([ratio.mean for _, ratio in known])
            half = np.array([ratio.half if ratio.count >= ENOUGH_SEEDS else 0.0 for _, ratio in known])
            place = {"colour": networks.index(cell.network), "dashed": cell.text != texts[0]}
            drawn.append(Curve(f"{cell.network}, {cell.text}", x, y, low=y - half, high=y + half, **place))
        return drawn

    levels = [("random start", 1.0), ("saved", SAVED)]
    panels = [
        LinePanel(f"{start}, {optimizer}", "loss gap in nats", "steps / steps of random", some, "log", levels=levels)
        for optimizer in (ADAMW, LOW, DESCENT)
        for start in STARTS[1:]
        if (some := curves(start, optimizer))
    ]
    caption = (
        "Steps until the loss gap first falls below a value, as a multiple of those of a random start with the same "
        f"seed; mean over seeds, with 95% intervals where there are {ENOUGH_SEEDS} or more."
    )
    return Figure("ratios", "Steps compared with a random start", caption, panels, columns=3)


def sentence(cells: Sequence[Cell], answers: Mapping[str, Answer]) -> str:
    """Ratios of steps with AdamW, and the answers."""
    ratios = ", ".join(f"{cell.ratio(AT_LOSS).mean:.2f} ({cell.name})" for cell in cells if cell.ratio(AT_LOSS).count)
    seeds = min((len(cell.pairs(AT_LOSS)) for cell in cells), default=0)
    parts = ", ".join(f"{name}: {answer.decision}" for name, answer in answers.items())
    return (
        f"Steps from the prediction at a loss as a multiple of those from a random start, at the gap that decides, "
        f"with AdamW and at least {seeds} seeds: {ratios or 'no run of 1 or more pairs got there'}. "
        f"Hypotheses: {parts}."
    )
