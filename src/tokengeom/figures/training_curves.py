"""Curves over training from runs, one colour a run.

Training with learned features against the prediction: loss, norms, finite part, similarity of geometries.

The curves of [zhao2024], for any runs by name, from the columns that ``geometry.probes.feature_probes`` records. A
measurement that no run has leaves its panel out.

Training of the linear model against its prediction: loss, norm, direction, finite part.

The panels of [thrampoulidis2024, Fig. 4 and 5], for any runs by name, from the columns that
``geometry.probes.linear_probes`` records. A measurement that no run has leaves its panel out.

How geometry appears: heat-maps of a run at several steps, the prediction at the end of the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, LinePanel, Scale
from tokengeom.theory.linear import LinearPrediction
from tokengeom.training.run import Run


def require_runs(runs: Mapping[str, Any]) -> None:
    """Refuse a figure over training without a run."""
    if not runs:
        raise InputError("A figure over training needs at least one run; got none. Pass {'GD': train(...)}.")


def columns_of(runs: Mapping[str, Any]) -> set[str]:
    """Measurements that at least one run has."""
    return {name for run in runs.values() for name in run.trajectory.names}


def run_curves(
    runs: Mapping[str, Any], column: str, label: str = "{run}", *, dotted: bool = False, dashed: bool = False
) -> list[Curve]:
    """One curve a run that has the measurement; its colour is the run's place, the same in every panel."""
    found = []
    for place, (name, run) in enumerate(runs.items()):
        if column in run.trajectory.names:
            x, y = run.trajectory["step"], run.trajectory[column]
            found.append(Curve(label.replace("{run}", name), x, y, dotted=dotted, dashed=dashed, colour=place))
    return found


def shifted(curve: Curve, by: float) -> Curve:
    """The same curve higher by a constant: a loss from its gap."""
    return Curve(curve.label, curve.x, np.asarray(curve.y + by), dotted=curve.dotted, colour=curve.colour)


def last_value(run: Any, column: str) -> float:
    """Last measurement, NaN where there is none."""
    return float(run.trajectory.last(column)) if column in run.trajectory.names and len(run.trajectory) else np.nan


def feature_training(runs: Mapping[str, Run]) -> Figure:
    """Draw runs (name -> Run) with learned features."""
    require_runs(runs)
    norms = [
        *run_curves(runs, "norm_W", "{run}: tokens ||W||"),
        *run_curves(runs, "norm_H", "{run}: contexts ||H||", dotted=True),
        *run_curves(runs, "norm_logits", "{run}: logits ||L||", dashed=True),
    ]
    panels = [
        _panel("Loss above the entropy", "CE - H, nats", run_curves(runs, "loss_gap"), "log"),
        _panel("Norms", "Frobenius norm", norms, "log"),
        _panel("Finite part: distance on F", "||P_F(L) - L^in||", run_curves(runs, "finite_distance"), "log"),
        _panel("Direction: distance of normalised logits", "distance", run_curves(runs, "logit_distance")),
        _similarity("Contexts: SIM of cos(H, H)", runs, "context_similarity"),
        _similarity("Tokens: SIM of cos(W, W)", runs, "token_similarity"),
        _panel("Collapse: spread in support groups", "within / between", run_curves(runs, "collapse"), "log"),
    ]
    kept = [panel for panel in panels if panel.curves]
    return Figure("feature-training", "Training tokens and contexts, against the prediction", _caption(runs), kept,
                  columns=3)  # fmt: skip


def _similarity(title: str, runs: Mapping[str, Run], column: str) -> LinePanel:
    curves = [
        *run_curves(runs, column, "{run} with L^mm"),
        *run_curves(runs, f"proxy_{column}", "{run} with proxy", dotted=True),
    ]
    return LinePanel(title, "step", "similarity", curves, "log", "linear", [("equal geometry", 1.0)])


def _panel(title: str, label: str, curves: Sequence[Curve], scale: Scale = "linear") -> LinePanel:
    return LinePanel(title, "step", label, curves, "log", scale)


