"""Interactive pictures (.html): any figure drawn with plotly; hovering over a cell or a point shows what it is.

Panels have the same sizes and positions as in the static picture. A saved page contains plotly's code and loads nothing
from the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.core.errors import InputError, missing_extra
from tokengeom.core.numerics import Float
from tokengeom.figures import layout, prepare
from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, Panel, Scale, ScatterPanel
from tokengeom.results.folders import FIGURE_BY_US, replace_file, require_ours

if TYPE_CHECKING:
    import plotly.graph_objects as go

LARGER = 1.4
"""Pixels on the screen per point of a font size in print."""
SYMBOLS = {"point": "circle", "star": "star", "square": "square", "cross": "x"}
SIZES = {"point": 9, "star": 15, "square": 9, "cross": 9}
LEVELS = ("dash", "longdashdot")
MARKS = ("dot", "dashdot")
PIXELS = 110
"""Pixels per inch of the layout."""
HEAD = 0.45
CONFIG = {
    "displaylogo": False,
    "typesetMath": False,
    "responsive": False,
    "plotlyServerURL": "",
    # Listed explicitly, because plotly's default buttons include one that uploads the figure.
    "modeBarButtons": [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
}
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
"""Content security policy of a saved page: nothing is loaded from outside it."""


@dataclass(frozen=True)
class Place:
    """Position of a panel's axes in a picture, in inches.

    ``number``
        The panel's index.
    ``left``, ``top``
        Left and top edge of the axes, measured from the lower left corner of the picture.
    ``width``, ``height``
        Size of the picture.
    """

    number: int
    left: float
    top: float
    width: float
    height: float

    @property
    def suffix(self) -> str:
        """What plotly appends to the names of this panel's axes."""
        return "" if self.number == 0 else str(self.number + 1)

    def domain(self, size: layout.PanelSize) -> tuple[list[float], list[float]]:
        """Extent of the axes in x and y, as shares of the picture."""
        x = [self.left / self.width, (self.left + size.width) / self.width]
        y = [(self.top - size.height) / self.height, self.top / self.height]
        return [_share(v) for v in x], [_share(v) for v in y]


def to_plotly(figure: Figure) -> go.Figure:
    """A figure as a plotly figure, without its caption."""
    placed, width, height = layout.place_panels(figure, stacked=True)
    # Wide enough for the title.
    width = max(width, 4.0, len(figure.title) * 0.62 * prepare.TITLE_SIZE * 1.25 / PIXELS) + 0.2
    height += HEAD
    drawn = empty_picture()
    drawn.update_layout(
        template="none",
        title={"text": escape(figure.title, quote=False), "x": 0.1 / width, "xanchor": "left", "y": 1 - 0.22 / height},
        title_font_size=prepare.TITLE_SIZE * 1.25,
        width=round(width * PIXELS),
        height=round(height * PIXELS),
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        font={"family": prepare.WEB_FONT, "color": prepare.TEXT, "size": 12},
        paper_bgcolor=prepare.BACKGROUND,
        plot_bgcolor=prepare.BACKGROUND,
        hovermode="closest",
        hoverlabel={"namelength": -1, "align": "left"},
    )
    for number, here in enumerate(placed):
        left, top = 0.1 + here.left + here.size.left, height - HEAD - here.top - here.size.top
        add_panel(drawn, here.panel, here.size, Place(number, left, top, width, height))
    return drawn


def empty_picture() -> go.Figure:
    """A plotly figure without any trace."""
    try:
        import plotly.graph_objects as go
    except ModuleNotFoundError:
        missing_extra("plotly", "figures", "Drawing an interactive figure")
    return go.Figure()


def save_interactive(figure: Figure, path: str | Path) -> Path:
    """Write a figure as one .html page that works without a network; the file appears complete or not at all."""
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(
            f"An interactive figure is written as .html; got '{target.name}'. Use save_static for pictures."
        )
    drawn = to_plotly(figure)
    # An id made from the content: equal figures give equal pages.
    name = f"figure-{sha256(drawn.to_json().encode()).hexdigest()[:16]}"
    page = _PAGE.format(
        title=escape(figure.title),
        caption=escape(figure.caption, quote=False),
        picture=drawn.to_html(full_html=False, include_plotlyjs=True, config=CONFIG, div_id=name),
        policy=POLICY,
        font=prepare.WEB_FONT,
        text=prepare.TEXT,
        background=prepare.BACKGROUND,
    )
    require_ours(target, FIGURE_BY_US)
    replace_file(target, page.encode("utf-8"))
    return target


