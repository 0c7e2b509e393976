"""Checkpoints of one model against the prediction for a text: loss and similarity over training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, LinePanel, Scale

if TYPE_CHECKING:
    from tokengeom.geometry.checkpoint_comparison import CheckpointCurve
    from tokengeom.numerics import Float

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
        f"{last.V:,} words of a text. Left: how far the model's loss on these contexts stays above the text's entropy, "
        f"{last.entropy:.3f} nats. Right: structural similarity of the cosines between its contexts, and between its "
        f"words, with those of the {target} (1 where they agree). Bands: 95% of resamples; dotted: what one "
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
