"""A regularisation path: loss, finite part and direction as regularisation vanishes.

The x axis is the norm B for the linear model [thrampoulidis2024] and 1/lambda for logits [zhao2024].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.figures.base import Curve, Figure, LinePanel, Scale
from tokengeom.theory.linear_path import RegularisationPath
from tokengeom.theory.logit_path import LogitPath


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


def path(found: RegularisationPath | LogitPath) -> Figure:
    """Loss, finite part and direction along a path, by norm bound B (linear model) or 1/lambda (logits)."""
    if not found.points:
        raise InputError("A path needs at least one point; got none.")
    c = _of_linear(found) if isinstance(found, RegularisationPath) else _of_logits(found)
    panels = [
        _panel("Loss gap", c, f"log10(CE - {c.floor})", [("", c.loss)], "linear"),
        _panel("Finite part", c, c.finite_label, [("", c.finite)], "log"),
        _panel("Direction: cosine with the prediction", c, "cosine", c.cosines, "linear"),
        _panel("Direction: 1 minus the cosine", c, "1 - cosine", [(n, 1.0 - y) for n, y in c.cosines], "log"),
    ]
    caption = (
        f"{c.sentence} In theory the loss falls to its infimum, the finite part converges, and the direction converges "
        f"to the predicted one. At the last point ({c.x_label} = {c.x[-1]:.3g}): CE - {c.floor} = 10^{c.loss[-1]:.4g} "
        f"nats, distance of the finite part {c.finite[-1]:.2g}, cosine of the direction {c.cosines[-1][1][-1]:.6f}. "
        "Distances of 0 (to rounding) cannot be shown on a log axis."
    )
    return Figure("path", "The limit of training along the regularisation path", caption, panels, columns=2)


def _panel(title: str, columns: _Columns, label: str, curves: list[tuple[str, Float]], scale: Scale) -> LinePanel:
    drawn = [Curve(name, columns.x, y, dotted=index == 1, colour=0) for index, (name, y) in enumerate(curves)]
    return LinePanel(title, columns.x_label, label, drawn, "log", scale)


def _of_linear(found: RegularisationPath) -> _Columns:
    return _Columns(
        found.column("norm"),
        "norm B of the decoder",
        "infimum",
        found.column("log_loss_gap") / np.log(10.0),
        found.column("finite_error"),
        "||P_F(W_B) - W*|| / ||W*||",
        [("W_B with W^mm", found.column("cosine")), ("W_B - W* with W^mm", found.column("cosine_direction"))],
        "The decoder with the smallest loss among those of norm at most B, as B grows (linear model).",
    )


def _of_logits(found: LogitPath) -> _Columns:
    with np.errstate(divide="ignore"):
        loss = np.log10(found.column("loss_gap"))
    gaps = found.relative_gaps
    return _Columns(
        1.0 / found.column("lam"),
        "1 / lambda",
        "H",
        loss,
        found.column("finite_distance"),
        "||P_F(L) - L^in|| / ||L^in||",
        [("L with L^mm", found.column("direction_cosine"))],
        "The logits that minimise CE + lambda ||L||_*, as lambda decreases (learned features); each point is optimal "
        f"within a proven relative duality gap of {float(np.max(gaps)):.1e}.",
    )
