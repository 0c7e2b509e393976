"""Panels as separate plotly pictures that fill their container, for a page whose width depends on the reader.

The interactive picture of a whole figure has a fixed width (see ``interactive``). Boxes have none: they can be stacked,
and the page writes their titles as text that wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, Panel
from tokengeom.figures.interactive import Place, add_panel, empty_picture, plotly_text
from tokengeom.figures.layout import panel_size
from tokengeom.figures.prepare import BACKGROUND, FAINT, TEXT, WEB_FONT, drawn_matrix, legend_labels, short

NAME, LETTER = 12, 5.6
"""Pixels along an axis that a tick label takes, and pixels of its length per letter."""
AROUND = 80
"""Pixels for axis labels and the colour bar beside the axes."""
NARROWEST, LONGEST = 300, 90
"""Pixels of the narrowest box, and of the longest tick label beside a heat-map in it."""
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
        Pixels, or None for a box that is about as high as it is wide.
    """

    title: str
    drawn: dict[str, Any]
    height: int | None


def to_boxes(figure: Figure) -> list[Box]:
    """One box per panel of a figure."""
    return [_box(panel, max(1, min(figure.columns, 3))) for panel in figure.panels]


def _box(panel: Panel, columns: int) -> Box:
    size = panel_size(panel, columns, stacked=True)
    drawn = empty_picture()
    # The axes take the whole picture; plotly adds margins for labels itself.
    add_panel(drawn, replace(panel, title=""), size, Place(0, 0.0, size.height, size.width, size.height))
    plain: dict[str, Any] = drawn.to_plotly_json()
    _remove_sizes(plain, panel)
    return Box(panel.title, plain, _height(panel, plain))


def _remove_sizes(plain: dict[str, Any], panel: Panel) -> None:
    """Replace the settings that assume a picture of known size."""
    layout = plain["layout"]
    layout.pop("template", None)
    names = [note for note in layout.pop("annotations", ()) if note["text"] and note["xref"] != "paper"]
    layout |= {
        "annotations": names,
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
        # The width that names were judged by is not that of the box.
        layout["xaxis"]["tickangle"] = 270
        heat = plain["data"][0]
        heat["z"] = drawn_matrix(panel)
        label = {"text": plotly_text(panel.colour_label), "side": "right", "font": {"size": 11}}
        heat["colorbar"] = {"thickness": 9, "outlinewidth": 0, "tickfont": {"size": 10}, "xpad": 4, "title": label}
        heat["colorbar"] |= {"len": 1, "lenmode": "fraction", "nticks": 5}
        for breaks in plain["data"][1:]:
            breaks["opacity"] = 0.35


def _height(panel: Panel, plain: dict[str, Any]) -> int | None:
    """Height of a box; tick labels that would not fit a narrow box are removed (names still appear on hover)."""
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
    """Length of the longest name in pixels."""
    return max((round(LETTER * len(short(name))) for name in names), default=0)
