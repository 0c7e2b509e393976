"""Static pictures: any figure drawn with matplotlib, without a window and without global state."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from tokengeom.errors import InputError, missing_extra
from tokengeom.figures.base import Figure
from tokengeom.figures.sizes import grid_columns, grid_sizes, wrap
from tokengeom.figures.theme import BACKGROUND, CAPTION_SIZE, DOTS_PER_INCH, FONT, TEXT, TICK_SIZE, TITLE_SIZE

SUFFIXES = (".png", ".svg", ".pdf")
MARGIN = 0.12
LINE_HEIGHT = 1.35


def draw(figure: Figure, *, caption: bool = True) -> Any:
    """Draw a figure as a matplotlib figure on an Agg canvas; ``caption=False`` leaves the caption to the page."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ModuleNotFoundError:
        missing_extra("matplotlib", "figures", "Drawing a static figure")
    from tokengeom.figures.static_panels import draw_panel

    sizes, widths, heights = grid_sizes(figure)
    width = max(sum(widths), 4.0) + 2 * MARGIN
    lines = wrap(figure.caption, width - 2 * MARGIN, CAPTION_SIZE) if caption and figure.caption else []
    titles = wrap(figure.title, width - 2 * MARGIN, TITLE_SIZE)
    head, foot = _text_height(titles, TITLE_SIZE), _text_height(lines, CAPTION_SIZE)
    with matplotlib.rc_context(_settings()):
        canvas = Canvas(figsize=(width, sum(heights) + head + foot), facecolor=BACKGROUND)
        FigureCanvasAgg(canvas)
        whole = canvas.get_figheight()
        _write(canvas, titles, 1 - MARGIN / whole, TITLE_SIZE, "bold")
        _write(canvas, lines, foot / whole - MARGIN / whole, CAPTION_SIZE, "normal")
        columns = grid_columns(figure)
        for place, (panel, size) in enumerate(zip(figure.panels, sizes, strict=True)):
            row, column = divmod(place, columns)
            left = MARGIN + sum(widths[:column]) + size.left
            top = whole - head - sum(heights[:row]) - size.top
            box = (left / width, (top - size.height) / whole, size.width / width, size.height / whole)
            draw_panel(canvas, panel, size, box)
    return canvas


def save_static(figure: Figure, path: str | Path, *, caption: bool = True) -> Path:
    """Write a figure as .png, .svg or .pdf, by the name's ending; the file appears complete or not at all."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"A static figure is written as {', '.join(SUFFIXES)}; got '{target.name}'. "
            "For .html use save_interactive, for data save_data."
        )
    drawn = draw(figure, caption=caption)
    import matplotlib

    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{os.getpid()}.{target.name}")
    # Dates would make equal figures differ in their bytes.
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(target.suffix.lower(), {})
    about = {"Title": figure.title, **dated}
    try:
        with warnings.catch_warnings(), matplotlib.rc_context(_settings()):
            # A character that the font does not have is drawn as a box; the data hold it.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
            drawn.savefig(beside, format=target.suffix.lower()[1:], dpi=DOTS_PER_INCH, metadata=about)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return target


def _settings() -> dict[str, Any]:
    return {
        "font.family": FONT,
        "font.size": TICK_SIZE,
        "text.color": TEXT,
        "axes.labelcolor": TEXT,
        "xtick.color": TEXT,
        "ytick.color": TEXT,
        "axes.edgecolor": TEXT,
        "axes.linewidth": 0.7,
        "axes.unicode_minus": True,
        "svg.hashsalt": "tokengeom",
        "svg.fonttype": "path",
        "pdf.fonttype": 42,
    }


def _text_height(lines: list[str], size: float) -> float:
    return len(lines) * size * LINE_HEIGHT / 72 + 2 * MARGIN if lines else MARGIN


def _write(canvas: Any, lines: list[str], top: float, size: float, weight: str) -> None:
    if lines:
        left = MARGIN / canvas.get_figwidth()
        canvas.text(
            left, top, "\n".join(lines), fontsize=size, fontweight=weight, va="top", ha="left",
            linespacing=LINE_HEIGHT / 1.2, parse_math=False,
        )  # fmt: skip
