"""Interactive pictures for a page that sets their width: one plotly picture a panel, which fills its box.

A sheet (see ``interactive``) has a fixed width; on a page whose width is the reader's, each panel stands in a box of
its own, so that boxes can go below each other and titles can wrap as text.

How large panels are, in inches: grown until names fit, up to what a page can take.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokengeom.errors import missing_extra
from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, Panel, ScatterPanel
from tokengeom.figures.label_places import fitting_height
from tokengeom.figures.prepare import NAME_HEIGHT, drawn_matrix, legend_labels, names_fit, short
from tokengeom.figures.theme import BACKGROUND, FAINT, LABEL_SIZE, NAME_SIZE, PANEL_SIZE, TEXT, WEB_FONT

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
    from tokengeom.figures.interactive import Place, add_panel

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
        from tokengeom.figures.interactive import text

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


CHARACTER = 0.6
"""Width of a character of the house's font as a share of its height, a little more than the average of a name."""
RUNNING = 0.55
"""The same, in running text, where wide and narrow characters even out."""
LEGEND_LEFT = 0.55
"""Inches by which a legend begins left of the axes."""
LARGEST = {1: 10.0, 2: 6.0, 3: 4.4}
"""Longest side to which a heat-map grows for its names, by columns of the figure."""
LEAST_HEATMAP = {1: 4.4, 2: 3.6, 3: 3.0}


@dataclass(frozen=True)
class PanelSize:
    """Inches of a panel's axes and of what stands around them; ``below`` is where a legend under them begins."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    below: float
    legend_columns: int
    legend_rows: int

    @property
    def whole(self) -> tuple[float, float]:
        """Width and height with everything around the axes."""
        return self.left + self.width + self.right, self.top + self.height + self.bottom


def wrap(text: str, inches: float, size: float) -> list[str]:
    """Lines of a text that fit a width at a font size in points; words are broken only where one is too long."""
    return textwrap.wrap(text, max(8, int(inches * 72 / (RUNNING * size))), break_on_hyphens=False) or [""]


def text_width(text: str, size: float) -> float:
    """Inches that one line takes."""
    return len(text) * CHARACTER * size / 72


def panel_size(panel: Panel, columns: int, stacked: bool = False) -> PanelSize:
    """Size of a panel in a figure of so many columns; ``stacked`` puts one entry in each row of a legend."""
    width, height = _body(panel, min(columns, 3))
    left, right, bottom = 0.75, 0.2, 0.6
    if isinstance(panel, HeatmapPanel):
        left = 0.35 + _name_width(panel.y_names, panel.values.shape[0], height)
        bottom = 0.35 + _name_width(panel.x_names, panel.values.shape[1], width)
        right = 0.95 if panel.colour_label else 0.75
    left += 0.15 * (len(wrap(panel.y_label, height, LABEL_SIZE)) - 1)
    bottom += 0.15 * (len(wrap(panel.x_label, width, LABEL_SIZE)) - 1)
    per_row, rows = legend_grid(legend_labels(panel), 0.0 if stacked else LEGEND_LEFT + width)
    top = 0.15 + 0.19 * len(wrap(panel.title, width, PANEL_SIZE))
    return PanelSize(width, height, left, right, top, bottom + 0.19 * rows, bottom - 0.18, per_row, rows)


def legend_grid(labels: Sequence[str], inches: float) -> tuple[int, int]:
    """Entries in a row and number of rows of a legend that is no wider than given."""
    if not labels:
        return 1, 0
    entry = 0.55 + max(text_width(label, LABEL_SIZE) for label in labels)
    per_row = max(1, min(len(labels), int(inches / entry)))
    return per_row, -(-len(labels) // per_row)


def grid_sizes(figure: Figure, stacked: bool = False) -> tuple[list[PanelSize], list[float], list[float]]:
    """Size of each panel, widths of the grid's columns and heights of its rows."""
    columns = grid_columns(figure)
    sizes = [panel_size(panel, columns, stacked) for panel in figure.panels]
    # Axes that stand above each other begin at the same place.
    lefts = [max(size.left for size in sizes[c::columns]) for c in range(columns)]
    sizes = [replace(size, left=lefts[place % columns]) for place, size in enumerate(sizes)]
    widths = [max(size.whole[0] for size in sizes[c::columns]) for c in range(columns)]
    heights = [max(size.whole[1] for size in sizes[r : r + columns]) for r in range(0, len(sizes), columns)]
    return sizes, widths, heights


def grid_columns(figure: Figure) -> int:
    """Columns that are really used."""
    return max(1, min(figure.columns, len(figure.panels)))


def _body(panel: Panel, columns: int) -> tuple[float, float]:
    if isinstance(panel, LinePanel):
        return 3.6, 2.4
    if isinstance(panel, ScatterPanel):
        return 4.6, fitting_height(panel, 4.6, 2.6, 4.6) if panel.equal else 3.2
    rows, across = panel.values.shape
    least, most = LEAST_HEATMAP[columns], LARGEST[columns]
    width = _grown(least, most, across if panel.x_names else 0)
    height = _grown(least, most, rows if panel.y_names else 0)
    if rows == across:
        width = height = max(width, height)
    return width, height


def _grown(least: float, most: float, names: int) -> float:
    wanted = names * NAME_HEIGHT
    return max(least, wanted) if wanted <= most else least


def _name_width(names: Sequence[str], count: int, inches: float) -> float:
    if not names_fit(min(len(names), count), inches):
        return 0.1
    return 0.1 + max(text_width(short(name), NAME_SIZE) for name in names)
