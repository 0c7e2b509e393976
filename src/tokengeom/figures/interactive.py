"""Each kind of panel with plotly, at a place of the sheet.

Interactive pictures: any figure drawn with plotly; pointing at a cell or a point says what it is.

Positions are those of the static picture, so that both look alike. The page holds plotly's code and asks the network
for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import InputError, missing_extra
from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, Panel, Scale, ScatterPanel
from tokengeom.figures.label_places import Word, place_words, scatter_limits
from tokengeom.figures.layout import LEGEND_LEFT, PanelSize, grid_columns, grid_sizes, wrap
from tokengeom.figures.prepare import (
    axis_scales,
    clean_curve,
    colour_places,
    colour_range,
    column_names,
    drawable,
    drawn_breaks,
    drawn_matrix,
    legible,
    names_fit,
    reach,
    x_limits,
)
from tokengeom.figures.theme import (
    BACKGROUND,
    BREAK,
    FAINT,
    GRID,
    LABEL_SIZE,
    LINE,
    MISSING,
    PANEL_SIZE,
    TEXT,
    TITLE_SIZE,
    WEB_FONT,
    colour,
)

LARGER = 1.4
"""Points of the printed page to pixels of the screen."""
SYMBOLS = {"point": "circle", "star": "star", "square": "square", "cross": "x"}
SIZES = {"point": 9, "star": 15, "square": 9, "cross": 9}
FEW_POINTS = 40
LEVELS = ("dash", "longdashdot")
MARKS = ("dot", "dashdot")


@dataclass(frozen=True)
class Place:
    """Where a panel's axes begin (inches from the left, and up to the top edge) on a sheet of given inches."""

    number: int
    left: float
    top: float
    across: float
    whole: float

    @property
    def suffix(self) -> str:
        """How plotly numbers the axes of this panel."""
        return "" if self.number == 0 else str(self.number + 1)

    def domain(self, size: PanelSize) -> tuple[list[float], list[float]]:
        """Shares of the sheet that the axes take."""
        x = [self.left / self.across, (self.left + size.width) / self.across]
        y = [(self.top - size.height) / self.whole, self.top / self.whole]
        return [_share(v) for v in x], [_share(v) for v in y]


