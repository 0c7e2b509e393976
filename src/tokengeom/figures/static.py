"""Static pictures (.png, .svg, .pdf): any figure drawn with matplotlib, without a window and without global state."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.core.errors import InputError, missing_extra
from tokengeom.core.numerics import Float
from tokengeom.figures import layout, prepare
from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel, Panel, Scale, ScatterPanel
from tokengeom.results.folders import FIGURE_BY_US, replace_file, require_ours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

MARKERS = {"point": "o", "star": "*", "square": "s", "cross": "X"}
SIZES = {"point": 36, "star": 130, "square": 32, "cross": 40}
LEVELS = ((0, (5, 2)), (0, (8, 2, 2, 2)))
MARKS = ((0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
SUFFIXES = (".png", ".svg", ".pdf")
MARGIN = 0.12
LINE_HEIGHT = 1.35
SETTINGS = {
    "font.family": prepare.FONT,
    "font.size": prepare.TICK_SIZE,
    "text.color": prepare.TEXT,
    "axes.labelcolor": prepare.TEXT,
    "xtick.color": prepare.TEXT,
    "ytick.color": prepare.TEXT,
    "axes.edgecolor": prepare.TEXT,
    "axes.linewidth": 0.7,
    "axes.unicode_minus": True,
    "svg.hashsalt": "tokengeom",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}


def draw(figure: Figure, *, caption: bool = True) -> Canvas:
    """A figure as a matplotlib figure on an Agg canvas; ``caption=False`` leaves the caption out."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ModuleNotFoundError:
        missing_extra("matplotlib", "figures", "Drawing a static figure")

    placed, width, height = layout.place_panels(figure)
    width = max(width, 4.0) + 2 * MARGIN
    lines = layout.wrap(figure.caption, width - 2 * MARGIN, prepare.CAPTION_SIZE) if caption and figure.caption else []
    titles = layout.wrap(figure.title, width - 2 * MARGIN, prepare.TITLE_SIZE)
    head, foot = _text_height(titles, prepare.TITLE_SIZE), _text_height(lines, prepare.CAPTION_SIZE)
    with matplotlib.rc_context(SETTINGS):
        canvas = Canvas(figsize=(width, height + head + foot), facecolor=prepare.BACKGROUND)
        FigureCanvasAgg(canvas)
        whole = canvas.get_figheight()
        _write(canvas, titles, 1 - MARGIN / whole, prepare.TITLE_SIZE, "bold")
        _write(canvas, lines, foot / whole - MARGIN / whole, prepare.CAPTION_SIZE, "normal")
        for here in placed:
            size = here.size
            left, top = MARGIN + here.left + size.left, whole - head - here.top - size.top
            box = (left / width, (top - size.height) / whole, size.width / width, size.height / whole)
            _draw_panel(canvas, here.panel, size, box)
    return canvas


