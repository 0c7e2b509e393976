"""How geometry appears: heat-maps of a run at several steps, the prediction at the end of the row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Figure
from tokengeom.figures.curves import scaled_logits
from tokengeom.figures.feature_heatmaps import Factors
from tokengeom.figures.feature_order import feature_order
from tokengeom.theory.feature_prediction import FeaturePrediction
from tokengeom.training.probes import State

SHOWN = 150
"""Contexts or tokens in each of the many small panels."""


class Snapshots:
    """A probe that keeps W and H at the first record at or after each wanted step; it adds no measurement.

    ``train(..., probes={**others, "snapshots": kept})``, then ``evolution(kept.taken, prediction)``.
    """

    def __init__(self, steps: Iterable[int]) -> None:
        self._wanted = sorted({int(step) for step in steps})
        self.taken: dict[int, Factors] = {}

    def __call__(self, state: State) -> Mapping[str, float]:
        """Keep the state where a wanted step has been reached."""
        due = [step for step in self._wanted if step <= state.step]
        if due:
            self.taken[state.step] = (state.W.copy(), state.H.copy())
            self._wanted = self._wanted[len(due) :]
        return {}


def evolution(
    snapshots: Mapping[int, Factors],
    prediction: FeaturePrediction,
    *,
    stats: Any = None,
    most: int | None = SHOWN,
) -> Figure:
    """Rows cos(H, H), cos(W, W) and logits; columns the steps (step -> (W, H)) and then L^mm."""
    if not snapshots:
        raise InputError("An evolution needs snapshots of at least one step; got none. Record them with Snapshots.")
    sources = {f"step {step:,}": snapshots[step] for step in sorted(snapshots)}
    sources["L^mm"] = (prediction.W, prediction.H)
    order = feature_order(prediction, stats, most=most)
    logits = {name: scaled_logits(W @ H) for name, (W, H) in sources.items()}
    reach = max(float(np.abs(L).max(initial=0.0)) for L in logits.values()) or 1.0
    panels = [
        *(order.context_cosines(f"cos(H, H), {name}", H) for name, (_, H) in sources.items()),
        *(order.word_cosines(f"cos(W, W), {name}", W) for name, (W, _) in sources.items()),
        *(order.logits(f"logits, {name}", L, -reach, reach, "scaled logit") for name, L in logits.items()),
    ]
    caption = (
        "How geometry appears during training: cosines between contexts (top), between words (middle) and logits "
        "(bottom; columns centred, root mean square 1), at growing steps from left to right; the last column is L^mm, "
        f"what theory predicts of the limit. {order.sentence()}"
    )
    return Figure("evolution", "How geometry appears during training", caption, panels, columns=len(sources))