def add_panel(drawn: Any, panel: Panel, size: PanelSize, place: Place) -> None:
    """Add a panel's traces, axes, title and legend."""
    axes = {"xaxis": f"x{place.suffix}", "yaxis": f"y{place.suffix}"}
    x, y = place.domain(size)
    title = "<br>".join(text(line) for line in wrap(panel.title, size.width, PANEL_SIZE))
    drawn.add_annotation(
        text=title, x=x[0], y=y[1], xref="paper", yref="paper", xanchor="left", yanchor="bottom", align="left",
        showarrow=False, yshift=4, font_size=PANEL_SIZE * LARGER,
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


def text(name: str) -> str:
    """A name as plotly writes it: no part of it can become a tag."""
    return escape(legible(name), quote=False)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _axis(label: str, inches: float, domain: list[float], anchor: str) -> dict[str, Any]:
    return {
        "title": {"text": "<br>".join(text(line) for line in wrap(label, inches, LABEL_SIZE)), "standoff": 8},
        "title_font_size": LABEL_SIZE * LARGER,
        "domain": domain,
        "anchor": anchor,
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": TEXT,
        "showline": True,
        "ticks": "outside",
        "ticklen": 3,
        "tickfont_size": 11,
    }


def _legend(size: PanelSize, place: Place) -> dict[str, Any]:
    return {
        "x": _share((place.left - LEGEND_LEFT) / place.across),
        "y": _share((place.top - size.height - size.below) / place.whole),
        "xanchor": "left",
        "yanchor": "top",
        "traceorder": "normal",
        "font_size": LABEL_SIZE * LARGER,
        "bgcolor": "rgba(0,0,0,0)",
    }


def _add_lines(drawn: Any, panel: LinePanel, place: Place, where: dict[str, str]) -> None:
    import plotly.graph_objects as go

    scales = axis_scales(panel)
    for axis, scale in zip("xy", scales, strict=True):
        log: dict[str, Any] = {"type": scale}
        if scale == "log":
            log |= {"exponentformat": "power", "dtick": _decades([getattr(curve, axis) for curve in panel.curves])}
        drawn.update_layout({f"{axis}axis{place.suffix}": log})
    ends = x_limits(panel, scales[0])
    shown = np.log10(ends).tolist() if scales[0] == "log" else list(ends)
    drawn.update_layout({f"xaxis{place.suffix}": {"range": shown}})
    for curve, number in zip(panel.curves, colour_places(panel.curves), strict=True):
        clean, shade = clean_curve(curve, scales), colour(number)
        if clean.low is not None and clean.high is not None:
            band = {"mode": "lines", "line_width": 0, "hoverinfo": "skip", "showlegend": False, **where}
            drawn.add_trace(go.Scatter(x=_list(clean.x), y=_list(clean.low), **band))
            upper = {"fill": "tonexty", "fillcolor": _faint(shade), **band}
            drawn.add_trace(go.Scatter(x=_list(clean.x), y=_list(clean.high), **upper))
        dash = "dash" if curve.dashed else "dot" if curve.dotted else "solid"
        drawn.add_trace(
            go.Scatter(
                x=_list(clean.x), y=_list(clean.y), name=text(curve.label),
                mode="lines" if clean.x.size > FEW_POINTS or dash != "solid" else "lines+markers", marker_size=4,
                line={"color": shade, "width": LINE * LARGER, "dash": dash},
                text=[text(curve.label)] * clean.x.size, showlegend=bool(curve.label),
                hovertemplate="%{text}<br>x = %{x:.6g}<br>y = %{y:.6g}<extra></extra>", **where,
            )
        )  # fmt: skip
    _add_rules(drawn, panel, scales, where)


def _add_rules(drawn: Any, panel: LinePanel, scales: tuple[Scale, Scale], where: dict[str, str]) -> None:
    """Named straight lines across the panel, as long as the curves reach."""
    import plotly.graph_objects as go

    clean = [clean_curve(curve, scales) for curve in panel.curves]
    xs = list(x_limits(panel, scales[0]))
    ys = list(reach([c.y for c in clean]))
    rules = [(name, xs, [v, v], v, scales[1], LEVELS[i % 2]) for i, (name, v) in enumerate(panel.levels)]
    rules += [(name, [v, v], ys, v, scales[0], MARKS[i % 2]) for i, (name, v) in enumerate(panel.marks)]
    for name, x, y, value, scale, dash in rules:
        if np.isfinite(drawable(np.array([value]), scale)).all():
            drawn.add_trace(
                go.Scatter(
                    x=x, y=y, name=text(name), text=[text(name)] * 2, mode="lines",
                    line={"color": FAINT, "width": 1.6, "dash": dash},
                    customdata=[value] * 2, hovertemplate="%{text}<br>%{customdata:.6g}<extra></extra>", **where,
                )
            )  # fmt: skip


def _add_heatmap(drawn: Any, panel: HeatmapPanel, size: PanelSize, place: Place, where: dict[str, str]) -> None:
    import plotly.graph_objects as go

    rows, columns = panel.values.shape
    colours = colour_range(panel)
    x, y = place.domain(size)
    steps = [[i / (len(colours.colours) - 1), c] for i, c in enumerate(colours.colours)]
    bar = {
        "x": x[1] + 0.06 / place.across, "xanchor": "left", "xpad": 0, "y": y[0], "yanchor": "bottom", "ypad": 0,
        "len": y[1] - y[0], "lenmode": "fraction", "thickness": 12, "outlinewidth": 0.5, "tickfont_size": 10,
    }  # fmt: skip
    drawn.add_trace(
        go.Heatmap(
            z=drawn_matrix(panel).astype(np.float32), x0=0, dx=1, y0=0, dy=1, zmin=colours.low, zmax=colours.high,
            colorscale=steps, colorbar=bar, hoverongaps=False, **where,
            hovertemplate=f"{_template(panel.y_label)}: %{{y}}<br>{_template(panel.x_label)}: %{{x}}<br>"
            "%{z:.4g}<extra></extra>",
        )
    )  # fmt: skip
    drawn.add_annotation(
        text=text(panel.colour_label), x=x[1] + 0.72 / place.across, y=(y[0] + y[1]) / 2, xref="paper", yref="paper",
        xanchor="center", yanchor="middle", textangle=-90, showarrow=False, font_size=LABEL_SIZE * LARGER - 1,
    )  # fmt: skip
    _add_breaks(drawn, panel, size, where)
    drawn.update_layout(
        {
            f"xaxis{place.suffix}": _named(panel.x_names, columns, size.width, [-0.5, columns - 0.5], 270),
            f"yaxis{place.suffix}": _named(panel.y_names, rows, size.height, [rows - 0.5, -0.5], 0),
        }
    )
    drawn.add_shape(
        type="rect", x0=x[0], x1=x[1], y0=y[0], y1=y[1], xref="paper", yref="paper", fillcolor=MISSING, line_width=0,
        layer="below",
    )  # fmt: skip


def _template(label: str) -> str:
    """A label inside a hover template, where ``%{`` would ask for a value."""
    return text(label).replace("%{", "%\u200b{")


def _named(names: Sequence[str], count: int, inches: float, limits: list[float], turn: int) -> dict[str, Any]:
    """Every row or column has its name on hover; the axis shows names only where all of them fit."""
    shown = [text(name) for name in column_names(names, count)]
    fits = names_fit(min(len(names), count), inches)
    limits = limits if count else [-0.5, 0.5]
    return {
        "range": limits, "tickmode": "array", "tickvals": list(range(count)), "ticktext": shown,
        "showticklabels": fits, "ticks": "", "tickangle": turn, "tickfont_size": 9, "showgrid": False,
    }  # fmt: skip


def _add_breaks(drawn: Any, panel: HeatmapPanel, size: PanelSize, where: dict[str, str]) -> None:
    import plotly.graph_objects as go

    rows, columns = panel.values.shape
    x: list[float | None] = []
    y: list[float | None] = []
    for place in drawn_breaks(panel.x_breaks, columns, size.width):
        x += [place - 0.5, place - 0.5, None]
        y += [-0.5, rows - 0.5, None]
    for place in drawn_breaks(panel.y_breaks, rows, size.height):
        x += [-0.5, columns - 0.5, None]
        y += [place - 0.5, place - 0.5, None]
    if x:
        line = {"color": BREAK, "width": 0.7}
        drawn.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False, **where))