def save_static(figure: Figure, path: str | Path, *, caption: bool = True) -> Path:
    """Write a figure as .png, .svg or .pdf, according to the suffix; the file appears complete or not at all."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"A static figure is written as {', '.join(SUFFIXES)}; got '{target.name}'. Use save_interactive for .html."
        )
    drawn = draw(figure, caption=caption)
    import matplotlib

    content = io.BytesIO()
    # A date in the file would make equal figures differ in their bytes.
    suffix, mark = target.suffix.lower(), FIGURE_BY_US.decode()
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix, {})
    about = {"Title": figure.title, "Software" if suffix == ".png" else "Creator": mark, **undated}
    with warnings.catch_warnings(), matplotlib.rc_context(SETTINGS):
        # A character that the font lacks is drawn as an empty box; the saved data have it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        drawn.savefig(content, format=target.suffix.lower()[1:], dpi=prepare.DOTS_PER_INCH, metadata=about)
    require_ours(target, FIGURE_BY_US)
    replace_file(target, content.getvalue())
    return target


def _draw_panel(canvas: Canvas, panel: Panel, size: layout.PanelSize, box: tuple[float, float, float, float]) -> None:
    """Add a panel with its axes in a box (left, bottom, width, height, as shares of the canvas)."""
    axes = canvas.add_axes(box)
    axes.set_title(
        "\n".join(layout.wrap(panel.title, size.width, prepare.PANEL_SIZE)),
        fontsize=prepare.PANEL_SIZE,
        loc="left",
        parse_math=False,
    )
    axes.tick_params(labelsize=prepare.TICK_SIZE, width=0.6, length=3)
    if isinstance(panel, HeatmapPanel):
        _draw_heatmap(canvas, axes, panel, size)
    else:
        entries = _draw_lines(axes, panel) if isinstance(panel, LinePanel) else _draw_scatter(axes, panel, size)
        axes.spines[["top", "right"]].set_visible(False)
        _legend(axes, entries, size)
    across = "\n".join(layout.wrap(panel.x_label, size.width, prepare.LABEL_SIZE))
    upwards = "\n".join(layout.wrap(panel.y_label, size.height, prepare.LABEL_SIZE))
    axes.set_xlabel(across, fontsize=prepare.LABEL_SIZE, parse_math=False)
    axes.set_ylabel(upwards, fontsize=prepare.LABEL_SIZE, parse_math=False)


def _draw_lines(axes: Axes, panel: LinePanel) -> list[tuple[str, Any]]:
    scales = prepare.axis_scales(panel)
    axes.set_xscale(scales[0])
    axes.set_yscale(scales[1])
    entries = []
    for curve, index in zip(panel.curves, prepare.colour_indices(panel.curves), strict=True):
        clean, shade = prepare.clean_curve(curve, scales), prepare.colour(index)
        style = "--" if curve.dashed else ":" if curve.dotted else "-"
        marker = "o" if clean.x.size <= prepare.FEW_POINTS and not (curve.dashed or curve.dotted) else ""
        (line,) = axes.plot(clean.x, clean.y, style, color=shade, linewidth=prepare.LINE, marker=marker, markersize=2.6)
        if clean.low is not None and clean.high is not None:
            axes.fill_between(clean.x, clean.low, clean.high, color=shade, alpha=0.18, linewidth=0)
        entries.append((curve.label if curve.in_legend else "", line))
    entries += _straight_lines(axes.axhline, panel.levels, scales[1], LEVELS)
    entries += _straight_lines(axes.axvline, panel.marks, scales[0], MARKS)
    axes.set_xlim(*prepare.x_limits(panel, scales[0]))
    for axis, scale, ends in ((axes.xaxis, scales[0], axes.get_xlim()), (axes.yaxis, scales[1], axes.get_ylim())):
        if scale == "log":
            _label_decades(axis, ends)
    if panel.x_names:
        turn = 90 if layout.names_are_turned(panel.x_names, layout.panel_size(panel, 1).width) else 0
        axes.set_xticks(
            range(1, len(panel.x_names) + 1), [prepare.legible(name) for name in panel.x_names], rotation=turn
        )
    axes.grid(True, color=prepare.GRID, linewidth=prepare.THIN)
    axes.set_axisbelow(True)
    return entries


def _label_decades(axis: Any, ends: tuple[float, float]) -> None:
    """Powers of ten on a logarithmic axis; on one of less than two decades also 2 and 5 times these."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if np.log10(ends[1] / ends[0]) >= 2.0:
        axis.set_minor_formatter(NullFormatter())
        return
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axis.set_major_formatter(plain)
    axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axis.set_minor_formatter(plain)
    axis.set_tick_params(which="minor", labelsize=prepare.TICK_SIZE)


def _straight_lines(
    line: Callable[..., Any], named: Sequence[tuple[str, float]], scale: Scale, dashes: Sequence[Any]
) -> list[tuple[str, Any]]:
    """Named straight lines across the panel, with alternating dashes."""
    entries = []
    for index, (name, value) in enumerate(named):
        if np.isfinite(prepare.drawable(np.array([value]), scale)).all():
            entries.append((name, line(value, color=prepare.FAINT, linewidth=1.1, linestyle=dashes[index % 2])))
    return entries


def _legend(axes: Axes, entries: list[tuple[str, Any]], size: layout.PanelSize) -> None:
    """Legend below the axis label, where it cannot cover a curve."""
    named = [(label, handle) for label, handle in entries if label]
    if not named:
        return
    legend = axes.legend(
        [handle for _, handle in named],
        [str(index) for index in range(len(named))],
        loc="upper left",
        bbox_to_anchor=(-layout.LEGEND_LEFT / size.width, -size.below / size.height),
        ncols=size.legend_columns,
        fontsize=prepare.LABEL_SIZE,
        frameon=False,
        borderaxespad=0.0,
        borderpad=0.0,
        labelspacing=0.35,
        columnspacing=1.2,
        handlelength=2.2,
    )
    # Set afterwards: as arguments, labels are parsed as formulas, and those that begin with an underscore are dropped.
    for text, (label, _) in zip(legend.get_texts(), named, strict=True):
        text.set_parse_math(False)
        text.set_text(prepare.legible(label))


