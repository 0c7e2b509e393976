"""Each kind of panel with matplotlib, in a box of given inches.

Static pictures: any figure drawn with matplotlib, without a window and without global state.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.errors import InputError, missing_extra
from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, Panel, ScatterPanel
from tokengeom.figures.label_places import WORD_SIZE, Word, place_words, scatter_limits
from tokengeom.figures.layout import LEGEND_LEFT, PanelSize, grid_columns, grid_sizes, wrap
from tokengeom.figures.prepare import (
    axis_scales,
    clean_curve,
    colour_places,
    colour_range,
    drawable,
    drawn_breaks,
    drawn_matrix,
    legible,
    names_fit,
    short,
    x_limits,
)
from tokengeom.figures.theme import (
    BACKGROUND,
    BREAK,
    BREAK_WIDTH,
    CAPTION_SIZE,
    DOTS_PER_INCH,
    FAINT,
    FONT,
    GRID,
    LABEL_SIZE,
    LINE,
    MISSING,
    NAME_SIZE,
    PANEL_SIZE,
    TEXT,
    THIN,
    TICK_SIZE,
    TITLE_SIZE,
    colour,
)

MARKERS = {"point": "o", "star": "*", "square": "s", "cross": "X"}
SIZES = {"point": 36, "star": 130, "square": 32, "cross": 40}
LEVELS = ((0, (5, 2)), (0, (8, 2, 2, 2)))
MARKS = ((0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
FEW_POINTS = 40


def draw_panel(canvas: Any, panel: Panel, size: PanelSize, box: tuple[float, float, float, float]) -> None:
    """Add a panel's axes at a box (left, bottom, width, height, as shares of the canvas)."""
    axes = canvas.add_axes(box)
    axes.set_title(
        "\n".join(wrap(panel.title, size.width, PANEL_SIZE)), fontsize=PANEL_SIZE, loc="left", parse_math=False
    )
    axes.tick_params(labelsize=TICK_SIZE, width=0.6, length=3)
    if isinstance(panel, HeatmapPanel):
        _draw_heatmap(canvas, axes, panel, size)
    elif isinstance(panel, LinePanel):
        _legend(axes, _draw_lines(axes, panel), size)
    else:
        _legend(axes, _draw_scatter(axes, panel, size), size)
    across = "\n".join(wrap(panel.x_label, size.width, LABEL_SIZE))
    upwards = "\n".join(wrap(panel.y_label, size.height, LABEL_SIZE))
    axes.set_xlabel(across, fontsize=LABEL_SIZE, parse_math=False)
    axes.set_ylabel(upwards, fontsize=LABEL_SIZE, parse_math=False)


def _draw_lines(axes: Any, panel: LinePanel) -> list[tuple[str, Any]]:
    scales = axis_scales(panel)
    axes.set_xscale(scales[0])
    axes.set_yscale(scales[1])
    entries = []
    for curve, place in zip(panel.curves, colour_places(panel.curves), strict=True):
        clean, shade = clean_curve(curve, scales), colour(place)
        style = "--" if curve.dashed else ":" if curve.dotted else "-"
        marker = "o" if clean.x.size <= FEW_POINTS and not (curve.dashed or curve.dotted) else ""
        (line,) = axes.plot(clean.x, clean.y, style, color=shade, linewidth=LINE, marker=marker, markersize=2.6)
        if clean.low is not None and clean.high is not None:
            axes.fill_between(clean.x, clean.low, clean.high, color=shade, alpha=0.18, linewidth=0)
        entries.append((curve.label, line))
    entries += _rules(axes.axhline, panel.levels, scales[1], LEVELS)
    entries += _rules(axes.axvline, panel.marks, scales[0], MARKS)
    axes.set_xlim(*x_limits(panel, scales[0]))
    axes.grid(True, color=GRID, linewidth=THIN)
    axes.set_axisbelow(True)
    _frame(axes)
    return entries


def _rules(rule: Any, named: Sequence[tuple[str, float]], scale: Any, dashes: Any) -> list[tuple[str, Any]]:
    """Named straight lines, each kind dashed in its own way."""
    entries = []
    for place, (name, value) in enumerate(named):
        if np.isfinite(drawable(np.array([value]), scale)).all():
            entries.append((name, rule(value, color=FAINT, linewidth=1.1, linestyle=dashes[place % 2])))
    return entries


