"""Interactive pictures: any figure drawn with plotly; pointing at a cell or a point says what it is.

Positions are those of the static picture, so that both look alike. The page holds plotly's code and asks the network
for nothing.
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

from tokengeom.errors import InputError, missing_extra
from tokengeom.figures.base import Figure
from tokengeom.figures.sizes import grid_columns, grid_sizes
from tokengeom.figures.theme import BACKGROUND, TEXT, TITLE_SIZE, WEB_FONT

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
    from tokengeom.figures.interactive_panels import Place, add_panel

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
    text = to_plotly(figure).to_html(full_html=False, include_plotlyjs=plotly_code, config=CONFIG)
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
