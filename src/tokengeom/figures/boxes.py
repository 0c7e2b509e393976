"""Interactive pictures for a page that sets their width: one plotly picture a panel, which fills its box.

A sheet (see ``interactive``) has a fixed width; on a page whose width is the reader's, each panel stands in a box of
its own, so that boxes can go below each other and titles can wrap as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokengeom.errors import missing_extra
from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, Panel
from tokengeom.figures.prepare import drawn_matrix, legend_labels, short
from tokengeom.figures.sizes import panel_size
from tokengeom.figures.theme import BACKGROUND, FAINT, TEXT, WEB_FONT

NAME, LETTER = 12, 5.6
"""Pixels that a name takes across its direction of reading, and each of its letters along it."""
AROUND = 80
"""Pixels for labels and a scale of colours beside the axes."""
NARROWEST, LONGEST = 300, 90
"""Pixels of the narrowest box, and of the longest name beside a heat-map in it."""
LINE_HEIGHT = 270
LEGEND_ROW = 19
CLEAR = "rgba(0,0,0,0)"


@dataclass(frozen=True, eq=False)
class Box:
    """A panel as plotly draws it, without a size.

    ``title``
        For the page to write above the box.
    ``drawn``
        Plotly's ``data`` and ``layout``; the matrix of a heat-map is a NumPy array.
    ``height``
        Pixels, or None for a box about as high as it is wide.
    """

    title: str
    drawn: dict[str, Any]
    height: int | None


def to_boxes(figure: Figure) -> list[Box]:
    """Draw every panel of a figure in a box of its own."""
    return [_box(panel, max(1, min(figure.columns, 3))) for panel in figure.panels]


def _box(panel: Panel, columns: int) -> Box:
    try:
        import plotly.graph_objects as go
    except ModuleNotFoundError:
        missing_extra("plotly", "figures", "Drawing an interactive figure")
    from tokengeom.figures.interactive_panels import Place, add_panel

    size = panel_size(panel, columns, stacked=True)
    drawn = go.Figure()
    # The axes take the whole sheet; plotly makes room for what stands around them.
    add_panel(drawn, replace(panel, title=""), size, Place(0, 0.0, size.height, size.width, size.height))
    plain: dict[str, Any] = drawn.to_plotly_json()
    _loosen(plain, panel)
    return Box(panel.title, plain, _extent(panel, plain))


def _loosen(plain: dict[str, Any], panel: Panel) -> None:
    """Take out what holds for a sheet of known size alone."""
    layout = plain["layout"]
    layout.pop("template", None)
    words = [note for note in layout.pop("annotations", ()) if note["text"] and note["xref"] != "paper"]
    layout |= {
        "annotations": words,
        "autosize": True,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "font": {"family": WEB_FONT, "color": TEXT, "size": 12},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "hovermode": "closest",
        "hoverlabel": {
            "namelength": -1, "align": "left", "bgcolor": BACKGROUND, "bordercolor": FAINT,
            "font": {"color": TEXT, "family": WEB_FONT, "size": 13},
        },
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": -0.24, "yanchor": "top", "bgcolor": CLEAR,
            "font": {"size": 12}, "traceorder": "normal",
        },
    }  # fmt: skip
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"automargin": True, "domain": [0, 1]}
    if isinstance(panel, HeatmapPanel):
        from tokengeom.figures.interactive_panels import text

        heat = plain["data"][0]
        heat["z"] = drawn_matrix(panel)
        label = {"text": text(panel.colour_label), "side": "right", "font": {"size": 11}}
        heat["colorbar"] = {"thickness": 9, "outlinewidth": 0, "tickfont": {"size": 10}, "xpad": 4, "title": label}
        heat["colorbar"] |= {"len": 1, "lenmode": "fraction", "nticks": 5}
        for breaks in plain["data"][1:]:
            breaks["opacity"] = 0.35


def _extent(panel: Panel, plain: dict[str, Any]) -> int | None:
    """Height of a box; names that would not fit a narrow one are taken off the axes (pointing still shows them)."""
    if not isinstance(panel, HeatmapPanel):
        rows = len(legend_labels(panel)) if isinstance(panel, LinePanel) else 1
        return LINE_HEIGHT + LEGEND_ROW * rows
    layout, (rows, columns) = plain["layout"], panel.values.shape
    down = _longest(panel.y_names) if layout["yaxis"]["showticklabels"] else 0
    layout["yaxis"]["showticklabels"] = 0 < down <= LONGEST
    down = down if down <= LONGEST else 0
    fits = layout["xaxis"]["showticklabels"] and NAME * columns + down + AROUND <= NARROWEST
    layout["xaxis"]["showticklabels"] = fits
    across = _longest(panel.x_names) if fits else 0
    return max(LINE_HEIGHT, NAME * rows + across + AROUND) if down or across else None


def _longest(names: Sequence[str]) -> int:
    """Pixels that the longest name takes."""
    return max((round(LETTER * len(short(name))) for name in names), default=0)
