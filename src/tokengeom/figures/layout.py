"""Sizes of the panels of static pictures, in inches.

A heat-map grows until its names fit, up to a limit. Points have space for the names beside them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, Panel, ScatterPanel
from tokengeom.figures.prepare import (
    LABEL_SIZE,
    NAME_HEIGHT,
    NAME_SIZE,
    PANEL_SIZE,
    POINT_NAME_SIZE,
    drawable,
    finite_range,
    legend_labels,
    names_fit,
    short,
)

CHARACTER = 0.6
"""Width of a character of the font as a share of its height; a little more than the average in a name."""
RUNNING = 0.55
"""The same for running text, where wide and narrow characters balance."""
LEGEND_LEFT = 0.55
"""Inches from the left edge of a legend to the left end of the axes."""
LARGEST = {1: 10.0, 2: 6.0, 3: 4.4}
"""Longest side to which a heat-map grows so that its names fit, by number of columns in the figure."""
LEAST_HEATMAP = {1: 4.4, 2: 3.6, 3: 3.0}
AWAY = 0.08
"""Inches between a point and its name."""

Limits = tuple[float, float]


@dataclass(frozen=True)
class PanelSize:
    """Inches of a panel's axes and of the margins around them; ``below`` is the distance to a legend under them."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    below: float
    legend_columns: int

    @property
    def whole(self) -> tuple[float, float]:
        """Width and height with the margins."""
        return self.left + self.width + self.right, self.top + self.height + self.bottom


def wrap(text: str, inches: float, size: float) -> list[str]:
    """Lines of a text that fit a width at a font size in points."""
    return textwrap.wrap(text, max(8, int(inches * 72 / (RUNNING * size))), break_on_hyphens=False) or [""]


def text_width(text: str, size: float) -> float:
    """Inches that one line takes."""
    return len(text) * CHARACTER * size / 72


def panel_size(panel: Panel, columns: int) -> PanelSize:
    """Size of a panel in a figure with ``columns`` columns."""
    width, height = _axes_size(panel, min(columns, 3))
    left, right, bottom = 0.75, 0.2, 0.6
    if isinstance(panel, HeatmapPanel):
        left = 0.35 + _tick_label_room(panel.y_names, panel.values.shape[0], height)
        bottom = 0.35 + _tick_label_room(panel.x_names, panel.values.shape[1], width, across=True)
        right = 0.95 if panel.colour_label else 0.75
    elif isinstance(panel, LinePanel) and names_are_turned(panel.x_names, width):
        bottom += _longest(panel.x_names)
    left += 0.15 * (len(wrap(panel.y_label, height, LABEL_SIZE)) - 1)
    bottom += 0.15 * (len(wrap(panel.x_label, width, LABEL_SIZE)) - 1)
    per_row, rows = legend_grid(legend_labels(panel), LEGEND_LEFT + width)
    top = 0.15 + 0.19 * len(wrap(panel.title, width, PANEL_SIZE))
    below = bottom - 0.12
    return PanelSize(width, height, left, right, top, bottom + (0.06 + 0.19 * rows if rows else 0.0), below, per_row)