def _caption(runs: Mapping[str, Run]) -> str:
    entropy = next(iter(runs.values())).entropy
    ends = "; ".join(
        f"{name}: {run.steps:,} steps, CE - H = {run.loss_gap:.2g} nats"
        + "".join(
            f", similarity of {kind} {last_value(run, column):.3f}"
            for kind, column in (("contexts", "context_similarity"), ("tokens", "token_similarity"))
            if column in run.trajectory.names
        )
        for name, run in runs.items()
    )
    return (
        f"Tokens W and contexts H trained together; the entropy is H = {entropy:.4f} nats. Theory says, for vanishing "
        "weight decay: the loss falls to the entropy and the norms grow without bound; inside the supports the logits "
        "converge to L^in (distance to 0); elsewhere they grow along L^mm, so that the cosines between contexts and "
        "between words become those of L^mm. SIM is the structural similarity of two cosine matrices, 1 where they "
        "agree; dotted with the proxy S~ in the place of L^mm. Collapse is the spread of the directions of contexts "
        f"that share a support, against the spread over all. At the end, {ends}."
    )


STEP = "step"


def linear_training(runs: Mapping[str, Run], prediction: LinearPrediction) -> Figure:
    """Draw runs (name -> Run) of the linear model beside what is predicted of them."""
    require_runs(runs)
    known = columns_of(runs)
    panels = [*_loss(runs, prediction), _linear_panel("Norm of the decoder", "||W_k||", run_curves(runs, "norm_W"))]
    cosines = [
        *run_curves(runs, "cosine", "{run}: W_k"),
        *run_curves(runs, "cosine_without_finite", "{run}: W_k - W*", dotted=True),
    ]
    if cosines:
        panels.append(
            _linear_panel("Direction: cosine with W^mm", "cosine", cosines, levels=[("predicted limit", 1.0)])
        )
    if "finite_error" in known:
        error = run_curves(runs, "finite_error")
        panels.append(_linear_panel("Finite part: distance to W* on F", "||P_F(W_k) - W*|| / ||W*||", error, "log"))
    if "margin_frobenius" in known:
        margin_of_limit = prediction.effective_margin
        best = [("largest possible", margin_of_limit)] if margin_of_limit < float("inf") else []
        margin = run_curves(runs, "margin_frobenius")
        panels.append(_linear_panel("Margin per unit of norm", "margin / ||W_k||", margin, levels=best))
    title = "Training the linear model, against its prediction"
    return Figure("linear-training", title, _linear_caption(runs, prediction), panels, columns=3)


def _loss(runs: Mapping[str, Run], prediction: LinearPrediction) -> list[LinePanel]:
    gaps = run_curves(runs, "loss_gap")
    losses = [shifted(curve, prediction.entropy) for curve in gaps]
    levels = [("entropy H", prediction.entropy)]
    excess = prediction.loss_floor - prediction.entropy
    if not prediction.reaches_entropy:
        levels.append(("predicted infimum", prediction.loss_floor))
    above = [shifted(curve, -excess) for curve in gaps]
    label = "CE - H" if prediction.reaches_entropy else "CE - infimum"
    return [
        _linear_panel("Loss", "CE, nats", losses, levels=levels),
        _linear_panel("Loss above its predicted infimum", f"{label}, nats", above, "log"),
    ]


def _linear_panel(
    title: str,
    label: str,
    curves: Sequence[Curve],
    scale: Scale = "linear",
    levels: Sequence[tuple[str, float]] = (),
) -> LinePanel:
    return LinePanel(title, STEP, label, curves, "log", scale, levels)


def _linear_caption(runs: Mapping[str, Run], prediction: LinearPrediction) -> str:
    data = prediction.data
    ends = "; ".join(f"{name}: {_end(run)}" for name, run in runs.items())
    goal = (
        f"the entropy H = {prediction.entropy:.4f} nats"
        if prediction.reaches_entropy
        else f"the predicted infimum {prediction.loss_floor:.4f} nats, above the entropy {prediction.entropy:.4f}"
    )
    return (
        f"The decoder W trained on {data.m} contexts, {data.V} tokens, fixed embeddings of dimension {data.d}. Theory "
        f"says: the loss falls to {goal}; the norm grows without bound, slower and slower; the direction turns to the "
        "max-margin decoder W^mm (cosine 1; dotted with the finite part W* taken away); on the data subspace F the "
        f"decoder converges to W*. At the end, {ends}. The first step (0) has no place on a log axis."
    )


def _end(run: Run) -> str:
    """Last measurements of a run, those that were taken."""
    measured = (
        ("cos(W - W*, W^mm)", last_value(run, "cosine_without_finite"), ".3f"),
        ("error on F", last_value(run, "finite_error"), ".2g"),
    )
    known = "".join(f", {name} = {value:{form}}" for name, value, form in measured if value == value)
    return f"{run.steps:,} steps, CE - H = {run.loss_gap:.2g} nats{known}"