def add_panel(drawn: go.Figure, panel: Panel, size: layout.PanelSize, place: Place) -> None:
    """Add a panel's traces, axes, title and legend."""
    axes = {"xaxis": f"x{place.suffix}", "yaxis": f"y{place.suffix}"}
    x, y = place.domain(size)
    title = "<br>".join(plotly_text(line) for line in layout.wrap(panel.title, size.width, prepare.PANEL_SIZE))
    drawn.add_annotation(
        text=title, x=x[0], y=y[1], xref="paper", yref="paper", xanchor="left", yanchor="bottom", align="left",
        showarrow=False, yshift=4, font_size=prepare.PANEL_SIZE * LARGER,
    )  # fmt: skip
    drawn.update_layout({f"xaxis{place.suffix}": _axis(panel.x_label, size.width, x, f"y{place.suffix}")})
    drawn.update_layout({f"yaxis{place.suffix}": _axis(panel.y_label, size.height, y, f"x{place.suffix}")})
    if isinstance(panel, HeatmapPanel):
        _add_heatmap(drawn, panel, size, place, axes)
        return
    legend = f"legend{place.suffix}"
    drawn.update_layout({legend: _legend(size, place)})
    if isinstance(panel, LinePanel):
        _add_lines(drawn, panel, place, {**axes, "legend": legend})
    else:
        _add_scatter(drawn, panel, size, place, {**axes, "legend": legend})


def plotly_text(name: str) -> str:
    """A name as text for plotly: no part of it can become an HTML tag."""
    return escape(prepare.legible(name), quote=False)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _axis(label: str, inches: float, domain: list[float], anchor: str) -> dict[str, Any]:
    return {
        "title": {
            "text": "<br>".join(plotly_text(line) for line in layout.wrap(label, inches, prepare.LABEL_SIZE)),
            "standoff": 8,
        },
        "title_font_size": prepare.LABEL_SIZE * LARGER,
        "domain": domain,
        "anchor": anchor,
        "gridcolor": prepare.GRID,
        "zeroline": False,
        "linecolor": prepare.TEXT,
        "showline": True,
        "ticks": "outside",
        "ticklen": 3,
        "tickfont_size": 11,
    }


def _legend(size: layout.PanelSize, place: Place) -> dict[str, Any]:
    return {
        "x": _share((place.left - layout.LEGEND_LEFT) / place.width),
        "y": _share((place.top - size.height - size.below) / place.height),
        "xanchor": "left",
        "yanchor": "top",
        "traceorder": "normal",
        "font_size": prepare.LABEL_SIZE * LARGER,
        "bgcolor": "rgba(0,0,0,0)",
    }


def _add_lines(drawn: go.Figure, panel: LinePanel, place: Place, where: dict[str, str]) -> None:
    scales = prepare.axis_scales(panel)
    for axis, scale in zip("xy", scales, strict=True):
        log: dict[str, Any] = {"type": scale}
        if scale == "log":
            log |= {"exponentformat": "power", "dtick": _decades([getattr(curve, axis) for curve in panel.curves])}
        drawn.update_layout({f"{axis}axis{place.suffix}": log})
    ends = prepare.x_limits(panel, scales[0])
    shown = np.log10(ends).tolist() if scales[0] == "log" else list(ends)
    drawn.update_layout({f"xaxis{place.suffix}": {"range": shown}})
    if panel.x_names:
        names = {"tickvals": list(range(1, len(panel.x_names) + 1)), "ticktext": [*map(plotly_text, panel.x_names)]}
        turn = 270 if layout.names_are_turned(panel.x_names, layout.panel_size(panel, 1).width) else 0
        drawn.update_layout(
            {f"xaxis{place.suffix}": {"tickmode": "array", **names, "showgrid": False, "tickangle": turn}}
        )
    for curve, index in zip(panel.curves, prepare.colour_indices(panel.curves), strict=True):
        clean, shade = prepare.clean_curve(curve, scales), prepare.colour(index)
        if clean.low is not None and clean.high is not None:
            band = {"mode": "lines", "line_width": 0, "hoverinfo": "skip", "showlegend": False, **where}
            drawn.add_scatter(x=_list(clean.x), y=_list(clean.low), **band)
            upper = {"fill": "tonexty", "fillcolor": _faint(shade), **band}
            drawn.add_scatter(x=_list(clean.x), y=_list(clean.high), **upper)
        dash = "dash" if curve.dashed else "dot" if curve.dotted else "solid"
        drawn.add_scatter(
            x=_list(clean.x), y=_list(clean.y), name=plotly_text(curve.label),
            mode="lines" if clean.x.size > prepare.FEW_POINTS or dash != "solid" else "lines+markers", marker_size=4,
            line={"color": shade, "width": prepare.LINE * LARGER, "dash": dash},
            text=[plotly_text(curve.label)] * clean.x.size, showlegend=bool(curve.label) and curve.in_legend,
            hovertemplate="%{text}<br>x = %{x:.6g}<br>y = %{y:.6g}<extra></extra>", **where,
        )  # fmt: skip
    _add_straight_lines(drawn, panel, scales, where)


