"""Agreement with a model's geometry: of rival explanations and of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.explained import RivalRow
from tokengeom.comparison.rival_table import Rivals
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.figures.base import EQUAL, Curve, Figure, LinePanel, Scale

WIDE = 20.0
"""Ratio of the largest to the smallest step, or loss gap, beyond which its axis is logarithmic."""
ITEM_NAMES = {
    "supports": "contexts, pairs of supports",
    "contexts": "contexts, pairs of contexts",
    "tokens": "tokens",
    "held-out contexts": "held-out contexts",
}
"""Kind of items -> its name in figures and tables, the judged weighting of contexts first."""


def rival_bars(table: Rivals) -> Figure:
    """Agreement of every rival on its scale, best first; one panel for contexts, one for tokens, ..."""
    if not table.rows:
        raise InputError("A figure of rivals needs at least one row; got none. Pass what rivals(stats, run) returned.")
    names = sorted({row.rival for row in table.rows})
    panels = [_rivals_panel(name, table.of(items), names) for items, name in ITEM_NAMES.items() if table.of(items)]
    panels = [panel for panel in panels if panel.curves]
    known = {ITEM_NAMES[items]: row for items, row in table.best.items() if np.isfinite(row.agreement.fair)}
    best = "; ".join(f"{items}: {row.rival}, {row.agreement.fair:.3f}" for items, row in known.items())
    largest = f" Largest agreement: {best}." if best else ""
    incomplete = sorted({row.rival for row in table.rows if row.without_direction})
    note = f" In {', '.join(incomplete)}, some items have no direction; their cosines count as 0." if incomplete else ""
    meanings = dict(sorted((row.rival, row.meaning) for row in table.rows))
    caption = (
        "Explanations of a model's geometry compared with the model: correlation of cosines over pairs of contexts "
        "with different supports, and of different tokens (1 is best), best on the left. Points: mean over the "
        "trainings of the model. Vertical lines: 95% intervals for its first training, leaving out support groups or "
        "tokens in turn. Dotted: floor, what chance or the untrained model gives; and, where the model was trained "
        "several times, attainable: what an explanation that is the same for all seeds can reach on average."
        f"{largest}{note} "
        f"{'; '.join(f'{name}: {meaning}' for name, meaning in meanings.items())}."
    )
    return Figure("rivals", "Which explanation fits the model's geometry", caption, panels, columns=len(panels))


def _rivals_panel(items: str, rows: tuple[RivalRow, ...], names: list[str]) -> LinePanel:
    rows = tuple(row for row in rows if np.isfinite(row.agreement.fair))
    curves = [_interval(rank, row, names.index(row.rival)) for rank, row in enumerate(rows, start=1)]
    ranks = np.arange(1.0, len(rows) + 1.0)
    for place, name in enumerate(("floor", "attainable")):
        heights = np.array([getattr(row.agreement, name) for row in rows])
        if np.isfinite(heights).any():
            curves.append(Curve(name, ranks, heights, dotted=True, colour=len(names) + place))
    title = f"{items[:1].upper()}{items[1:]}"
    names_shown = [row.rival for row in rows]
    label = "explanation, best first"
    return LinePanel(title, label, "agreement with the model", curves, levels=EQUAL, x_names=names_shown)


def _interval(rank: int, row: RivalRow, colour: int) -> Curve:
    """A vertical line from the low to the high end of the interval, with the mean over trainings as middle point."""
    number = row.agreement
    heights: Float = np.array([number.low, number.fair, number.high])
    heights = heights if np.isfinite(heights).all() else np.array([number.fair])
    return Curve(row.rival, np.full(heights.size, float(rank)), heights, colour=colour, in_legend=False)


def checkpoints(curve: CheckpointCurve) -> Figure:
    """Loss gap and agreement of the checkpoints that `compare_models` compared, one point per checkpoint."""
    if len(curve) < 2:
        raise InputError(f"A curve over training needs at least two checkpoints; got {len(curve)}.")
    steps, last = curve.steps, curve.points[-1]
    x = "training step" if curve.steps_known else "checkpoint"
    scale: Scale = "log" if steps.min() > 0 and steps.max() > WIDE * steps.min() else "linear"
    gaps = np.array([point.loss_gap for point in curve])
    tables = {
        "Agreement with the prediction at the loss": [point.comparison.at_loss for point in curve],
        "Agreement with the limit, L^mm": [point.comparison.in_limit for point in curve],
        "Agreement with the proxy S~": [point.with_proxy for point in curve],
        "Agreement with the prediction with ties": [point.with_ties for point in curve],
    }
    # A logarithmic axis over a narrow range has no labels.
    losses: Scale = "log" if gaps.min() > 0 and gaps.max() > WIDE * gaps.min() else "linear"
    panels = [LinePanel("Loss gap", x, "CE - H, nats", [Curve("loss gap", steps, gaps)], scale, losses)]
    for title, table in tables.items():
        curves = [*_over_training(steps, table, "contexts", 0), *_over_training(steps, table, "tokens", 1)]
        if curves:
            panels.append(LinePanel(title, x, "correlation of cosines", curves, scale, "linear", EQUAL))
    caption = (
        f"{len(curve)} checkpoints of one model on {last.m:,} contexts of {last.context} tokens and "
        f"{last.V:,} tokens of a text. Loss gap: the loss of the model on these contexts minus the entropy of the "
        f"text, {last.entropy:.3f} nats. Agreement: correlation of the cosines between contexts with different "
        "supports, each pair of supports counted once, and between different tokens, with the predicted ones (1 is "
        "equal geometry); at the loss, the prediction is that for each checkpoint's own loss. Bands: 95% intervals. "
        "Dotted: what chance gives."
    )
    return Figure("checkpoints", "Geometry over training", caption, panels, columns=len(panels))


def _over_training(steps: Float, tables: Sequence[Mapping[str, Agreement]], items: str, colour: int) -> list[Curve]:
    """Value with its interval, and the floor, of contexts or tokens; NaN where a checkpoint has no such number."""
    number = "support_agreement" if items == "contexts" else "token_agreement"
    numbers = [table.get(number, Agreement(float("nan"))) for table in tables]
    value, low, high, floor = (
        np.array([getattr(number, name) for number in numbers], dtype=np.float64)
        for name in ("value", "low", "high", "floor")
    )
    if not np.isfinite(value).any():
        return []
    known = bool(np.isfinite(low[np.isfinite(value)]).all())
    curves = [Curve(items, steps, value, low if known else None, high if known else None, colour=colour)]
    if np.isfinite(floor).any():
        curves.append(Curve(f"{items}, chance", steps, floor, dotted=True, colour=colour))
    return curves