def _add_scatter(drawn: Any, panel: ScatterPanel, size: PanelSize, place: Place, where: dict[str, str]) -> None:
    import plotly.graph_objects as go

    words_of = place_words(panel, size.width, size.height)
    for points, number, placed in zip(panel.points, colour_places(panel.points), words_of, strict=True):
        x, y, shade = drawable(points.x), drawable(points.y), colour(number)
        words = [text(word) for word in column_names(points.words, x.size)]
        if panel.from_origin:
            rays = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "opacity": 0.5, **where}
            spokes = [[0.0, float(a), None] for a in x], [[0.0, float(b), None] for b in y]
            flat = [[v for spoke in side for v in spoke] for side in spokes]
            drawn.add_trace(go.Scatter(x=flat[0], y=flat[1], line={"color": shade, "width": 1}, **rays))
        _add_words(drawn, placed, shade, where)
        drawn.add_trace(
            go.Scatter(
                x=_list(x), y=_list(y), name=text(points.label), showlegend=bool(points.label),
                mode="markers", text=words, customdata=[text(points.label)] * x.size,
                marker={"color": shade, "symbol": SYMBOLS[points.marker], "size": SIZES[points.marker],
                        "line": {"color": "white", "width": 0.8}},
                hovertemplate="%{text}<br>%{customdata}<br>(%{x:.4g}, %{y:.4g})<extra></extra>", **where,
            )
        )  # fmt: skip
    both = {"zeroline": panel.from_origin, "zerolinecolor": GRID, "showgrid": not panel.from_origin}
    limits = scatter_limits(panel, size.width, size.height)
    drawn.update_layout({f"xaxis{place.suffix}": {**both, "range": list(limits[0])}})
    equal = {"scaleanchor": f"x{place.suffix}", "scaleratio": 1} if panel.equal else {}
    drawn.update_layout({f"yaxis{place.suffix}": {**both, **equal, "range": list(limits[1])}})


