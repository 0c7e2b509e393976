"""Training with learned features against the prediction: loss, norms, finite part, similarity of geometries.

The curves of [zhao2024], for any runs by name, from the columns that ``geometry.probes.feature_probes`` records. A
measurement that no run has leaves its panel out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokengeom.figures.base import Curve, Figure, LinePanel, Scale
from tokengeom.figures.curves import last_value, require_runs, run_curves
from tokengeom.training.run import Run


def feature_training(runs: Mapping[str, Run]) -> Figure:
    """Draw runs (name -> Run) with learned features."""
    require_runs(runs)
    norms = [
        *run_curves(runs, "norm_W", "{run}: words ||W||"),
        *run_curves(runs, "norm_H", "{run}: contexts ||H||", dotted=True),
        *run_curves(runs, "norm_logits", "{run}: logits ||L||", dashed=True),
    ]
    panels = [
        _panel("Loss above the entropy", "CE - H, nats", run_curves(runs, "loss_gap"), "log"),
        _panel("Norms", "Frobenius norm", norms, "log"),
        _panel("Finite part: distance on F", "||P_F(L) - L^in||", run_curves(runs, "finite_distance"), "log"),
        _panel("Direction: distance of normalised logits", "distance", run_curves(runs, "logit_distance")),
        _similarity("Contexts: SIM of cos(H, H)", runs, "context_similarity"),
        _similarity("Words: SIM of cos(W, W)", runs, "word_similarity"),
        _panel("Collapse: spread in support groups", "within / between", run_curves(runs, "collapse"), "log"),
    ]
    kept = [panel for panel in panels if panel.curves]
    return Figure("feature-training", "Training words and contexts, against the prediction", _caption(runs), kept,
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
            for kind, column in (("contexts", "context_similarity"), ("words", "word_similarity"))
            if column in run.trajectory.names
        )
        for name, run in runs.items()
    )
    return (
        f"Words W and contexts H trained together; the entropy is H = {entropy:.4f} nats. Theory says, for vanishing "
        "weight decay: the loss falls to the entropy and the norms grow without bound; inside the supports the logits "
        "converge to L^in (distance to 0); elsewhere they grow along L^mm, so that the cosines between contexts and "
        "between words become those of L^mm. SIM is the structural similarity of two cosine matrices, 1 where they "
        "agree; dotted with the proxy S~ in the place of L^mm. Collapse is the spread of the directions of contexts "
        f"that share a support, against the spread over all. At the end, {ends}."
    )