def _add_straight_lines(drawn: go.Figure, panel: LinePanel, scales: tuple[Scale, Scale], where: dict[str, str]) -> None:
    """Named straight lines across the range of the curves."""
    clean = [prepare.clean_curve(curve, scales) for curve in panel.curves]
    xs = list(prepare.x_limits(panel, scales[0]))
    ys = list(prepare.finite_range([c.y for c in clean]))
    lines = [(name, xs, [v, v], v, scales[1], LEVELS[i % 2]) for i, (name, v) in enumerate(panel.levels)]
    lines += [(name, [v, v], ys, v, scales[0], MARKS[i % 2]) for i, (name, v) in enumerate(panel.marks)]
    for name, x, y, value, scale, dash in lines:
        if np.isfinite(prepare.drawable(np.array([value]), scale)).all():
            drawn.add_scatter(
                x=x, y=y, name=plotly_text(name), text=[plotly_text(name)] * 2, mode="lines",
                line={"color": prepare.FAINT, "width": 1.6, "dash": dash},
                customdata=[value] * 2, hovertemplate="%{text}<br>%{customdata:.6g}<extra></extra>", **where,
            )  # fmt: skip


def _add_heatmap(
    drawn: go.Figure, panel: HeatmapPanel, size: layout.PanelSize, place: Place, where: dict[str, str]
) -> None:
    rows, columns = panel.values.shape
    colours = prepare.colour_range(panel)
    x, y = place.domain(size)
    steps = [[i / (len(colours.colours) - 1), c] for i, c in enumerate(colours.colours)]
    bar = {
        "x": x[1] + 0.06 / place.width, "xanchor": "left", "xpad": 0, "y": y[0], "yanchor": "bottom", "ypad": 0,
        "len": y[1] - y[0], "lenmode": "fraction", "thickness": 12, "outlinewidth": 0.5, "tickfont_size": 10,
    }  # fmt: skip
    drawn.add_heatmap(
        z=prepare.drawn_matrix(panel).astype(np.float32), x0=0, dx=1, y0=0, dy=1, zmin=colours.low, zmax=colours.high,
        colorscale=steps, colorbar=bar, hoverongaps=False, **where,
        hovertemplate=f"{_template(panel.y_label)}: %{{y}}<br>{_template(panel.x_label)}: %{{x}}<br>"
        "%{z:.4g}<extra></extra>",
    )  # fmt: skip
    drawn.add_annotation(
        text=plotly_text(panel.colour_label), x=x[1] + 0.72 / place.width, y=(y[0] + y[1]) / 2, xref="paper",
        yref="paper", xanchor="center", yanchor="middle", textangle=-90, showarrow=False,
        font_size=prepare.LABEL_SIZE * LARGER - 1,
    )  # fmt: skip
    _add_breaks(drawn, panel, size, where)
    turn = 270 if layout.names_are_turned(panel.x_names, size.width) else 0
    drawn.update_layout(
        {
            f"xaxis{place.suffix}": _tick_labels(panel.x_names, columns, size.width, [-0.5, columns - 0.5], turn),
            f"yaxis{place.suffix}": _tick_labels(panel.y_names, rows, size.height, [rows - 0.5, -0.5], 0),
        }
    )
    drawn.add_shape(
        type="rect", x0=x[0], x1=x[1], y0=y[0], y1=y[1], xref="paper", yref="paper",
        fillcolor=prepare.MISSING, line_width=0, layer="below",
    )  # fmt: skip


def _template(label: str) -> str:
    """A label for a hover template, in which ``%{`` would otherwise insert a value."""
    return plotly_text(label).replace("%{", "%\u200b{")