def _add_words(drawn: Any, placed: Sequence[Word], shade: str, where: dict[str, str]) -> None:
    """Words beside their points, as annotations: their distance from the point is the printed page's."""
    for word in placed:
        drawn.add_annotation(
            x=word.x, y=word.y, xref=where["xaxis"], yref=where["yaxis"], text=text(word.text), showarrow=False,
            xshift=8 * word.right, yshift=7 * word.up, font={"color": shade, "size": 11},
            xanchor=("center", "left", "right")[word.right], yanchor=("middle", "bottom", "top")[word.up],
        )  # fmt: skip


def _decades(values: Sequence[Any]) -> int:
    """Decades between labelled ticks, so that at most about eight are written."""
    low, high = reach([drawable(v, "log") for v in values])
    return max(1, int(np.ceil(np.log10(max(high / low, 1.0)) / 8))) if low > 0 else 1


def _faint(shade: str) -> str:
    red, green, blue = (int(shade[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def _list(values: Any) -> list[float | None]:
    """Numbers as JSON knows them: null where there is none."""
    return [float(v) if np.isfinite(v) else None for v in values]


PIXELS = 110
"""Pixels an inch of the layout."""
HEAD = 0.45
CONFIG = {
    "displaylogo": False,
    "typesetMath": False,
    "responsive": False,
    "plotlyServerURL": "",
    # Named one by one, because plotly's own choice holds a button that sends the figure away.
    "modeBarButtons": [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
}
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
"""What the page may load: what it holds, and nothing else."""


def to_plotly(figure: Figure) -> Any:
    """Draw a figure as a plotly figure, without its caption."""
    try:
        import plotly.graph_objects as go
    except ModuleNotFoundError:
        missing_extra("plotly", "figures", "Drawing an interactive figure")

    sizes, widths, heights = grid_sizes(figure, stacked=True)
    columns = grid_columns(figure)
    # A long title must not run over the edge.
    across = max(sum(widths), 4.0, len(figure.title) * 0.62 * TITLE_SIZE * 1.25 / PIXELS) + 0.2
    whole = sum(heights) + HEAD
    drawn = go.Figure()
    drawn.update_layout(
        template="none",
        title={"text": escape(figure.title, quote=False), "x": 0.1 / across, "xanchor": "left", "y": 1 - 0.22 / whole},
        title_font_size=TITLE_SIZE * 1.25,
        width=round(across * PIXELS),
        height=round(whole * PIXELS),
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        font={"family": WEB_FONT, "color": TEXT, "size": 12},
        paper_bgcolor=BACKGROUND,
        plot_bgcolor=BACKGROUND,
        hovermode="closest",
        hoverlabel={"namelength": -1, "align": "left"},
    )
    for number, (panel, size) in enumerate(zip(figure.panels, sizes, strict=True)):
        row, column = divmod(number, columns)
        left = 0.1 + sum(widths[:column]) + size.left
        top = whole - HEAD - sum(heights[:row]) - size.top
        add_panel(drawn, panel, size, Place(number, left, top, across, whole))
    return drawn


def to_fragment(figure: Figure, *, plotly_code: bool = False) -> str:
    """The picture as a piece of HTML; a page needs plotly's code (``plotly_code=True``) once, before its first."""
    drawn = to_plotly(figure)
    # Named after what it holds: equal figures give equal pages, and different ones can share a page.
    name = f"figure-{sha256(drawn.to_json().encode()).hexdigest()[:16]}"
    text = drawn.to_html(full_html=False, include_plotlyjs=plotly_code, config=CONFIG, div_id=name)
    return str(text)


def save_interactive(figure: Figure, path: str | Path) -> Path:
    """Write a figure as one .html page that works without a network; it appears complete or not at all."""
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(
            f"An interactive figure is written as .html; got '{target.name}'. For pictures use save_static."
        )
    text = _PAGE.format(
        title=escape(figure.title),
        caption=escape(figure.caption, quote=False),
        picture=to_fragment(figure, plotly_code=True),
        policy=POLICY,
        font=WEB_FONT,
        text=TEXT,
        background=BACKGROUND,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return target


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
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
