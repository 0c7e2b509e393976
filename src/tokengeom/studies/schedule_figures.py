"""Figures of the study of regularisation schedules: measurements over training, and against the path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokengeom.figures.base import Curve, Figure, LinePanel, Scale
from tokengeom.training.run import Run
from tokengeom.training.schedules import AbstractSchedule

Strengths = Mapping[str, tuple[float, AbstractSchedule]]
FIRST_PART = 0.02
"""Share of the steps that is not drawn: measurements jump there, and leave no room for what comes after."""
_ROWS: Sequence[tuple[str, str, str, Scale]] = (
    ("loss_gap", "loss above the entropy", "CE - H, nats", "log"),
    ("logits.cosine", "direction of the logits", "cos(L, L_mm)", "linear"),
    ("context_similarity", "contexts", "SIM with L_mm", "linear"),
    ("logits.rank", "numerical rank of the logits", "rank", "linear"),
)


def over_schedules(models: Mapping[str, tuple[Strengths, Mapping[str, Run]]], rank: int) -> Figure:
    """Strength, loss, direction, similarity and rank over the steps of each run; one column a model."""
    panels = [_strength_panel(model, *given) for model, given in models.items()]
    for column, title, label, scale in _ROWS:
        levels = [("rank of L_mm", float(rank))] if column == "logits.rank" else []
        for model, (_, runs) in models.items():
            curves = [Curve(name, *_after_start(run, column)) for name, run in runs.items()]
            panels.append(LinePanel(f"{model}: {title}", "step", label, curves, "linear", scale, levels))
    caption = (
        "Free embeddings (UFM, left) and a transformer (right) whose weight decay is large, small, or falls from one "
        "to the other. From above: the decay (the ridge of the loss for the UFM, decoupled for the transformer); the "
        "loss above its floor; cosine of the centred logits with the predicted direction L_mm; structural similarity "
        "of the cosines between contexts with those of L_mm; singular values of the logits above 1% of the largest. "
        "The first 2% of the steps are left out."
    )
    return Figure("schedules", "Regularisation that falls", caption, panels, columns=len(models))


def _after_start(run: Run, column: str) -> tuple[Any, Any]:
    kept = run.trajectory.steps > run.steps * FIRST_PART
    return run.trajectory["step"][kept], run.trajectory[column][kept]


def _strength_panel(model: str, strengths: Strengths, runs: Mapping[str, Run]) -> LinePanel:
    curves = []
    for name, (first, schedule) in strengths.items():
        last = runs[name].steps
        steps = np.unique(np.linspace(0, max(last - 1, 0), 400).astype(np.int64)).astype(np.float64)
        curves.append(Curve(name, steps, first * schedule.factors(steps, last)))
    return LinePanel(f"{model}: strength", "step", "weight decay", curves, "linear", "log")


def against_path(plateaus: Mapping[str, Sequence[Any]]) -> Figure:
    """Ends of the plateaus beside the path's points at the same strengths."""
    lam = np.asarray(plateaus["lam"], np.float64)

    def panel(title: str, label: str, column: str, scale: Scale) -> LinePanel:
        curves = [
            Curve("UFM, end of plateau", lam, np.asarray(plateaus[column], np.float64)),
            Curve("path, certified", lam, np.asarray(plateaus[f"path_{column}"], np.float64), dashed=True),
        ]
        return LinePanel(title, "ridge lambda", label, curves, "log", scale)

    panels = [
        panel("Loss above the entropy", "CE - H, nats", "loss_gap", "log"),
        panel("Direction", "cos(L, L_mm)", "cosine", "linear"),
        panel("Size", "||L||_* / ||L_mm||_*", "nuclear", "linear"),
    ]
    caption = (
        "Free embeddings at the end of each plateau of the ridge lambda, trained on from one plateau to the next, and "
        "the minimiser of CE + lambda ||L||_* at the same lambda, solved in logit space with a duality gap. As lambda "
        "falls (to the left) the logits grow, and turn to L_mm."
    )
    return Figure("plateaus", "Training at the points of the path", caption, panels, columns=3)
