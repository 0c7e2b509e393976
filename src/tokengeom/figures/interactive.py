"""Interactive pictures: each panel of a figure as a box for plotly; hovering over a cell or a point shows what it is.

A box has no width: it fills its container, so that boxes can stand side by side or be stacked. The page of a report
shows them, and a saved page (.html) of one figure too; both contain plotly's code and load nothing from the network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from tokengeom.core.errors import InputError, missing_extra
from tokengeom.core.numerics import Float
from tokengeom.figures import prepare
from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, Panel, Scale, ScatterPanel
from tokengeom.figures.prepare import BACKGROUND, FAINT, GRID, TEXT, WEB_FONT, short
from tokengeom.results.folders import FIGURE_BY_US, replace_file, require_ours

LARGER = 1.4
"""Pixels on the screen per point of a font size in print."""
SYMBOLS = {"point": "circle", "star": "star", "square": "square", "cross": "x"}
SIZES = {"point": 9, "star": 15, "square": 9, "cross": 9}
LEVELS = ("dash", "longdashdot")
MARKS = ("dot", "dashdot")
CONFIG = {
    "displaylogo": False,
    "typesetMath": False,
    "responsive": True,
    "plotlyServerURL": "",
    # Listed explicitly, because plotly's default buttons include one that uploads the figure.
    "modeBarButtons": [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
}
PAGE = "interactive.html"
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
"""Content security policy of a saved page: nothing is loaded from outside it."""
NAME, LETTER = 12, 5.6
"""Pixels along an axis that a tick label takes, and pixels of its length per letter."""
AROUND = 80
"""Pixels for axis labels and the colour bar beside the axes."""
NARROWEST, LONGEST, MOST_NAMES = 300, 90, 40
"""Pixels of the narrowest box, of the longest tick label beside a heat-map in it, and the most such labels."""
BOX_INCHES = 3.6
"""Usual width of a box, which decides whether lines between groups would hide a matrix."""
LINE_HEIGHT = 270
LEGEND_ROW = 19
CLEAR = "rgba(0,0,0,0)"

Traces = list[dict[str, Any]]
Axes = tuple[dict[str, Any], dict[str, Any]]


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
    return [_box(panel) for panel in figure.panels]


def plotly_code() -> str:
    """Plotly's own script."""
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError:
        missing_extra("plotly", "figures", "Drawing an interactive figure")
    # Browsers normalise line ends before they compute the hash of a script.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


def save_interactive(figure: Figure, path: str | Path) -> Path:
    """Write a figure as one .html page that works without a network; the file appears complete or not at all."""
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(
            f"An interactive figure is written as .html; got '{target.name}'. Use save_static for pictures."
        )
    boxes = [{"title": box.title, "height": box.height or 420, **box.drawn} for box in to_boxes(figure)]
    page = Template(files("tokengeom.figures").joinpath(PAGE).read_text(encoding="utf-8")).substitute(
        title=escape(figure.title),
        caption=escape(figure.caption, quote=False),
        plotly=plotly_code(),
        boxes=_json(boxes),
        config=_json(CONFIG),
        columns=max(1, min(figure.columns, len(boxes))),
        policy=POLICY,
        font=WEB_FONT,
        text=TEXT,
        background=BACKGROUND,
    )
    require_ours(target, FIGURE_BY_US)
    replace_file(target, page.encode("utf-8"))
    return target


def _json(data: object) -> str:
    """Plain data and matrices as JSON that is safe inside a script element."""
    return json.dumps(data, default=lambda matrix: [_list(row) for row in matrix]).replace("<", "\\u003c")


def plotly_text(name: str) -> str:
    """A name as text for plotly: no part of it can become an HTML tag."""
    return escape(prepare.legible(name), quote=False)


