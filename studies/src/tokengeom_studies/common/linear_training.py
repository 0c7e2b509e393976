"""Figure of the linear model in training: loss, norm, direction, finite part, margin [thrampoulidis2024, Fig. 4 and 5].

Runs are drawn by name, from the columns that ``linear_probes`` records; panels without a measurement are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tokengeom import LinearPrediction, Run
from tokengeom.extending import Curve, Figure, LinePanel, last_values, require_runs, run_curves, step_panel


def linear_training(runs: Mapping[str, Run], prediction: LinearPrediction) -> Figure:
    """Measurements of runs (name -> Run) of the linear model, by step, with the predicted values."""
    require_runs(runs)
    directions = [
        *run_curves(runs, "cosine", "{run}: W_k"),
        *run_curves(runs, "cosine_without_finite", "{run}: W_k - W*", dotted=True),
    ]
    diverges = bool(prediction.W_mm.any())
    largest = [("largest possible", prediction.effective_margin)] if diverges else []
    panels = [
        *_loss_panels(runs, prediction),
        step_panel("Norm of the decoder", "||W_k||", run_curves(runs, "norm_W")),
        step_panel("Direction: cosine with W^mm", "cosine", directions, levels=[("predicted limit", 1.0)]),
        step_panel(
            "Finite part: distance to W* on F", "||P_F(W_k) - W*|| / ||W*||", run_curves(runs, "finite_error"), "log"
        ),
        step_panel("Margin per unit of norm", "margin / ||W_k||", run_curves(runs, "margin_frobenius"), levels=largest),
    ]
    data = prediction.data
    limit = (
        f"the entropy {prediction.entropy:.4f} nats"
        if prediction.reaches_entropy
        else f"the predicted infimum {prediction.loss_floor:.4f} nats, above the entropy {prediction.entropy:.4f}"
    )
    divergence = (
        "the norm grows without bound; the direction converges to that of the max-margin decoder W^mm (cosine 1; "
        "dotted: after subtracting the finite part W*); on the data subspace F the decoder converges to W*"
        if diverges
        else "nothing diverges, and the decoder converges to W*"
    )
    ends = last_values(
        runs, ("cos(W - W*, W^mm)", "cosine_without_finite", ".3f"), ("error on F", "finite_error", ".2g")
    )
    caption = (
        f"The decoder W trained on {data.m:,} contexts and {data.V:,} tokens, with fixed embeddings of dimension "
        f"{data.d}. Theory predicts: the loss falls to {limit}; {divergence}. Step 0 cannot be shown on a log "
        f"axis. At the end: {ends}."
    )
    shown = [panel for panel in panels if panel.curves]
    return Figure("linear-training", "The linear model during training", caption, shown, columns=3)


def _loss_panels(runs: Mapping[str, Run], prediction: LinearPrediction) -> list[LinePanel]:
    gaps = run_curves(runs, "loss_gap")
    levels = [("entropy H", prediction.entropy)]
    if not prediction.reaches_entropy:
        levels.append(("predicted infimum", prediction.loss_floor))
    floor = "H" if prediction.reaches_entropy else "infimum"
    losses = [_shifted(curve, prediction.entropy) for curve in gaps]
    above = [_shifted(curve, prediction.entropy - prediction.loss_floor) for curve in gaps]
    return [
        step_panel("Loss", "CE, nats", losses, levels=levels),
        step_panel("Loss above its predicted infimum", f"CE - {floor}, nats", above, "log"),
    ]


def _shifted(curve: Curve, by: float) -> Curve:
    return Curve(curve.label, curve.x, np.asarray(curve.y + by), dotted=curve.dotted, colour=curve.colour)
