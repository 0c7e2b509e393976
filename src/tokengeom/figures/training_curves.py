"""How training comes to the predicted limit: by step, one colour per run, along the regularisation path, by concept.

`feature_training`   learned features: loss gap, norms, finite part, agreement at each step's own loss and in the
                     limit, collapse, and the papers' SIM [zhao2024]
`path`               loss, finite part and direction as regularisation vanishes, for the linear model by the norm B
                     [thrampoulidis2024]
`concepts`           typical tokens and contexts of each concept, importance, and the order in which they are learned
                     [zhao2025]

The first draws runs by name, from the columns that ``feature_probes`` records; panels without a measurement are left
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom.comparison.target import LIMIT, PROXY
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float, Int
from tokengeom.figures.base import EQUAL, Curve, Figure, HeatmapPanel, LinePanel, Panel, Scale
from tokengeom.figures.ordering import names_of
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.concepts import Concepts
from tokengeom.theory.linear_path import RegularisationPath
from tokengeom.training.run import Run

FEW_RUNS = 4
"""Runs up to which the legend of a panel with several curves per run lists them all."""


def feature_training(runs: Mapping[str, Run]) -> Figure:
    """Measurements of runs (name -> Run) with learned features, by step."""
    require_runs(runs)
    norms = [
        *run_curves(runs, "norm_W", "{run}: tokens ||W||"),
        *run_curves(runs, "norm_H", "{run}: contexts ||H||", dotted=True),
        *run_curves(runs, "norm_logits", "{run}: logits ||L||", dashed=True),
    ]
    correlation = "correlation of cosines"
    panels = [
        step_panel("Loss gap", "CE - H, nats", run_curves(runs, "loss_gap"), "log"),
        step_panel("Norms", "Frobenius norm", norms, "log"),
        step_panel("Finite part: distance on F", "||P_F(L) - L^in||", run_curves(runs, "finite_distance"), "log"),
        step_panel("Direction: distance of normalised logits", "distance", run_curves(runs, "logit_distance")),
        step_panel(
            "Contexts: agreement across supports", correlation, _agreement(runs, "context_agreement"), levels=EQUAL
        ),
        step_panel("Tokens: agreement", correlation, _agreement(runs, "token_agreement"), levels=EQUAL),
        step_panel("Collapse: spread in support groups", "within / between", run_curves(runs, "collapse"), "log"),
        step_panel("Contexts: the papers' SIM", "SIM", _similarity(runs, "context_similarity"), levels=EQUAL),
        step_panel("Tokens: the papers' SIM", "SIM", _similarity(runs, "token_similarity"), levels=EQUAL),
    ]
    names = {item: f"{item[:-1]}_agreement" for item in ("contexts", "tokens")}
    ends = last_values(
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


def _agreement(runs: Mapping[str, Run], column: str) -> list[Curve]:
    at_loss = run_curves(runs, column, "{run}, at its loss")
    return at_loss + run_curves(runs, LIMIT.named(column), "{run}, with L^mm", dashed=True)


def _similarity(runs: Mapping[str, Run], column: str) -> list[Curve]:
    in_limit = run_curves(runs, column, "{run} with L^mm")
    return in_limit + run_curves(runs, PROXY.named(column), "{run} with proxy", dotted=True)


def step_panel(
    title: str, y_label: str, curves: Sequence[Curve], scale: Scale = "linear", levels: Sequence[tuple[str, float]] = ()
) -> LinePanel:
    """A panel of measurements by step, on a logarithmic axis."""
    return LinePanel(title, "step", y_label, curves, "log", scale, levels)


def run_curves(
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


def last_values(runs: Mapping[str, Run], *measured: tuple[str, str, str]) -> str:
    """Last values of each run: loss gap, then the given (label, column, format) that it has."""
    ends = []
    for name, run in runs.items():
        end = f"{name}: {run.steps:,} steps, CE - H = {run.loss_gap:.2g} nats"
        for label, column, form in measured:
            if column in run.trajectory.names and len(run.trajectory) and not np.isnan(run.trajectory.last(column)):
                end += f", {label} = {run.trajectory.last(column):{form}}"
        ends.append(end)
    return "; ".join(ends)


def require_runs(runs: Mapping[str, Run]) -> None:
    """Refuse a figure of training without runs."""
    if not runs:
        raise InputError(
            "A figure of training needs at least one run; got none. Pass them by name: {'GD': train(...)}."
        )


@dataclass(frozen=True, eq=False)
class PathColumns:
    """A path as columns; ``loss`` is log10 of the gap, which may be too small for a float."""

    x: Float
    x_label: str
    floor: str
    loss: Float
    finite: Float
    finite_label: str
    cosines: list[tuple[str, Float]]
    sentence: str


def path(solved: RegularisationPath | PathColumns) -> Figure:
    """Loss, finite part and direction along a path: of the linear model by its norm B, or of given columns."""
    c = _of_linear(solved) if isinstance(solved, RegularisationPath) else solved
    if not c.x.size:
        raise InputError("A path needs at least one point; got none.")
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


def _along(title: str, columns: PathColumns, label: str, curves: list[tuple[str, Float]], scale: Scale) -> LinePanel:
    drawn = [Curve(name, columns.x, y, dotted=index == 1, colour=0) for index, (name, y) in enumerate(curves)]
    return LinePanel(title, columns.x_label, label, drawn, "log", scale)


def _of_linear(solved: RegularisationPath) -> PathColumns:
    return PathColumns(
        solved.column("norm"),
        "norm B of the decoder",
        "infimum",
        solved.column("log_loss_gap") / np.log(10.0),
        solved.column("finite_error"),
        "||P_F(W_B) - W*|| / ||W*||",
        [("W_B with W^mm", solved.column("cosine")), ("W_B - W* with W^mm", solved.column("cosine_direction"))],
        "The decoder with the smallest loss among those of norm at most B, as B grows (linear model).",
    )


@dataclass(frozen=True, eq=False)
class LearnedConcepts:
    """Measured strength of concepts during training: ``strength`` is concepts x steps, e.g. ``u_k^T L v_k``."""

    steps: Float
    strength: Float


def concepts(
    vectors: Concepts,
    stats: NextTokenStatistics | None = None,
    *,
    count: int = 6,
    typical: int = 5,
    learned: LearnedConcepts | None = None,
) -> Figure:
    """Typical tokens and contexts of the leading concepts, their importance, and predicted (or measured) learning."""
    k = min(count, len(vectors))
    if k < 1:
        raise InputError(
            f"A figure of concepts needs at least one; {count} were requested and the matrix has {len(vectors)}. "
            "Likely every support is the whole vocabulary, so that there is no geometry."
        )
    titles = [f"concept {i + 1}" for i in range(k)]
    tokens = _most_typical(vectors.U[:, :k], typical)
    contexts = _most_typical(vectors.Vt[:k].T, typical)
    names = names_of(stats, "tokens", vectors.U.shape[0])
    texts, s = names_of(stats, "contexts", vectors.Vt.shape[1]), vectors.singular_values
    panels: list[Panel] = [
        _heat("Typical tokens", vectors.U[tokens, :k], titles, [names[int(z)] for z in tokens], "tokens"),
        _heat("Typical contexts", vectors.Vt[:k].T[contexts], titles, [texts[int(j)] for j in contexts], "contexts"),
        LinePanel(
            "Importance of each concept", "concept", "singular value", [Curve("", np.arange(1.0, s.size + 1.0), s)]
        ),
        _learning(vectors, titles, learned),
    ]
    typical_tokens = [vectors.concept(i, typical=3).token_texts(names) for i in range(k)]
    sides = "; ".join(f"{i}: {', '.join(red)} | {', '.join(blue)}" for i, (red, blue) in enumerate(typical_tokens, 1))
    measured = "predicted by the square-loss surrogate" if learned is None else "measured during training"
    caption = (
        "Concepts are the singular vectors of the geometry: each contrasts two sides (red and blue) of tokens and of "
        "contexts, and a stronger colour is more typical. A larger singular value means a more important concept, "
        f"which is predicted to be learned earlier. Lower right: order of learning, {measured}. Most typical tokens, "
        f"red | blue: {sides}."
    )
    return Figure("concepts", "Concepts in the support geometry", caption, panels, columns=2)


def _most_typical(columns: Float, typical: int) -> Int:
    """Rows that are among the most typical of either side of some column: by column, from positive to negative."""
    chosen: list[int] = []
    for column in columns.T:
        order = np.argsort(-column, kind="stable")
        positive = [int(i) for i in order[:typical] if column[i] > 0]
        negative = [int(i) for i in order[::-1][:typical][::-1] if column[i] < 0]
        chosen += [i for i in (*positive, *negative) if i not in chosen]
    return np.asarray(chosen, dtype=np.int64)


def _heat(title: str, values: Float, across: list[str], down: list[str], label: str) -> HeatmapPanel:
    return HeatmapPanel(title, values, "concepts, most important first", label, across, down, colour_label="typicality")


def _learning(vectors: Concepts, names: list[str], learned: LearnedConcepts | None) -> LinePanel:
    k = len(names)
    if learned is not None:
        rows = learned.strength[:k]
        largest = np.abs(rows).max(axis=1, initial=0.0)
        curves = [
            Curve(n, learned.steps, row / (top or 1.0)) for n, row, top in zip(names, rows, largest, strict=False)
        ]
        return LinePanel("Order of learning, measured", "step", "share of its largest value", curves, "log")
    times = np.linspace(0.0, 2.0 * float(vectors.half_times()[:k].max(initial=0.5)), 120)
    shares = vectors.learning_curve(times)[:k] / vectors.singular_values[:k, None]
    curves = [Curve(n, times, row, dashed=True) for n, row in zip(names, shares, strict=True)]
    return LinePanel("Order of learning, predicted", "time of the surrogate model", "share learned", curves)