def _box(panel: Panel) -> Box:
    axes = _axis(panel.x_label), _axis(panel.y_label)
    if isinstance(panel, HeatmapPanel):
        data, height = _heatmap(panel, axes), _heatmap_height(panel, axes)
    else:
        data = _lines(panel, axes) if isinstance(panel, LinePanel) else _scatter(panel, axes)
        rows = len(prepare.legend_labels(panel)) if isinstance(panel, LinePanel) else 1
        height = LINE_HEIGHT + LEGEND_ROW * rows
    layout = {
        "xaxis": axes[0],
        "yaxis": axes[1],
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
    if isinstance(panel, HeatmapPanel):
        whole = {"x0": 0, "x1": 1, "y0": 0, "y1": 1, "xref": "paper", "yref": "paper"}
        layout["shapes"] = [
            {"type": "rect", "fillcolor": prepare.MISSING, "line": {"width": 0}, "layer": "below", **whole}
        ]
    return Box(panel.title, {"data": data, "layout": layout}, height)


def _axis(label: str) -> dict[str, Any]:
    title = {"text": plotly_text(label), "standoff": 8, "font": {"size": prepare.LABEL_SIZE * LARGER}}
    return {
        "title": title, "automargin": True, "domain": [0, 1], "gridcolor": GRID, "zeroline": False, "linecolor": TEXT,
        "showline": True, "ticks": "outside", "ticklen": 3, "tickfont": {"size": 11},
    }  # fmt: skip


def _lines(panel: LinePanel, axes: Axes) -> Traces:
    scales = prepare.axis_scales(panel)
    for letter, axis, scale in zip("xy", axes, scales, strict=True):
        axis["type"] = scale
        if scale == "log":
            axis |= {"exponentformat": "power", "dtick": _decades([getattr(curve, letter) for curve in panel.curves])}
    ends = prepare.x_limits(panel, scales[0])
    axes[0]["range"] = np.log10(ends).tolist() if scales[0] == "log" else list(ends)
    if panel.x_names:
        names = {"tickvals": list(range(1, len(panel.x_names) + 1)), "ticktext": [*map(plotly_text, panel.x_names)]}
        axes[0].update({"tickmode": "array", **names, "showgrid": False})
    traces: Traces = []
    for curve, index in zip(panel.curves, prepare.colour_indices(panel.curves), strict=True):
        clean, shade, name = prepare.clean_curve(curve, scales), prepare.colour(index), plotly_text(curve.label)
        if clean.low is not None and clean.high is not None:
            band = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
            fill = {"fill": "tonexty", "fillcolor": _faint(shade)}
            traces += [{**band, "x": _list(clean.x), "y": _list(clean.low)}]
            traces += [{**band, **fill, "x": _list(clean.x), "y": _list(clean.high)}]
        dash = "dash" if curve.dashed else "dot" if curve.dotted else "solid"
        line = _line(name, _list(clean.x), _list(clean.y), shade, prepare.LINE * LARGER, dash)
        marked = dash == "solid" and clean.x.size <= prepare.FEW_POINTS
        line |= {"mode": "lines+markers", "marker": {"size": 4}} if marked else {}
        line["showlegend"] = bool(curve.label) and curve.in_legend
        line["hovertemplate"] = "%{text}<br>x = %{x:.6g}<br>y = %{y:.6g}<extra></extra>"
        traces.append(line)
    return [*traces, *_straight_lines(panel, scales)]


def _line(name: str, x: Sequence[Any], y: Sequence[Any], shade: str, width: float, dash: str) -> dict[str, Any]:
    style = {"color": shade, "width": width, "dash": dash}
    return {"type": "scatter", "mode": "lines", "name": name, "text": [name] * len(x), "x": x, "y": y, "line": style}


def _straight_lines(panel: LinePanel, scales: tuple[Scale, Scale]) -> Traces:
    """Named straight lines across the range of the curves."""
    xs = list(prepare.x_limits(panel, scales[0]))
    ys = list(prepare.finite_range([prepare.clean_curve(curve, scales).y for curve in panel.curves]))
    lines = [(name, xs, [v, v], v, scales[1], LEVELS[i % 2]) for i, (name, v) in enumerate(panel.levels)]
    lines += [(name, [v, v], ys, v, scales[0], MARKS[i % 2]) for i, (name, v) in enumerate(panel.marks)]
    hover = "%{text}<br>%{customdata:.6g}<extra></extra>"
    return [
        {**_line(plotly_text(name), x, y, FAINT, 1.6, dash), "customdata": [value] * 2, "hovertemplate": hover}
        for name, x, y, value, scale, dash in lines
        if np.isfinite(prepare.drawable(np.array([value]), scale)).all()
    ]


def _heatmap(panel: HeatmapPanel, axes: Axes) -> Traces:
    rows, columns = panel.values.shape
    colours = prepare.colour_range(panel)
    label = {"text": plotly_text(panel.colour_label), "side": "right", "font": {"size": 11}}
    bar = {
        "thickness": 9, "outlinewidth": 0, "tickfont": {"size": 10}, "xpad": 4, "title": label, "len": 1,
        "lenmode": "fraction", "nticks": 5,
    }  # fmt: skip
    steps = [[i / (len(colours.colours) - 1), c] for i, c in enumerate(colours.colours)]
    hover = f"{_template(panel.y_label)}: %{{y}}<br>{_template(panel.x_label)}: %{{x}}<br>%{{z:.4g}}<extra></extra>"
    heat = {
        "type": "heatmap", "z": prepare.drawn_matrix(panel), "x0": 0, "dx": 1, "y0": 0, "dy": 1, "zmin": colours.low,
        "zmax": colours.high, "colorscale": steps, "colorbar": bar, "hoverongaps": False, "hovertemplate": hover,
    }  # fmt: skip
    axes[0].update(_tick_labels(panel.x_names, columns, [-0.5, max(columns, 1) - 0.5]), tickangle=270)
    axes[1].update(_tick_labels(panel.y_names, rows, [max(rows, 1) - 0.5, -0.5]))
    return [heat, *_breaks(panel, colours.break_colour)]


def _template(label: str) -> str:
    """A label for a hover template, in which ``%{`` would otherwise insert a value."""
    return plotly_text(label).replace("%{", "%\u200b{")


def _tick_labels(names: Sequence[str], count: int, limits: list[float]) -> dict[str, Any]:
    """Names of rows or columns, which are shown on hover."""
    shown = [plotly_text(name) for name in prepare.all_names(names, count)]
    return {
        "range": limits, "tickmode": "array", "tickvals": list(range(count)), "ticktext": shown, "ticks": "",
        "tickfont": {"size": 9}, "showgrid": False,
    }  # fmt: skip


def _heatmap_height(panel: HeatmapPanel, axes: Axes) -> int | None:
    """Height of a box, which decides where names are tick labels: only where they fit a narrow box."""
    rows, columns = panel.values.shape
    down = _longest(panel.y_names) if rows <= MOST_NAMES else 0
    down = down if down <= LONGEST else 0
    fits = bool(panel.x_names) and NAME * columns + down + AROUND <= NARROWEST
    axes[0]["showticklabels"], axes[1]["showticklabels"] = fits, down > 0
    across = _longest(panel.x_names) if fits else 0
    return max(LINE_HEIGHT, NAME * rows + across + AROUND) if down or across else None


def _longest(names: Sequence[str]) -> int:
    """Length of the longest name in pixels."""
    return max((round(LETTER * len(short(name))) for name in names), default=0)


def _breaks(panel: HeatmapPanel, shade: str) -> Traces:
    """Lines between groups, as one trace."""
    rows, columns = panel.values.shape
    x: list[float | None] = []
    y: list[float | None] = []
    for index in prepare.drawn_breaks(panel.x_breaks, columns, BOX_INCHES):
        x += [index - 0.5, index - 0.5, None]
        y += [-0.5, rows - 0.5, None]
    for index in prepare.drawn_breaks(panel.y_breaks, rows, BOX_INCHES):
        x += [-0.5, columns - 0.5, None]
        y += [index - 0.5, index - 0.5, None]
    shown = {"opacity": 0.35, "hoverinfo": "skip", "showlegend": False}
    return [{**_line("", x, y, shade, 0.7, "solid"), **shown}] if x else []


def _scatter(panel: ScatterPanel, axes: Axes) -> Traces:
    """Points; in a picture with lines from the origin, which has few of them, with their names."""
    traces: Traces = []
    for points, index in zip(panel.points, prepare.colour_indices(panel.points), strict=True):
        x, y, shade = prepare.drawable(points.x), prepare.drawable(points.y), prepare.colour(index)
        if panel.from_origin:
            across, up = ([v for value in side for v in (0.0, float(value), None)] for side in (x, y))
            rays = {"hoverinfo": "skip", "showlegend": False, "opacity": 0.5}
            traces.append({**_line("", across, up, shade, 1, "solid"), **rays})
        label, white = plotly_text(points.label), {"color": "white", "width": 0.8}
        traces.append({
            "type": "scatter", "mode": "markers+text" if panel.from_origin else "markers", "textposition": "top center",
            "x": _list(x), "y": _list(y), "name": label, "showlegend": bool(points.label),
            "text": [plotly_text(name) for name in prepare.all_names(points.names, x.size)],
            "customdata": [label] * x.size,
            "marker": {"color": shade, "symbol": SYMBOLS[points.marker], "size": SIZES[points.marker], "line": white},
            "hovertemplate": "%{text}<br>%{customdata}<br>(%{x:.4g}, %{y:.4g})<extra></extra>",
        })  # fmt: skip
    for axis in axes:
        axis |= {"zeroline": panel.from_origin, "zerolinecolor": GRID, "showgrid": not panel.from_origin}
    if panel.equal:
        axes[1].update({"scaleanchor": "x", "scaleratio": 1})
    return traces


def _decades(values: Sequence[Float]) -> int:
    """Decades between labelled ticks, for at most about eight ticks."""
    low, high = prepare.finite_range([prepare.drawable(v, "log") for v in values])
    return max(1, int(np.ceil(np.log10(max(high / low, 1.0)) / 8))) if low > 0 else 1


def _faint(shade: str) -> str:
    red, green, blue = (int(shade[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def _list(values: Float) -> list[float | None]:
    """Numbers for JSON, with null in place of NaN and infinities."""
    return [float(v) if np.isfinite(v) else None for v in values]
