"""Figures of every kind of panel, with awkward names and numbers."""

from __future__ import annotations

import numpy as np

from tokengeom.figures.base import Curve, Figure, HeatmapPanel, LinePanel, Points, ScatterPanel

AWKWARD = ("<script>alert(1)</script>", "$x_1$", "_hidden", "a&b", "%{x}", "line\nbreak", " ", "日本")


def awkward_figure() -> Figure:
    """Zeros, NaN and infinities on log axes; names that look like markup, formulas or templates."""
    x = np.array([0.0, 1.0, 10.0, 100.0, 1000.0])
    y = np.array([1.0, 0.0, np.nan, 1e-3, np.inf])
    curves = [
        Curve(AWKWARD[0], x, y),
        Curve("with a band", x, 2 + x, low=1 + x, high=3 + x, colour=4),
        Curve("_predicted $", x, 1 / (1 + x), dashed=True),
        Curve("companion", x, 2 / (1 + x), dotted=True, colour=2),
    ]
    line = LinePanel(
        "Gap $a$ over <i>steps</i>",
        "step_k",
        "CE - H & more",
        curves,
        "log",
        "log",
        [("floor", 1e-2)],
        [("rank", 30.0)],
    )
    empty = LinePanel("Nothing positive", "k", "gap", [Curve("zero", x, 0 * x)], "log", "log", [("none", 0.0)])
    values = np.linspace(-1, 1, 48).reshape(6, 8)
    values[2, 3] = np.nan
    values[3, 3] = np.inf
    heat = HeatmapPanel(
        "Cosines", values, "contexts", "tokens", AWKWARD, AWKWARD[:6], [2, 5], [3], -1.0, 1.0, colour_label="cosine"
    )
    crowded = HeatmapPanel(
        "Many names", np.arange(90000.0).reshape(300, 300), "contexts", "tokens", [f"name {i}" for i in range(300)]
    )
    scatter = ScatterPanel(
        "Plane",
        "first coordinate",
        "second coordinate",
        [
            Points("embeddings", np.array([1.0, -1.0]), np.array([0.5, -0.5]), AWKWARD[:2], "point"),
            Points("rows of W^mm", np.array([0.2, np.nan]), np.array([1.2, 0.0]), ("$", "gone"), "star"),
        ],
        equal=True,
        from_origin=True,
    )
    return Figure("awkward", "Every kind of <panel> & $name$", "A caption with $ and <b> & _." * 8, [
        line, empty, heat, crowded, scatter,
    ], columns=2)  # fmt: skip
