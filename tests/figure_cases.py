"""A figure with every kind of panel and awkward names, and readers of what a drawn figure shows."""

from __future__ import annotations

import warnings
from html import escape
from typing import Any

import numpy as np

from tokengeom.figures.base import Curve, Figure, HeatmapPanel, LinePanel, Points, ScatterPanel
from tokengeom.figures.interactive import to_boxes
from tokengeom.figures.prepare import legible
from tokengeom.figures.static import draw

AWKWARD = ("<script>alert(1)</script>", "$x_1$", "_hidden", "a&b", "%{x}", "line\nbreak", " ", "日本")
LABELS = [
    "Every kind of <panel> & $name$", "Gap $a$ over <i>steps</i>", "step_k", "CE - H & more", AWKWARD[0], "with a band",
    "_predicted $", "companion", "floor", "rank", "Nothing positive", "zero", "Cosines", "cosine", "Many names",
    "contexts", "tokens", "Plane", "first coordinate", "embeddings", "rows of W^mm", *map(legible, AWKWARD),
]  # fmt: skip
"""Texts of `awkward_figure` that a drawing of it must show."""


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


def rendered(figure: Figure, *, caption: bool = True) -> Any:
    """A matplotlib figure that has been drawn once, so that every artist has its final position."""
    canvas = draw(figure, caption=caption)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        canvas.canvas.draw()
    return canvas


def static_texts(canvas: Any) -> set[str]:
    """Every text of a drawn matplotlib figure, with wrapped lines joined."""
    from matplotlib.text import Text

    return {text.get_text().replace("\n", " ") for text in canvas.findobj(Text) if text.get_text()}


def plotly_texts(figure: Figure) -> set[str]:
    """Every text of the boxes of a figure; their titles as the page escapes them."""
    found: set[str] = set()

    def visit(item: object) -> None:
        if isinstance(item, str):
            found.add(item)
        elif isinstance(item, dict):
            for name, value in item.items():
                if name != "hovertemplate":
                    visit(value)
        elif isinstance(item, list):
            for value in item:
                visit(value)

    for box in to_boxes(figure):
        visit([box.drawn, escape(legible(box.title), quote=False)])
    return found


def assert_nothing_is_clipped(figure: Figure, canvas: Any = None) -> None:
    """Every artist lies inside the picture, and no panel (with its colour bar) covers another."""
    canvas = rendered(figure) if canvas is None else canvas
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        renderer = canvas.canvas.get_renderer()
        boxes = [axes.get_tightbbox(renderer) for axes in canvas.axes]
        texts = [text.get_window_extent(renderer) for text in canvas.texts]
    page = canvas.bbox
    for box in [*boxes, *texts]:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
        assert inside, f"{box} leaves the picture {page} of '{figure.name}'"
    titled = [box for axes, box in zip(canvas.axes, boxes, strict=True) if axes.get_label() != "<colorbar>"]
    for i, one in enumerate([*titled, *texts]):
        for other in [*titled, *texts][:i]:
            assert not _overlap(one, other), f"{one} and {other} cover each other in '{figure.name}'"


def _overlap(one: Any, other: Any) -> bool:
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    upwards = min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(across > 1 and upwards > 1)


def heatmap(figure: Figure, index: int = 0) -> HeatmapPanel:
    """A panel that must be a heat-map."""
    panel = figure.panels[index]
    assert isinstance(panel, HeatmapPanel)
    return panel


def line_panel(figure: Figure, title: str) -> LinePanel:
    """The panel with a title, which must be a line panel."""
    (panel,) = (one for one in figure.panels if one.title == title)
    assert isinstance(panel, LinePanel)
    return panel


def scatter_panel(figure: Figure, index: int = 0) -> ScatterPanel:
    """A panel that must be a scatter panel."""
    panel = figure.panels[index]
    assert isinstance(panel, ScatterPanel)
    return panel