def _draw_heatmap(canvas: Canvas, axes: Axes, panel: HeatmapPanel, size: layout.PanelSize) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = prepare.colour_range(panel)
    palette = LinearSegmentedColormap.from_list("tokengeom", list(colours.colours)).with_extremes(bad=prepare.MISSING)
    rows, columns = panel.values.shape
    values = np.ma.masked_invalid(prepare.drawn_matrix(panel))
    image = axes.imshow(
        values, cmap=palette, vmin=colours.low, vmax=colours.high, aspect="auto", interpolation="nearest"
    )
    for breaks, cells, line, inches in (
        (panel.x_breaks, columns, axes.axvline, size.width),
        (panel.y_breaks, rows, axes.axhline, size.height),
    ):
        for index in prepare.drawn_breaks(breaks, cells, inches):
            line(index - 0.5, color=colours.break_colour, linewidth=prepare.BREAK_WIDTH)
    _tick_labels(
        axes.xaxis, panel.x_names, columns, size.width, 90 if layout.names_are_turned(panel.x_names, size.width) else 0
    )
    _tick_labels(axes.yaxis, panel.y_names, rows, size.height, 0)
    _colour_bar(canvas, axes, image, panel, size)


def _colour_bar(canvas: Canvas, axes: Axes, image: Any, panel: HeatmapPanel, size: layout.PanelSize) -> None:
    box = axes.get_position()
    inch = box.width / size.width
    beside = canvas.add_axes((box.x1 + 0.07 * inch, box.y0, 0.11 * inch, box.height))
    bar = canvas.colorbar(image, cax=beside)
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=prepare.TICK_SIZE - 0.5, width=0.5, length=2)
    bar.set_label(panel.colour_label, fontsize=prepare.LABEL_SIZE - 0.5, parse_math=False)


def _tick_labels(axis: Any, names: Sequence[str], count: int, inches: float, turn: int) -> None:
    """Names as tick labels where all of them fit, none where they do not; numbers where there are no names."""
    if not names:
        from matplotlib.ticker import MaxNLocator

        axis.set_major_locator(MaxNLocator(6, integer=True))
        return
    fits = prepare.names_fit(min(len(names), count), inches)
    axis.set_ticks(range(len(names)) if fits else [])
    if not fits:
        return
    axis.set_ticklabels(
        [prepare.short(name) for name in names], fontsize=prepare.NAME_SIZE, rotation=turn, parse_math=False
    )
    axis.set_tick_params(length=0, pad=2)


def _draw_scatter(axes: Axes, panel: ScatterPanel, size: layout.PanelSize) -> list[tuple[str, Any]]:
    entries = []
    for points, index in zip(panel.points, prepare.colour_indices(panel.points), strict=True):
        x, y = prepare.drawable(points.x), prepare.drawable(points.y)
        shade = prepare.colour(index)
        if panel.from_origin:
            for a, b in zip(x, y, strict=True):
                axes.plot([0, a], [0, b], color=shade, linewidth=0.8, alpha=0.55, zorder=1)
        handle = axes.scatter(
            x, y, s=SIZES[points.marker], marker=MARKERS[points.marker], color=shade, edgecolors="white",
            linewidths=0.6, zorder=3,
        )  # fmt: skip
        _write_names(axes, x, y, points.names, shade)
        entries.append((points.label, handle))
    if panel.from_origin:
        axes.axhline(0, color=prepare.GRID, linewidth=0.8, zorder=0)
        axes.axvline(0, color=prepare.GRID, linewidth=0.8, zorder=0)
    across, upwards = layout.scatter_limits(panel, size.width, size.height)
    axes.set_xlim(*across)
    axes.set_ylim(*upwards)
    return entries


def _write_names(axes: Axes, x: Float, y: Float, names: Sequence[str], shade: str) -> None:
    """Names beside their points, on the side away from the origin."""
    for a, b, name in zip(x, y, names, strict=False):
        if np.isfinite(a) and np.isfinite(b):
            right, up = (1 if a >= 0 else -1), (1 if b >= 0 else -1)
            axes.annotate(
                prepare.short(name), (a, b), xytext=(6 * right, 5 * up), textcoords="offset points", color=shade,
                fontsize=prepare.POINT_NAME_SIZE, ha="left" if right > 0 else "right",
                va="bottom" if up > 0 else "top", parse_math=False, zorder=4,
            )  # fmt: skip


def _text_height(lines: list[str], size: float) -> float:
    return len(lines) * size * LINE_HEIGHT / 72 + 2 * MARGIN if lines else MARGIN


def _write(canvas: Canvas, lines: list[str], top: float, size: float, weight: str) -> None:
    if lines:
        left = MARGIN / canvas.get_figwidth()
        canvas.text(
            left, top, "\n".join(lines), fontsize=size, fontweight=weight, va="top", ha="left",
            linespacing=LINE_HEIGHT / 1.2, parse_math=False,
        )  # fmt: skip
