"""What all renderers share: colours, fonts and sizes, which numbers can be drawn, and which names fit.

The data of a figure stay complete; these functions only choose what is shown. The palettes suit colour-blind readers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokengeom.ask.item_search import JOINER
from tokengeom.core.numerics import Float
from tokengeom.figures.base import Curve, HeatmapPanel, LinePanel, Panel, Points, Scale

# Okabe and Ito's palette; yellow comes last because it is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4D4D4D", "#B3A200")
# Samples of cividis: lightness rises evenly, for readers with and without colour vision.
SEQUENTIAL = (
    "#00224E", "#123570", "#3B496C", "#575D6D", "#707173", "#8A8678", "#A59C74", "#C3B369", "#E1CC55", "#FEE838",
)  # fmt: skip
# Blue to red through white: 0 is white, and the two signs differ in hue and not in lightness alone.
DIVERGING = (
    "#053061", "#2166AC", "#4393C3", "#92C5DE", "#D1E5F0", "#FFFFFF", "#FDDBC7", "#F4A582", "#D6604D", "#B2182B",
    "#67001F",
)  # fmt: skip

BACKGROUND = "#FFFFFF"
TEXT = "#222222"
FAINT = "#8C8C8C"
GRID = "#E6E6E6"
BREAK = "#6E6E6E"
LIGHT_BREAK = "#F2F2F2"
"""Lines between groups of a heat-map, on the diverging palette and on the darker sequential one."""
MISSING = "#D9D9D9"

UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co")
"""Categories of characters that are not seen."""

FONT = "DejaVu Sans"
WEB_FONT = "'DejaVu Sans', Verdana, system-ui, sans-serif"
TITLE_SIZE = 12.0
PANEL_SIZE = 9.5
LABEL_SIZE = 8.5
TICK_SIZE = 7.5
NAME_SIZE = 6.5
"""Tick labels of a heat-map."""
POINT_NAME_SIZE = 8.0
CAPTION_SIZE = 8.5

LINE = 1.5
THIN = 0.5
BREAK_WIDTH = 0.4
DOTS_PER_INCH = 200

# On a dark page: the palette made lighter, and the diverging scale with its middle dark (as in Crameri's berlin).
DARK_COLOURS = ("#5AA9E6", "#F08A4B", "#2FC29A", "#E39BC6", "#9AD4F5", "#F2B93B", "#BDBDBD", "#D9CB4A")
DARK_DIVERGING = (
    "#A8DDFB", "#74BDEA", "#4A97CC", "#33709F", "#234A69", "#1A1E23", "#5A2F26", "#8F4433", "#C0604A", "#E38E76",
    "#FBC4B1",
)  # fmt: skip
DARK = {
    **dict(zip((*COLOURS, *DIVERGING), (*DARK_COLOURS, *DARK_DIVERGING), strict=True)),
    TEXT: "#DEDCD6",
    FAINT: "#9A9A98",
    GRID: "#31363C",
    BREAK: "#7C8288",
    MISSING: "#3A3F45",
}
"""Colour of the light theme -> its replacement on a dark page; colours that are not listed stay as they are."""

NAME_HEIGHT = (NAME_SIZE + 1.6) / 72
"""Inches along an axis that one tick label needs."""
LEAST_BREAK = 5 / 72
"""Inches between group breaks below which their lines would hide the matrix."""
LONGEST_NAME = 34
"""Characters of a name that are shown; a longer one is shortened."""
FEW_POINTS = 40
"""Points of a curve up to which each one gets a marker."""


@dataclass(frozen=True)
class ColourRange:
    """Ends of a colour scale, its colours from low to high, and a colour for lines that is visible on them."""

    low: float
    high: float
    colours: Sequence[str]
    break_colour: str


def colour(index: int) -> str:
    """Colour of the palette at an index; the palette repeats."""
    return COLOURS[index % len(COLOURS)]


def drawable(values: Float, scale: Scale = "linear") -> Float:
    """Values with NaN where nothing can be drawn: NaN, infinities, and on a log axis everything that is not > 0."""
    numbers = np.asarray(values, dtype=np.float64)
    kept = np.isfinite(numbers)
    if scale == "log":
        kept &= numbers > 0
    return np.where(kept, numbers, np.nan)


def axis_scales(panel: LinePanel) -> tuple[Scale, Scale]:
    """Scales of a panel's axes; a log axis without a positive number becomes linear."""
    x = any(np.isfinite(drawable(curve.x, panel.x_scale)).any() for curve in panel.curves)
    y = any(np.isfinite(drawable(curve.y, panel.y_scale)).any() for curve in panel.curves)
    return panel.x_scale if x else "linear", panel.y_scale if y else "linear"