def _tick_labels(names: Sequence[str], count: int, inches: float, limits: list[float], turn: int) -> dict[str, Any]:
    """Names of rows or columns: always shown on hover, and as tick labels where all of them fit."""
    shown = [plotly_text(name) for name in prepare.all_names(names, count)]
    fits = prepare.names_fit(min(len(names), count), inches)
    limits = limits if count else [-0.5, 0.5]
    return {
        "range": limits, "tickmode": "array", "tickvals": list(range(count)), "ticktext": shown,
        "showticklabels": fits, "ticks": "", "tickangle": turn, "tickfont_size": 9, "showgrid": False,
    }  # fmt: skip


def _add_breaks(drawn: go.Figure, panel: HeatmapPanel, size: layout.PanelSize, where: dict[str, str]) -> None:
    rows, columns = panel.values.shape
    x: list[float | None] = []
    y: list[float | None] = []
    for index in prepare.drawn_breaks(panel.x_breaks, columns, size.width):
        x += [index - 0.5, index - 0.5, None]
        y += [-0.5, rows - 0.5, None]
    for index in prepare.drawn_breaks(panel.y_breaks, rows, size.height):
        x += [-0.5, columns - 0.5, None]
        y += [index - 0.5, index - 0.5, None]
    if x:
        line = {"color": prepare.colour_range(panel).break_colour, "width": 0.7}
        drawn.add_scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False, **where)


def _add_scatter(
    drawn: go.Figure, panel: ScatterPanel, size: layout.PanelSize, place: Place, where: dict[str, str]
) -> None:
    names_of = layout.place_names(panel, size.width, size.height)
    for points, index, placed in zip(panel.points, prepare.colour_indices(panel.points), names_of, strict=True):
        x, y, shade = prepare.drawable(points.x), prepare.drawable(points.y), prepare.colour(index)
        names = [plotly_text(name) for name in prepare.all_names(points.names, x.size)]
        if panel.from_origin:
            rays = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "opacity": 0.5, **where}
            spokes = [[0.0, float(a), None] for a in x], [[0.0, float(b), None] for b in y]
            flat = [[v for spoke in side for v in spoke] for side in spokes]
            drawn.add_scatter(x=flat[0], y=flat[1], line={"color": shade, "width": 1}, **rays)
        _add_names(drawn, placed, shade, where)
        drawn.add_scatter(
            x=_list(x), y=_list(y), name=plotly_text(points.label), showlegend=bool(points.label),
            mode="markers", text=names, customdata=[plotly_text(points.label)] * x.size,
            marker={"color": shade, "symbol": SYMBOLS[points.marker], "size": SIZES[points.marker],
                    "line": {"color": "white", "width": 0.8}},
            hovertemplate="%{text}<br>%{customdata}<br>(%{x:.4g}, %{y:.4g})<extra></extra>", **where,
        )  # fmt: skip
    both = {"zeroline": panel.from_origin, "zerolinecolor": prepare.GRID, "showgrid": not panel.from_origin}
    limits = layout.scatter_limits(panel, size.width, size.height)
    drawn.update_layout({f"xaxis{place.suffix}": {**both, "range": list(limits[0])}})
    equal = {"scaleanchor": f"x{place.suffix}", "scaleratio": 1} if panel.equal else {}
    drawn.update_layout({f"yaxis{place.suffix}": {**both, **equal, "range": list(limits[1])}})


def _add_names(drawn: go.Figure, placed: Sequence[layout.PlacedName], shade: str, where: dict[str, str]) -> None:
    """Names beside their points, as annotations at the same distance as in the static picture."""
    notes = [
        {
            "x": name.x, "y": name.y, "xref": where["xaxis"], "yref": where["yaxis"], "text": plotly_text(name.text),
            "showarrow": False, "xshift": 8 * name.right, "yshift": 7 * name.up, "font": {"color": shade, "size": 11},
            "xanchor": ("center", "left", "right")[name.right], "yanchor": ("middle", "bottom", "top")[name.up],
        }
        for name in placed
    ]  # fmt: skip
    # All at once: plotly checks every annotation again whenever one is added.
    drawn.layout.annotations = [*drawn.layout.annotations, *notes]


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


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="tokengeom figure">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 0; padding: 12px; font-family: {font}; color: {text}; background: {background}; }}
figure {{ margin: 0; overflow-x: auto; }}
figcaption {{ max-width: 60em; margin: 8px 10px; line-height: 1.45; font-size: 14px; }}
</style>
</head>
<body>
<figure>
{picture}
<figcaption>{caption}</figcaption>
</figure>
</body>
</html>
"""
