"""How training comes to the predicted limit: by step, one colour per run, and along the regularisation path.

`feature_training`   learned features: loss gap, norms, finite part, agreement at each step's own loss and in the
                     limit, collapse, and the papers' SIM [zhao2024]
`linear_training`    the linear model: loss, norm, direction, finite part, margin [thrampoulidis2024, Fig. 4 and 5]
`path`               loss, finite part and direction as regularisation vanishes, by the norm B for the linear model
                     [thrampoulidis2024] and by 1/lambda for logits [zhao2024]

The first two draw runs by name, from the columns that ``comparison.probes`` records; panels without a measurement are
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom.comparison.target import LIMIT, PROXY
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.figures.base import EQUAL, Curve, Figure, LinePanel, Scale
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.linear_path import RegularisationPath
from tokengeom.theory.logit_path import LogitPath
from tokengeom.training.run import Run

FEW_RUNS = 4
"""Runs up to which the legend of a panel with several curves per run lists them all."""


def feature_training(runs: Mapping[str, Run]) -> Figure:
    """Measurements of runs (name -> Run) with learned features, by step."""
    _require_runs(runs)
    norms = [
        *_curves(runs, "norm_W", "{run}: tokens ||W||"),
        *_curves(runs, "norm_H", "{run}: contexts ||H||", dotted=True),
        *_curves(runs, "norm_logits", "{run}: logits ||L||", dashed=True),
    ]
    correlation = "correlation of cosines"
    panels = [
        _panel("Loss gap", "CE - H, nats", _curves(runs, "loss_gap"), "log"),
        _panel("Norms", "Frobenius norm", norms, "log"),
        _panel("Finite part: distance on F", "||P_F(L) - L^in||", _curves(runs, "finite_distance"), "log"),
        _panel("Direction: distance of normalised logits", "distance", _curves(runs, "logit_distance")),
        _panel("Contexts: agreement across supports", correlation, _agreement(runs, "context_agreement"), levels=EQUAL),
        _panel("Tokens: agreement", correlation, _agreement(runs, "token_agreement"), levels=EQUAL),
        _panel("Collapse: spread in support groups", "within / between", _curves(runs, "collapse"), "log"),
        _panel("Contexts: the papers' SIM", "SIM", _similarity(runs, "context_similarity"), levels=EQUAL),
        _panel("Tokens: the papers' SIM", "SIM", _similarity(runs, "token_similarity"), levels=EQUAL),
    ]
    names = {item: f"{item[:-1]}_agreement" for item in ("contexts", "tokens")}
    ends = _ends(
        runs,
        *((f"agreement of {items} at the loss", name, ".3f") for items, name in names.items()),
        *((f"agreement of {items} in the limit", LIMIT.named(name), ".3f") for items, name in names.items()),
    )
    caption = (
        "Token embeddings W and context embeddings H trained together; the entropy is "
        f"{next(iter(runs.values())).entropy:.4f} nats. With enough dimensions and vanishing weight decay, theory "
        "predicts: the loss falls to the entropy while the norms grow without bound; within the supports, logits "
        "converge to the finite part L^in (distance 0); the rest grows along L^mm, so that the cosines between "
        "contexts and between tokens approach those of L^mm. Agreement is the correlation of the cosines between "
        "contexts with different supports, or between different tokens, with the predicted ones: at each step's own "
        "loss, and (dashed) with L^mm. SIM is the papers' structural similarity of two cosine matrices, 1 if they are "
        "equal; dotted: with the proxy S~ instead of L^mm. Collapse is the spread of the directions of contexts that "
        "share a support, relative to the spread of all. Step 0 cannot be shown on a log axis. "
        f"At the end: {ends}."
    )
    shown = [panel for panel in panels if panel.curves]
    return Figure("feature-training", "Learned features during training", caption, shown, columns=3)


def linear_training(runs: Mapping[str, Run], prediction: LinearPrediction) -> Figure:
    """Measurements of runs (name -> Run) of the linear model, by step, with the predicted values."""
    _require_runs(runs)
    directions = [
        *_curves(runs, "cosine", "{run}: W_k"),
        *_curves(runs, "cosine_without_finite", "{run}: W_k - W*", dotted=True),
    ]
    diverges = bool(prediction.W_mm.any())
    largest = [("largest possible", prediction.effective_margin)] if diverges else []
    panels = [
        *_loss_panels(runs, prediction),
        _panel("Norm of the decoder", "||W_k||", _curves(runs, "norm_W")),
        _panel("Direction: cosine with W^mm", "cosine", directions, levels=[("predicted limit", 1.0)]),
        _panel("Finite part: distance to W* on F", "||P_F(W_k) - W*|| / ||W*||", _curves(runs, "finite_error"), "log"),
        _panel("Margin per unit of norm", "margin / ||W_k||", _curves(runs, "margin_frobenius"), levels=largest),
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
    ends = _ends(runs, ("cos(W - W*, W^mm)", "cosine_without_finite", ".3f"), ("error on F", "finite_error", ".2g"))
    caption = (
        f"The decoder W trained on {data.m:,} contexts and {data.V:,} tokens, with fixed embeddings of dimension "
        f"{data.d}. Theory predicts: the loss falls to {limit}; {divergence}. Step 0 cannot be shown on a log "
        f"axis. At the end: {ends}."
    )
    shown = [panel for panel in panels if panel.curves]
    return Figure("linear-training", "The linear model during training", caption, shown, columns=3)


def _loss_panels(runs: Mapping[str, Run], prediction: LinearPrediction) -> list[LinePanel]:
    gaps = _curves(runs, "loss_gap")
    levels = [("entropy H", prediction.entropy)]
    if not prediction.reaches_entropy:
        levels.append(("predicted infimum", prediction.loss_floor))
    floor = "H" if prediction.reaches_entropy else "infimum"
    losses = [_shifted(curve, prediction.entropy) for curve in gaps]
    above = [_shifted(curve, prediction.entropy - prediction.loss_floor) for curve in gaps]
    return [
        _panel("Loss", "CE, nats", losses, levels=levels),
        _panel("Loss above its predicted infimum", f"CE - {floor}, nats", above, "log"),
    ]


def _agreement(runs: Mapping[str, Run], column: str) -> list[Curve]:
    at_loss = _curves(runs, column, "{run}, at its loss")
    return at_loss + _curves(runs, LIMIT.named(column), "{run}, with L^mm", dashed=True)


def _similarity(runs: Mapping[str, Run], column: str) -> list[Curve]:
    in_limit = _curves(runs, column, "{run} with L^mm")
    return in_limit + _curves(runs, PROXY.named(column), "{run} with proxy", dotted=True)


def _panel(
    title: str,
    y_label: str,
    curves: Sequence[Curve],
    scale: Scale = "linear",
    levels: Sequence[tuple[str, float]] = (),
) -> LinePanel:
    return LinePanel(title, "step", y_label, curves, "log", scale, levels)


def _curves(
    runs: Mapping[str, Run], column: str, label: str = "{run}", *, dotted: bool = False, dashed: bool = False
) -> list[Curve]:
    """One curve per run with finite values of the measurement; a run has the same colour in every panel.

    Where a panel has several curves of many runs, the legend lists those of the first run only.
    """
    listed = 1 if label != "{run}" and len(runs) > FEW_RUNS else len(runs)
    return [
        Curve(
            label.replace("{run}", name), run.trajectory["step"], run.trajectory[column], dotted=dotted, dashed=dashed,
            colour=index, in_legend=index < listed,
        )
        for index, (name, run) in enumerate(runs.items())
        if column in run.trajectory.names and np.isfinite(run.trajectory[column]).any()
    ]  # fmt: skip


def _shifted(curve: Curve, by: float) -> Curve:
    return Curve(curve.label, curve.x, np.asarray(curve.y + by), dotted=curve.dotted, colour=curve.colour)


def _ends(runs: Mapping[str, Run], *measured: tuple[str, str, str]) -> str:
    """Last values of each run: loss gap, then the given (label, column, format) that it has."""
    ends = []
    for name, run in runs.items():
        end = f"{name}: {run.steps:,} steps, CE - H = {run.loss_gap:.2g} nats"
        for label, column, form in measured:
            if column in run.trajectory.names and len(run.trajectory) and not np.isnan(run.trajectory.last(column)):
                end += f", {label} = {run.trajectory.last(column):{form}}"
        ends.append(end)
    return "; ".join(ends)


def _require_runs(runs: Mapping[str, Run]) -> None:
    if not runs:
        raise InputError(
            "A figure of training needs at least one run; got none. Pass them by name: {'GD': train(...)}."
        )


@dataclass(frozen=True, eq=False)
class _Columns:
    """A path of either kind as columns; ``loss`` is log10 of the gap, which may be too small for a float."""

    x: Float
    x_label: str
    floor: str
    loss: Float
    finite: Float
    finite_label: str
    cosines: list[tuple[str, Float]]
    sentence: str


def path(solved: RegularisationPath | LogitPath) -> Figure:
    """Loss, finite part and direction along a path, by norm bound B (linear model) or 1/lambda (logits)."""
    if not solved.points:
        raise InputError("A path needs at least one point; got none.")
    c = _of_linear(solved) if isinstance(solved, RegularisationPath) else _of_logits(solved)
    panels = [
        _along("Loss gap", c, f"log10(CE - {c.floor})", [("", c.loss)], "linear"),
        _along("Finite part", c, c.finite_label, [("", c.finite)], "log"),
        _along("Direction: cosine with the prediction", c, "cosine", c.cosines, "linear"),
        _along("Direction: 1 minus the cosine", c, "1 - cosine", [(n, 1.0 - y) for n, y in c.cosines], "log"),
    ]
    caption = (
        f"{c.sentence} In theory the loss falls to its infimum, the finite part converges, and the direction converges "
        f"to the predicted one. At the last point ({c.x_label} = {c.x[-1]:.3g}): CE - {c.floor} = 10^{c.loss[-1]:.4g} "
        f"nats, distance of the finite part {c.finite[-1]:.2g}, cosine of the direction {c.cosines[-1][1][-1]:.6f}. "
        "Distances of 0 (to rounding) cannot be shown on a log axis."
    )
    return Figure("path", "The limit of training along the regularisation path", caption, panels, columns=2)


def _along(title: str, columns: _Columns, label: str, curves: list[tuple[str, Float]], scale: Scale) -> LinePanel:
    drawn = [Curve(name, columns.x, y, dotted=index == 1, colour=0) for index, (name, y) in enumerate(curves)]
    return LinePanel(title, columns.x_label, label, drawn, "log", scale)


def _of_linear(solved: RegularisationPath) -> _Columns:
    return _Columns(
        solved.column("norm"),
        "norm B of the decoder",
        "infimum",
        solved.column("log_loss_gap") / np.log(10.0),
        solved.column("finite_error"),
        "||P_F(W_B) - W*|| / ||W*||",
        [("W_B with W^mm", solved.column("cosine")), ("W_B - W* with W^mm", solved.column("cosine_direction"))],
        "The decoder with the smallest loss among those of norm at most B, as B grows (linear model).",
    )


def _of_logits(solved: LogitPath) -> _Columns:
    with np.errstate(divide="ignore"):
        loss = np.log10(solved.column("loss_gap"))
    return _Columns(
        1.0 / solved.column("lam"),
        "1 / lambda",
        "H",
        loss,
        solved.column("finite_distance"),
        "||P_F(L) - L^in|| / ||L^in||",
        [("L with L^mm", solved.column("direction_cosine"))],
        "The logits that minimise CE + lambda ||L||_*, as lambda decreases (learned features); each point is optimal "
        f"within a proven relative duality gap of {float(np.max(solved.relative_gaps)):.1e}.",
    )
