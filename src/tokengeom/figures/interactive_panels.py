"""Each kind of panel with plotly, at a place of the sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from tokengeom.figures.base import HeatmapPanel, LinePanel, Panel, Scale, ScatterPanel
from tokengeom.figures.prepare import (
    axis_scales,
    clean_curve,
    colour_places,
    colour_range,
    column_names,
    drawable,
    drawn_breaks,
    legible,
    names_fit,
)
from tokengeom.figures.sizes import LEGEND_LEFT, PanelSize, wrap
from tokengeom.figures.theme import BREAK, FAINT, GRID, LABEL_SIZE, LINE, MISSING, PANEL_SIZE, TEXT, colour

LARGER = 1.4
"""Points of the printed page to pixels of the screen."""
SYMBOLS = {"point": "circle", "star": "star", "square": "square", "cross": "x"}
SIZES = {"point": 9, "star": 15, "square": 9, "cross": 9}
FEW_POINTS = 40
RULES = ("dash", "dot", "dashdot", "longdash")


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
        _add_scatter(drawn, panel, place, {**axes, "legend": legend})


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
        "orientation": "h",
        "traceorder": "normal",
        "font_size": LABEL_SIZE * LARGER,
        "entrywidth": (LEGEND_LEFT + size.width) / size.legend_columns * 110 - 42,
        "entrywidthmode": "pixels",
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
    xs = _reach([c.x for c in clean])
    ys = _reach([c.y for c in clean])
    rules = [(name, xs, [v, v], v, scales[1]) for name, v in panel.levels]
    rules += [(name, [v, v], ys, v, scales[0]) for name, v in panel.marks]
    for number, (name, x, y, value, scale) in enumerate(rules):
        if np.isfinite(drawable(np.array([value]), scale)).all():
            drawn.add_trace(
                go.Scatter(
                    x=x, y=y, name=text(name), text=[text(name)] * 2, mode="lines",
                    line={"color": FAINT, "width": 1.6, "dash": RULES[number % 4]},
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
        "title": {"text": text(panel.colour_label), "side": "right", "font_size": LABEL_SIZE * LARGER - 1},
    }  # fmt: skip
    drawn.add_trace(
        go.Heatmap(
            z=drawable(panel.values).astype(np.float32), x0=0, dx=1, y0=0, dy=1, zmin=colours.low, zmax=colours.high,
            colorscale=steps, colorbar=bar, hoverongaps=False, **where,
            hovertemplate=f"{_template(panel.y_label)}: %{{y}}<br>{_template(panel.x_label)}: %{{x}}<br>"
            "%{z:.4g}<extra></extra>",
        )
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
    return {
        "range": limits, "tickmode": "array", "tickvals": list(range(count)), "ticktext": shown,
        "showticklabels": fits, "ticks": "", "tickangle": turn, "tickfont_size": 9, "showgrid": False,
    }  # fmt: skip


def _add_breaks(drawn: Any, panel: HeatmapPanel, size: PanelSize, where: dict[str, str]) -> None:
    import plotly.graph_objects as go

    rows, columns = panel.values.shape
    x: list[float | None] = []
    y: list[float | None] = []
    for place in drawn_breaks(panel.x_breaks, size.width):
        x += [place - 0.5, place - 0.5, None]
        y += [-0.5, rows - 0.5, None]
    for place in drawn_breaks(panel.y_breaks, size.height):
        x += [-0.5, columns - 0.5, None]
        y += [place - 0.5, place - 0.5, None]
    if x:
        line = {"color": BREAK, "width": 0.7}
        drawn.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False, **where))


def _add_scatter(drawn: Any, panel: ScatterPanel, place: Place, where: dict[str, str]) -> None:
    import plotly.graph_objects as go

    for points, number in zip(panel.points, colour_places(panel.points), strict=True):
        x, y, shade = drawable(points.x), drawable(points.y), colour(number)
        words = [text(word) for word in column_names(points.words, x.size)]
        if panel.from_origin:
            rays = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "opacity": 0.5, **where}
            spokes = [[0.0, float(a), None] for a in x], [[0.0, float(b), None] for b in y]
            flat = [[v for spoke in side for v in spoke] for side in spokes]
            drawn.add_trace(go.Scatter(x=flat[0], y=flat[1], line={"color": shade, "width": 1}, **rays))
        sides = [_side(a, b) for a, b in zip(x, y, strict=True)]
        drawn.add_trace(
            go.Scatter(
                x=_list(x), y=_list(y), name=text(points.label), showlegend=bool(points.label),
                mode="markers+text" if points.words else "markers", text=words, textposition=sides, cliponaxis=False,
                textfont={"color": shade, "size": 11}, customdata=[text(points.label)] * x.size,
                marker={"color": shade, "symbol": SYMBOLS[points.marker], "size": SIZES[points.marker],
                        "line": {"color": "white", "width": 0.8}},
                hovertemplate="%{text}<br>%{customdata}<br>(%{x:.4g}, %{y:.4g})<extra></extra>", **where,
            )
        )  # fmt: skip
    both = {"zeroline": panel.from_origin, "zerolinecolor": GRID, "showgrid": not panel.from_origin}
    limits = _scatter_limits(panel)
    drawn.update_layout({f"xaxis{place.suffix}": {**both, "range": limits[0]}})
    equal = {"scaleanchor": f"x{place.suffix}", "scaleratio": 1} if panel.equal else {}
    drawn.update_layout({f"yaxis{place.suffix}": {**both, **equal, "range": limits[1]}})


def _scatter_limits(panel: ScatterPanel) -> tuple[list[float], list[float]]:
    """Ends of the axes with room for the words, which hang outwards."""
    room = 0.3 if any(points.words for points in panel.points) else 0.08
    xs = _reach([drawable(p.x) for p in panel.points] + ([np.zeros(1)] if panel.from_origin else []))
    ys = _reach([drawable(p.y) for p in panel.points] + ([np.zeros(1)] if panel.from_origin else []))
    wide, high = (xs[1] - xs[0]) or 1.0, (ys[1] - ys[0]) or 1.0
    return [xs[0] - room * wide, xs[1] + room * wide], [ys[0] - room * high, ys[1] + room * high]


def _side(a: float, b: float) -> str:
    return f"{'top' if b >= 0 else 'bottom'} {'right' if a >= 0 else 'left'}"


def _reach(parts: Sequence[Any]) -> list[float]:
    values = np.concatenate([np.asarray(part, dtype=np.float64) for part in parts]) if parts else np.zeros(0)
    values = values[np.isfinite(values)]
    return [float(values.min()), float(values.max())] if values.size else [0.0, 1.0]


def _decades(values: Sequence[Any]) -> int:
    """Decades between labelled ticks, so that at most about eight are written."""
    low, high = _reach([drawable(v, "log") for v in values])
    return max(1, int(np.ceil(np.log10(max(high / low, 1.0)) / 8))) if low > 0 else 1


def _faint(shade: str) -> str:
    red, green, blue = (int(shade[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def _list(values: Any) -> list[float | None]:
    """Numbers as JSON knows them: null where there is none."""
    return [float(v) if np.isfinite(v) else None for v in values]
