"""Training of the linear model against its prediction: loss, norm, direction, finite part.

The panels of [thrampoulidis2024, Fig. 4 and 5], for any runs by name, from the columns that
``geometry.probes.linear_probes`` records. A measurement that no run has leaves its panel out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokengeom.figures.base import Curve, Figure, LinePanel, Scale
from tokengeom.figures.curves import columns_of, last_value, require_runs, run_curves, shifted
from tokengeom.theory.linear import LinearPrediction
from tokengeom.training.run import Run

STEP = "step"


def linear_training(runs: Mapping[str, Run], prediction: LinearPrediction) -> Figure:
    """Draw runs (name -> Run) of the linear model beside what is predicted of them."""
    require_runs(runs)
    known = columns_of(runs)
    panels = [*_loss(runs, prediction), _panel("Norm of the decoder", "||W_k||", run_curves(runs, "norm_W"))]
    cosines = [
        *run_curves(runs, "cosine", "{run}: W_k"),
        *run_curves(runs, "cosine_without_finite", "{run}: W_k - W*", dotted=True),
    ]
    if cosines:
        panels.append(_panel("Direction: cosine with W^mm", "cosine", cosines, levels=[("predicted limit", 1.0)]))
    if "finite_error" in known:
        error = run_curves(runs, "finite_error")
        panels.append(_panel("Finite part: distance to W* on F", "||P_F(W_k) - W*|| / ||W*||", error, "log"))
    if "margin_frobenius" in known:
        margin_of_limit = prediction.effective_margin
        best = [("largest possible", margin_of_limit)] if margin_of_limit < float("inf") else []
        margin = run_curves(runs, "margin_frobenius")
        panels.append(_panel("Margin per unit of norm", "margin / ||W_k||", margin, levels=best))
    return Figure("linear-training", "Training the linear model, against its prediction", _caption(runs, prediction),
                  panels, columns=3)  # fmt: skip


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
        _panel("Loss", "CE, nats", losses, levels=levels),
        _panel("Loss above its predicted infimum", f"{label}, nats", above, "log"),
    ]


def _panel(
    title: str,
    label: str,
    curves: Sequence[Curve],
    scale: Scale = "linear",
    levels: Sequence[tuple[str, float]] = (),
) -> LinePanel:
    return LinePanel(title, STEP, label, curves, "log", scale, levels)


def _caption(runs: Mapping[str, Run], prediction: LinearPrediction) -> str:
    data = prediction.data
    ends = "; ".join(
        f"{name}: {run.steps:,} steps, CE - H = {run.loss_gap:.2g} nats, "
        f"cos(W - W*, W^mm) = {last_value(run, 'cosine_without_finite'):.3f}, "
        f"error on F = {last_value(run, 'finite_error'):.2g}"
        for name, run in runs.items()
    )
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
