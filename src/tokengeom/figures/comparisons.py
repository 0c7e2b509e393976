"""Agreement with a model's geometry: of rival explanations and of checkpoints; where a disagreement comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tokengeom.comparison.agreement import Agreement
from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.explained import RivalRow
from tokengeom.comparison.rival_table import Rivals
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.figures.base import EQUAL, Curve, Figure, LinePanel, Scale

WIDE = 20.0
"""Ratio of the largest to the smallest step, or loss gap, beyond which its axis is logarithmic."""
SOURCES = ("efficiency", "logits", "split: H", "split: W")
EXPONENT = ("split: W and H",)
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


def disagreement(comparisons: Mapping[str, Comparison], noun: str = "run") -> Figure:
    """Where a disagreement comes from: efficiency, cosine of the logits and split of each run, by its name.

    ``noun`` is what the caption calls that which was compared.
    """
    if not comparisons:
        raise InputError("A figure of disagreement needs at least one comparison; got none.")
    shares, exponents = list[Curve](), list[Curve]()
    for index, (name, comparison) in enumerate(comparisons.items()):
        offset = 0.12 * (index - (len(comparisons) - 1) / 2)
        for place, heights in _sources(comparison).items():
            known = heights[np.isfinite(heights)]
            if known.size:
                target = exponents if place > len(SOURCES) else shares
                x = np.full(known.size, float((place - 1) % len(SOURCES) + 1) + offset)
                target.append(Curve(name, x, known, colour=index, in_legend=not any(c.label == name for c in target)))
    x_label, best, balanced = "what is measured", [("best", 1.0)], [("balanced", 0.5)]
    panels = [
        LinePanel("How close to 1", x_label, "share or cosine", shares, levels=best, x_names=SOURCES),
        LinePanel("Split exponent", x_label, "exponent", exponents, levels=balanced, x_names=EXPONENT),
    ]
    caption = (
        f"Efficiency: smallest norm of logits with the {noun}'s loss over the norm of the {noun}'s logits, from the "
        f"proven lower bound to the value found. Logits: cosine of the {noun}'s centred logits with the predicted "
        f"ones, with its 95% interval. Split: agreement of the {noun}'s contexts H and tokens W with the balanced "
        "factors of its own logits. Split exponent: 0.5 where W and H share the logits equally, below it where the "
        "tokens carry less than their share, above it where the contexts do."
    )
    shown = [panel for panel in panels if panel.curves]
    return Figure("disagreement", "Where a disagreement comes from", caption, shown, columns=2)


def _sources(comparison: Comparison) -> dict[int, Float]:
    """Place on the axis -> heights of one line; the last place is the split exponent."""
    sources = comparison.disagreement
    cosine = comparison.judged_numbers.get("logit_cosine")
    heights = {} if cosine is None else {2: np.array([cosine.low, cosine.value, cosine.high])}
    if sources is not None:
        heights[1] = np.array([sources.efficiency, sources.efficiency_high])
        heights |= {3: np.array([sources.split_contexts]), 4: np.array([sources.split_tokens])}
        heights[len(SOURCES) + 1] = np.array([sources.split_exponent])
    return {place: heights[place] for place in sorted(heights)}