def clean_curve(curve: Curve, scales: tuple[Scale, Scale]) -> Curve:
    """A curve without the points that its x axis cannot show, and with NaN where its y axis cannot."""
    x = drawable(curve.x, scales[0])
    kept = np.isfinite(x)
    y = drawable(curve.y, scales[1])[kept]
    low, high = (None if b is None else drawable(b, scales[1])[kept] for b in (curve.low, curve.high))
    return replace(curve, x=x[kept], y=y, low=low, high=high)


def colour_range(panel: HeatmapPanel) -> ColourRange:
    """Colours of a heat-map: diverging and symmetric around 0 where the range contains both signs."""
    values = panel.values[np.isfinite(panel.values)]
    low = panel.low if panel.low is not None else float(values.min()) if values.size else 0.0
    high = panel.high if panel.high is not None else float(values.max()) if values.size else 1.0
    # A negative number of the size of rounding errors does not make the range two-sided.
    if low < -1e-9 * abs(high) and high > 1e-9 * abs(low):
        largest = max(-low, high)
        return ColourRange(-largest, largest, DIVERGING, BREAK)
    if high <= low:
        low, high = min(low, 0.0), max(high, low + 1.0 if low == 0 else 0.0)
    return ColourRange(low, high, SEQUENTIAL, LIGHT_BREAK)


def drawn_matrix(panel: HeatmapPanel) -> Float:
    """Matrix of a heat-map with NaN where nothing can be drawn; an empty matrix becomes one missing cell."""
    return drawable(panel.values) if panel.values.size else np.full((1, 1), np.nan)


def legible(name: str) -> str:
    """A name with its invisible characters made visible: many tokens begin with a space, or are a line break."""
    start, end = len(name) - len(name.lstrip(" ")), len(name.rstrip(" "))
    if start or end < len(name):
        return "␣" * start + legible(name[start:end]) + "␣" * (len(name) - max(start, end))
    spelled = {match.start() for match in JOINER.finditer(name)}
    shown = (
        c if place in spelled or unicodedata.category(c) not in UNSEEN else repr(c)[1:-1]
        for place, c in enumerate(name)
    )
    return "".join(shown)


def short(name: str, most: int = LONGEST_NAME) -> str:
    """A legible name of at most ``most`` characters; the middle is left out, since contexts differ at both ends."""
    shown = legible(name)
    if len(shown) <= most:
        return shown
    head = (most - 1) // 2
    return f"{shown[:head]}…{shown[len(shown) - (most - 1 - head) :]}"


def names_fit(count: int, inches: float) -> bool:
    """Whether an axis of this length has room for ``count`` names."""
    return 0 < count * NAME_HEIGHT <= inches * 1.001


def drawn_breaks(breaks: Sequence[int], cells: int, inches: float) -> list[int]:
    """Group breaks to draw along an axis of ``cells`` cells: none where their lines would hide the matrix.

    That can also happen with few lines, where they are clustered, as around groups of two in a large matrix.
    """
    if len(breaks) * LEAST_BREAK > inches:
        return []
    gaps = np.diff(np.asarray(breaks)) * inches / max(cells, 1)
    return [] if gaps.size and np.median(gaps) < LEAST_BREAK / 2 else list(breaks)


def colour_indices(items: Sequence[Curve | Points]) -> list[int]:
    """Index into the palette of each curve or set of points."""
    return [index if item.colour is None else item.colour for index, item in enumerate(items)]


def legend_labels(panel: Panel) -> list[str]:
    """Entries of a panel's legend; curves and points without a label have none."""
    if isinstance(panel, HeatmapPanel):
        return []
    if isinstance(panel, LinePanel):
        labels = [curve.label for curve in panel.curves if curve.in_legend]
        labels += [name for name, _ in (*panel.levels, *panel.marks)]
    else:
        labels = [points.label for points in panel.points]
    return [label for label in labels if label]


def all_names(names: Sequence[str], count: int) -> list[str]:
    """One name per row, column or point; its index where no name is given."""
    return [names[i] if i < len(names) else str(i) for i in range(count)]


def finite_range(parts: Sequence[Float]) -> tuple[float, float]:
    """Smallest and largest finite number of several arrays; 0 and 1 where there is none."""
    values = np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts]) if parts else np.zeros(0)
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)


def x_limits(panel: LinePanel, scale: Scale) -> tuple[float, float]:
    """Ends of the x axis: the range of the curves and marks, with a margin; half a step around named places."""
    if panel.x_names:
        return 0.5, len(panel.x_names) + 0.5
    values = [curve.x for curve in panel.curves] + [np.array([value for _, value in panel.marks])]
    low, high = finite_range([drawable(v, scale) for v in values])
    if scale == "log":
        factor = (high / low) ** 0.04 if high > low else 2.0
        return low / factor, high * factor
    margin = 0.04 * (high - low) or 1.0
    return low - margin, high + margin


def slug(title: str) -> str:
    """A title as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "panel"
