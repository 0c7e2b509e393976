"""Similarity with a model's geometry: of rival explanations, and of checkpoints during training."""

from __future__ import annotations

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, LinePanel, Scale
from tokengeom.geometry.checkpoints import CheckpointCurve
from tokengeom.geometry.rival_table import RivalRow, Rivals
from tokengeom.numerics import Float

WIDE = 20.0
"""Ratio of the last to the first step beyond which the axis of steps is logarithmic."""
EQUAL = [("equal geometry", 1.0)]


def rival_bars(table: Rivals) -> Figure:
    """SIM of every rival with its interval, best first; one panel for contexts, one for tokens, ..."""
    if not table.rows:
        raise InputError("A figure of rivals needs at least one row; got none. Pass what rivals(stats, run) returned.")
    names = sorted({row.rival for row in table.rows})
    panels = [_rivals_panel(items, table.of(items), names) for items in table.items]
    best = "; ".join(f"{items}: {row.rival}, {row.similarity.value:.3f}" for items, row in table.best.items())
    incomplete = sorted({row.rival for row in table.rows if row.without_direction})
    note = f" In {', '.join(incomplete)}, some items have no direction; their cosines count as 0." if incomplete else ""
    meanings = dict(sorted((row.rival, row.meaning) for row in table.rows))
    caption = (
        "Explanations of a model's geometry, each made from the text alone and compared with the model's cosines by "
        "structural similarity (SIM; 1 if the cosines are equal), best on the left. Vertical lines: 95% intervals from "
        "resampled items. Dotted: 95th percentile of SIM under permutation. "
        f"Largest SIM: {best}.{note} {'; '.join(f'{name}: {meaning}' for name, meaning in meanings.items())}."
    )
    return Figure("rivals", "Which explanation fits the model's geometry", caption, panels, columns=len(panels))


def _rivals_panel(items: str, rows: tuple[RivalRow, ...], names: list[str]) -> LinePanel:
    curves = [_interval(rank, row, names.index(row.rival)) for rank, row in enumerate(rows, start=1)]
    nulls = np.array([row.similarity.null for row in rows])
    if np.isfinite(nulls).any():
        ranks = np.arange(1.0, len(rows) + 1.0)
        curves.append(Curve("chance", ranks, nulls, dotted=True, colour=len(names)))
    title = f"{items[:1].upper()}{items[1:]}"
    return LinePanel(title, "rank (1 is best)", "SIM with the model", curves, levels=EQUAL)


def _interval(rank: int, row: RivalRow, colour: int) -> Curve:
    """A vertical line from the low to the high end of the interval, with the value as its middle point."""
    number = row.similarity
    heights: Float = np.array([number.low, number.value, number.high])
    heights = heights if np.isfinite(heights).all() else np.array([number.value])
    return Curve(row.rival, np.full(heights.size, float(rank)), heights, colour=colour)


def checkpoints(curve: CheckpointCurve) -> Figure:
    """Loss gap and similarity of the checkpoints that `compare_models` compared, one point per checkpoint."""
    if len(curve) < 2:
        raise InputError(f"A curve over training needs at least two checkpoints; got {len(curve)}.")
    steps, last = curve.steps, curve.points[-1]
    x = "training step" if curve.steps_known else "checkpoint"
    scale: Scale = "log" if steps.min() > 0 and steps.max() > WIDE * steps.min() else "linear"
    gaps = np.array([point.loss_gap for point in curve])
    similar = [c for index, kind in enumerate(("context", "token")) for c in _similarity_curves(curve, kind, index)]
    target = "proxy S~" if last.is_proxy else "prediction L^mm"
    panels = [
        LinePanel("Loss gap", x, "CE - H, nats", [Curve("loss gap", steps, gaps)], scale, "log"),
        LinePanel(f"Similarity with the {target}", x, "SIM", similar, scale, "linear", EQUAL),
    ]
    caption = (
        f"{len(curve)} checkpoints of one model on the {last.m:,} most frequent contexts of {last.context} tokens and "
        f"{last.V:,} tokens of a text. Left: the loss of the model on these contexts minus the entropy of the text, "
        f"{last.entropy:.3f} nats. Right: structural similarity of the cosines between its contexts, and between its "
        f"tokens, with those of the {target} (1 if they are equal). Bands: 95% intervals from resampling; dotted: 95th "
        "percentile under permutation."
    )
    return Figure("checkpoints", "Geometry over training", caption, panels, columns=2)


def _similarity_curves(curve: CheckpointCurve, kind: str, colour: int) -> list[Curve]:
    found = [point.agreement(f"{kind}_similarity") for point in curve]
    value, low, high, null = (
        np.array([getattr(a, name) for a in found], dtype=np.float64) for name in ("value", "low", "high", "null")
    )
    known = bool(np.isfinite(low).all() and np.isfinite(high).all())
    band = (low if known else None), (high if known else None)
    curves = [Curve(f"{kind}s", curve.steps, value, band[0], band[1], colour=colour)]
    if np.isfinite(null).any():
        curves.append(Curve(f"{kind}s, chance", curve.steps, null, dotted=True, colour=colour))
    return curves
