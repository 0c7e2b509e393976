"""Rival explanations side by side: how well each gives a run's cosines, with its interval and chance.

Checkpoints of one model against the prediction for a text: loss and similarity over training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, LinePanel, Scale
from tokengeom.geometry.rival_table import RivalRow, Rivals
from tokengeom.numerics import Float

if TYPE_CHECKING:
    from tokengeom.geometry.checkpoints import CheckpointCurve
    from tokengeom.numerics import Float


def rival_bars(table: Rivals) -> Figure:
    """Draw a panel for each kind of items: every rival's SIM with its interval, the best on the left."""
    if not table.rows:
        raise InputError("A figure of rivals needs at least one row; got none. Pass what rivals(stats, run) returned.")
    names = sorted({row.rival for row in table.rows})
    panels = [_panel(items, table.of(items), names) for items in table.items]
    told = [f"{items}: {row.rival}, {row.similarity.value:.3f}" for items, row in table.best.items()]
    silent = sorted({row.rival for row in table.rows if row.without_direction})
    quiet = f" Of some items {', '.join(silent)} says nothing; they count as like no other." if silent else ""
    caption = (
        "Explanations of a model's geometry, made from the text alone and held against the model's cosines: structural "
        "similarity (1 where they agree), the best on the left. Lines: 95% intervals over resamples of the items. "
        f"Dotted: what chance reaches in one of twenty permutations. Best: {'; '.join(told)}.{quiet}{_meanings(table)}"
    )
    return Figure("rivals", "Which explanation fits the model's geometry", caption, panels, columns=len(panels))


def _panel(items: str, rows: tuple[RivalRow, ...], names: list[str]) -> LinePanel:
    curves = [_interval(place, row, names.index(row.rival)) for place, row in enumerate(rows, start=1)]
    nulls = np.array([row.similarity.null for row in rows])
    if np.isfinite(nulls).any():
        places = np.arange(1.0, len(rows) + 1.0)
        curves.append(Curve("chance", places, nulls, dotted=True, colour=len(names)))
    title = f"{items[:1].upper()}{items[1:]}"
    return LinePanel(title, "place (1 explains best)", "SIM with the model", curves, levels=[("equal geometry", 1.0)])


def _interval(place: int, row: RivalRow, colour: int) -> Curve:
    """The number between the ends of its interval, upright at its place."""
    number = row.similarity
    heights: Float = np.array([number.low, number.value, number.high])
    heights = heights if np.isfinite(heights).all() else np.array([number.value])
    return Curve(row.rival, np.full(heights.size, float(place)), heights, colour=colour)


def _meanings(table: Rivals) -> str:
    found = dict(sorted((row.rival, row.meaning) for row in table.rows))
    return " " + "; ".join(f"{name}: {meaning}" for name, meaning in found.items()) + "."


_WIDE = 20.0
"""Steps that differ by more than this factor are drawn on a logarithmic axis."""


def checkpoints(curve: CheckpointCurve) -> Figure:
    """Draw what `compare_models` found, one point a checkpoint."""
    if len(curve) < 2:
        raise InputError(f"A curve over training needs at least two checkpoints; got {len(curve)}.")
    steps, last = curve.steps, curve.points[-1]
    x = "training step" if curve.steps_known else "checkpoint"
    scale: Scale = "log" if steps.min() > 0 and steps.max() > _WIDE * steps.min() else "linear"
    gaps = np.array([point.loss_gap for point in curve])
    similar = [c for place, kind in enumerate(("context", "word")) for c in _curves(curve, kind, place)]
    target = "proxy S~" if last.is_proxy else "prediction L^mm"
    panels = [
        LinePanel("Loss above the entropy", x, "CE - H, nats", [Curve("loss", steps, gaps)], scale, "log"),
        LinePanel(f"Similarity with the {target}", x, "SIM", similar, scale, "linear", [("equal geometry", 1.0)]),
    ]
    caption = (
        f"{len(curve)} checkpoints of one model on the {last.m:,} most frequent contexts of {last.context} tokens and "
        f"{last.V:,} tokens of a text. Left: how far the model's loss on these contexts stays above the text's entropy, "
        f"{last.entropy:.3f} nats. Right: structural similarity of the cosines between its contexts, and between its "
        f"tokens, with those of the {target} (1 where they agree). Bands: 95% of resamples; dotted: what one "
        "permutation in twenty reaches by chance."
    )
    return Figure("checkpoints", "Geometry over training", caption, panels, columns=2)


def _curves(curve: CheckpointCurve, kind: str, colour: int) -> list[Curve]:
    found = [point.agreement(f"{kind}_similarity") for point in curve]
    value, low, high, null = (
        np.array([getattr(a, name) for a in found], dtype=np.float64) for name in ("value", "low", "high", "null")
    )
    curves = [Curve(f"{kind}s", curve.steps, value, *_band(low, high), colour=colour)]
    if np.isfinite(null).any():
        curves.append(Curve(f"{kind}s, chance", curve.steps, null, dotted=True, colour=colour))
    return curves


def _band(low: Float, high: Float) -> tuple[Float | None, Float | None]:
    return (low, high) if np.isfinite(low).all() and np.isfinite(high).all() else (None, None)