def legend_grid(labels: Sequence[str], inches: float) -> tuple[int, int]:
    """Entries per row and number of rows of a legend within a width."""
    if not labels:
        return 1, 0
    entry = 0.55 + max(text_width(label, LABEL_SIZE) for label in labels)
    per_row = max(1, min(len(labels), int(inches / entry)))
    return per_row, -(-len(labels) // per_row)


@dataclass(frozen=True, eq=False)
class PlacedPanel:
    """A panel with the upper left corner of its cell, in inches to the right of and below that of the grid."""

    panel: Panel
    size: PanelSize
    left: float
    top: float


def place_panels(figure: Figure) -> tuple[list[PlacedPanel], float, float]:
    """All panels with their places in the grid, and the grid's width and height."""
    columns = max(1, min(figure.columns, len(figure.panels)))
    sizes = [panel_size(panel, columns) for panel in figure.panels]
    # Axes in one column of the grid start at the same distance from its left edge.
    lefts = [max(size.left for size in sizes[c::columns]) for c in range(columns)]
    sizes = [replace(size, left=lefts[index % columns]) for index, size in enumerate(sizes)]
    widths = [max(size.whole[0] for size in sizes[c::columns]) for c in range(columns)]
    heights = [max(size.whole[1] for size in sizes[r : r + columns]) for r in range(0, len(sizes), columns)]
    placed = []
    for index, (panel, size) in enumerate(zip(figure.panels, sizes, strict=True)):
        row, column = divmod(index, columns)
        placed.append(PlacedPanel(panel, size, sum(widths[:column]), sum(heights[:row])))
    return placed, sum(widths), sum(heights)


def _axes_size(panel: Panel, columns: int) -> tuple[float, float]:
    if isinstance(panel, LinePanel):
        return 3.6, 2.4
    if isinstance(panel, ScatterPanel):
        if not panel.equal:
            return 4.6, 3.2
        _, y = _point_ranges(panel)
        # A height that leaves little of the axes empty.
        return 4.6, float(np.clip((y[1] - y[0]) / _unit(panel, 4.6) + 0.7, 2.6, 4.6))
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


def names_are_turned(names: Sequence[str], inches: float) -> bool:
    """Whether names along an x axis are too long to be written horizontally."""
    return _longest(names) + 0.1 > inches / max(len(names), 1)


def _tick_label_room(names: Sequence[str], count: int, inches: float, *, across: bool = False) -> float:
    """Inches that the tick labels of a heat-map take beside a y axis, or below an x axis (``across``)."""
    if not names_fit(min(len(names), count), inches):
        return 0.1
    return 0.1 + (NAME_HEIGHT if across and not names_are_turned(names, inches) else _longest(names))


def _longest(names: Sequence[str]) -> float:
    return max((text_width(short(name), NAME_SIZE) for name in names), default=0.0)


def scatter_limits(panel: ScatterPanel, width: float, height: float) -> tuple[Limits, Limits]:
    """Ends of both axes of a scatter panel, with space for the names beside the points."""
    x, y = _point_ranges(panel)
    unit = _unit(panel, width)
    y_unit = (y[1] - y[0]) / max(height - 0.7, 0.5)
    if panel.equal:
        unit = y_unit = max(unit, y_unit)
    return _centred(_range_with_names(panel, x, unit), unit * width), _centred(y, (y_unit or 1.0 / height) * height)


def point_name_width(name: str) -> float:
    """Inches that a name beside a point takes."""
    return len(name) * 0.57 * POINT_NAME_SIZE / 72


def _point_ranges(panel: ScatterPanel) -> tuple[Limits, Limits]:
    zero = [np.zeros(1)] if panel.from_origin else []
    x = finite_range([drawable(points.x) for points in panel.points] + zero)
    y = finite_range([drawable(points.y) for points in panel.points] + zero)
    return x, y


def _unit(panel: ScatterPanel, width: float) -> float:
    """Data units per inch at which points and names fit the width.

    The space that a name needs in data units grows with the unit, so the unit is found by iteration.
    """
    x, _ = _point_ranges(panel)
    unit = (x[1] - x[0]) / width or 1.0 / width
    for _ in range(30):
        ends = _range_with_names(panel, x, unit)
        unit = max(unit, (ends[1] - ends[0]) / width)
    return unit


def _range_with_names(panel: ScatterPanel, x: Limits, unit: float) -> Limits:
    ends = [x[0] - 0.15 * unit, x[1] + 0.15 * unit]
    for points in panel.points:
        for a, name in zip(drawable(points.x), points.names, strict=False):
            if np.isfinite(a):
                ends.append(a + (1 if a >= 0 else -1) * (point_name_width(short(name)) + AWAY + 0.08) * unit)
    return min(ends), max(ends)


def _centred(ends: Limits, length: float) -> Limits:
    middle = 0.5 * (ends[0] + ends[1])
    return middle - 0.5 * length, middle + 0.5 * length