def _frame(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: Any, entries: list[tuple[str, Any]], size: PanelSize) -> None:
    """Legend under the axes and their label, where it can cover no curve."""
    named = [(label, handle) for label, handle in entries if label]
    if not named:
        return
    legend = axes.legend(
        [handle for _, handle in named],
        [str(place) for place in range(len(named))],
        loc="upper left",
        bbox_to_anchor=(-LEGEND_LEFT / size.width, -size.below / size.height),
        ncols=size.legend_columns,
        fontsize=LABEL_SIZE,
        frameon=False,
        borderaxespad=0.0,
        borderpad=0.0,
        labelspacing=0.35,
        columnspacing=1.2,
        handlelength=2.2,
    )
    # A label is text, never a formula, and may begin with an underscore.
    for text, (label, _) in zip(legend.get_texts(), named, strict=True):
        text.set_parse_math(False)
        text.set_text(legible(label))


def _draw_heatmap(canvas: Any, axes: Any, panel: HeatmapPanel, size: PanelSize) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = colour_range(panel)
    palette = LinearSegmentedColormap.from_list("tokengeom", list(colours.colours)).with_extremes(bad=MISSING)
    rows, columns = panel.values.shape
    values = np.ma.masked_invalid(drawn_matrix(panel))
    image = axes.imshow(
        values, cmap=palette, vmin=colours.low, vmax=colours.high, aspect="auto", interpolation="nearest"
    )
    for breaks, cells, rule, inches in (
        (panel.x_breaks, columns, axes.axvline, size.width),
        (panel.y_breaks, rows, axes.axhline, size.height),
    ):
        for place in drawn_breaks(breaks, cells, inches):
            rule(place - 0.5, color=BREAK, linewidth=BREAK_WIDTH)
    _names(axes.xaxis, panel.x_names, columns, size.width, 90)
    _names(axes.yaxis, panel.y_names, rows, size.height, 0)
    _colour_bar(canvas, axes, image, panel, size)


def _colour_bar(canvas: Any, axes: Any, image: Any, panel: HeatmapPanel, size: PanelSize) -> None:
    box = axes.get_position()
    inch = box.width / size.width
    beside = canvas.add_axes((box.x1 + 0.07 * inch, box.y0, 0.11 * inch, box.height))
    bar = canvas.colorbar(image, cax=beside)
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=TICK_SIZE - 0.5, width=0.5, length=2)
    bar.set_label(panel.colour_label, fontsize=LABEL_SIZE - 0.5, parse_math=False)


def _names(axis: Any, names: Sequence[str], count: int, inches: float, turn: int) -> None:
    """Ticks with names where all of them fit, with nothing where they do not, with numbers where there are none."""
    if not names:
        from matplotlib.ticker import MaxNLocator

        axis.set_major_locator(MaxNLocator(6, integer=True))
        return
    fits = names_fit(min(len(names), count), inches)
    axis.set_ticks(range(len(names)) if fits else [])
    if not fits:
        return
    axis.set_ticklabels([short(name) for name in names], fontsize=NAME_SIZE, rotation=turn, parse_math=False)
    axis.set_tick_params(length=0, pad=2)


def _draw_scatter(axes: Any, panel: ScatterPanel, size: PanelSize) -> list[tuple[str, Any]]:
    entries = []
    words = place_words(panel, size.width, size.height)
    for points, place, placed in zip(panel.points, colour_places(panel.points), words, strict=True):
        x, y = drawable(points.x), drawable(points.y)
        shade = colour(place)
        if panel.from_origin:
            for a, b in zip(x, y, strict=True):
                axes.plot([0, a], [0, b], color=shade, linewidth=0.8, alpha=0.55, zorder=1)
        handle = axes.scatter(
            x, y, s=SIZES[points.marker], marker=MARKERS[points.marker], color=shade, edgecolors="white",
            linewidths=0.6, zorder=3,
        )  # fmt: skip
        _words(axes, placed, shade)
        entries.append((points.label, handle))
    if panel.from_origin:
        axes.axhline(0, color=GRID, linewidth=0.8, zorder=0)
        axes.axvline(0, color=GRID, linewidth=0.8, zorder=0)
    across, upwards = scatter_limits(panel, size.width, size.height)
    axes.set_xlim(*across)
    axes.set_ylim(*upwards)
    _frame(axes)
    return entries


def _words(axes: Any, placed: Sequence[Word], shade: str) -> None:
    for word in placed:
        axes.annotate(
            word.text, (word.x, word.y), xytext=(6 * word.right, 5 * word.up), textcoords="offset points", color=shade,
            fontsize=WORD_SIZE, ha=("center", "left", "right")[word.right], va=("center", "bottom", "top")[word.up],
            parse_math=False, zorder=4,
        )  # fmt: skip


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
