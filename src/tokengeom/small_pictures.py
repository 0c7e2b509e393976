"""Small pictures that results show beside their tables in a notebook: inline SVG without scripts, ids or files.

Lines and text have the colour of the notebook's own text (``currentColor``), so that they can be read on a light and on
a dark background. A picture is always whole: values that are not finite are left out, and names are cut, escaped and
without control characters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar
from unicodedata import east_asian_width

T = TypeVar("T")

WIDTH = 330
"""Width of a picture in pixels."""
FONT = 10
LABEL = 128
"""Pixels for the names on the left."""
ROW = 17
ABOVE, RIGHT = 22, 56
"""Pixels above the plot, for the title, and on the right of it, for numbers."""
PLOT = 84
"""Height of a plot with two axes."""
MOST_ROWS = 12
"""Bars, scales or ranges in one picture; the rest is counted."""
MOST_COLUMNS = 60
MOST_CELLS = 24
POSITIVE, NEGATIVE = "rgb(70,130,190)", "rgb(225,120,40)"
"""Colours of positive and negative cosines, which can be seen on light and on dark."""
_NOT_SHOWN = re.compile("[^ -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Scaled:
    """A number on its scale: an interval, what chance gives (floor) and the best that is expected (ceiling); or NaN."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    floor: float = math.nan
    ceiling: float = math.nan


@dataclass(frozen=True)
class Ranged:
    """A number, the range that it must lie in (None for an open end), and whether it does."""

    name: str
    value: float
    low: float | None
    high: float | None
    passed: bool


def side_by_side(*pictures: str | None) -> str | None:
    """Several pictures as one; None where there is none."""
    found = [one for one in pictures if one]
    return "".join(found) or None


def bars(title: str, rows: Iterable[tuple[str, float]], *, marked: Sequence[str] = (), log: bool = False) -> str:
    """Horizontal bars from 0, one per name, with their values.

    Bars of ``marked`` names are darker, and those of negative values hollow. With ``log`` the length is
    ``log10(1 + value)``.
    """
    kept, more = _cut(list(rows))
    sizes = [_length(value, log) for _, value in kept]
    most = max((abs(size) for size in sizes), default=0.0) or 1.0
    space, parts = WIDTH - LABEL - RIGHT, []
    for k, ((name, value), size) in enumerate(zip(kept, sizes, strict=True)):
        top = ABOVE + k * ROW
        parts.append(_name(name, top))
        fill = f'fill="currentColor" fill-opacity="{0.85 if name in marked else 0.4}"'
        if value < 0:
            fill = 'fill="none" stroke="currentColor" stroke-opacity="0.7"'
        width = abs(size) / most * space
        parts.append(f'<rect x="{LABEL}" y="{_at(top + 2)}" width="{_at(width)}" height="{ROW - 5}" {fill}/>')
        parts.append(_text(LABEL + width + 4, top + 11, _short(value)))
    return _picture(title, ABOVE + len(kept) * ROW, parts, more)


def columns(title: str, values: Sequence[float], labels: Sequence[str] = (), *, below: str = "") -> str:
    """Vertical columns from 0, such as a histogram or singular values.

    ``labels``
        One per column, of which the first, the last and those in between that fit are shown; numbers 1, 2, ... without.
    ``below``
        What the columns are.
    """
    kept = [value if math.isfinite(value) else 0.0 for value in values[:MOST_COLUMNS]]
    more = len(values) - len(kept)
    most = max((abs(value) for value in kept), default=0.0) or 1.0
    left, space = 34, WIDTH - 34 - 8
    step, bottom = space / max(len(kept), 1), ABOVE + PLOT
    parts = [_axis(left, bottom, WIDTH - 8), _text(left - 4, ABOVE + 8, _short(most), "end")]
    parts.append(_text(left - 4, bottom, "0", "end"))
    every = max(1, math.ceil(len(kept) / max(1, space // 34)))
    for k, value in enumerate(kept):
        height, x = abs(value) / most * PLOT, left + k * step
        parts.append(
            f'<rect x="{_at(x + 0.1 * step)}" y="{_at(bottom - height)}" width="{_at(0.8 * step)}" '
            f'height="{_at(height)}" fill="currentColor" fill-opacity="0.55"/>'
        )
        if k % every == 0:
            parts.append(_text(x + step / 2, bottom + 12, labels[k] if labels else str(k + 1), "middle", 6))
    if below:
        parts.append(_text(left + space / 2, bottom + 25, below, "middle", 44))
    return _picture(title, bottom + (28 if below else 14), parts, more)


def line(
    title: str,
    x: Sequence[float],
    curves: Iterable[tuple[str, Sequence[float]]],
    *,
    log: bool = False,
    below: str = "",
) -> str:
    """Curves over ``x``, each with its name where there are several; with ``log``, y is on a logarithmic scale."""
    named = [(name, _points(x, y, log)) for name, y in curves]
    everything = [point for _, points in named for point in points]
    if not everything:
        return note(title, "No finite numbers to draw.")
    (x0, x1), (y0, y1) = ((min(part), max(part)) for part in zip(*everything, strict=True))
    left, bottom = 44, ABOVE + PLOT
    reach_x, reach_y = WIDTH - 12 - left, PLOT - 6
    parts = [_axis(left, bottom, WIDTH - 8)]
    for end, height in ((y1, ABOVE + 8), (y0, bottom)):
        parts.append(_text(left - 4, height, _short(10.0 ** min(end, 308.0) if log else end), "end"))
    for end, place, anchor in ((x0, left, "start"), (x1, WIDTH - 8, "end")):
        parts.append(_text(place, bottom + 12, _short(end), anchor))
    dashes = ("", "6 3", "2 2", "8 3 2 3")
    for k, (name, points) in enumerate(named):
        drawn = [(left + _share(a, x0, x1) * reach_x, bottom - 2 - _share(b, y0, y1) * reach_y) for a, b in points]
        path = " ".join(f"{_at(a)},{_at(b)}" for a, b in drawn)
        dash = f' stroke-dasharray="{dashes[k % len(dashes)]}"' if dashes[k % len(dashes)] else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="currentColor" stroke-width="1.5"{dash}/>')
        parts += [f'<circle cx="{_at(a)}" cy="{_at(b)}" r="2" fill="currentColor"/>' for a, b in drawn[:1] + drawn[-1:]]
        if len(named) > 1:
            top = bottom + 28 + k * 13
            parts.append(
                f'<line x1="{left}" y1="{top - 3}" x2="{left + 24}" y2="{top - 3}" stroke="currentColor" '
                f'stroke-width="1.5"{dash}/>'
            )
            parts.append(_text(left + 30, top, name, space=38))
    parts.append(_text((left + WIDTH) / 2, bottom + 12, below, "middle", 20))
    return _picture(title, bottom + 16 + (13 * len(named) if len(named) > 1 else 0), parts)


def scale(title: str, rows: Sequence[Scaled]) -> str:
    """Numbers up to 1 on their scales: a dot with its interval, a bar from floor to ceiling."""
    kept, more = _cut(list(rows))
    space = WIDTH - LABEL - RIGHT
    ends = [x for row in kept for x in (row.value, row.low, row.floor) if math.isfinite(x)]
    begin = math.floor(10 * max(-1.0, min([0.0, *ends]))) / 10

    def place(value: float) -> float:
        return LABEL + _share(value, begin, 1.0) * space

    parts = []
    for k, row in enumerate(kept):
        top = ABOVE + k * ROW
        middle = top + ROW / 2 - 1
        parts.append(_name(row.name, top))
        parts.append(_rule(place(begin), place(1.0), middle, 1, 0.35))
        if math.isfinite(row.floor):
            end = row.ceiling if math.isfinite(row.ceiling) else 1.0
            parts.append(_rule(place(row.floor), place(end), middle, 7, 0.25))
        if math.isfinite(row.low) and math.isfinite(row.high):
            parts.append(_rule(place(row.low), place(row.high), middle, 2, 0.9))
        if math.isfinite(row.value):
            parts.append(f'<circle cx="{_at(place(row.value))}" cy="{_at(middle)}" r="4" fill="currentColor"/>')
        parts.append(_text(WIDTH - RIGHT + 6, top + 11, _short(row.value)))
    bottom = ABOVE + len(kept) * ROW
    parts.append(_text(place(begin), bottom + 10, _short(begin), "middle"))
    parts.append(_text(place(1.0), bottom + 10, "1", "middle"))
    if any(math.isfinite(row.floor) for row in kept):
        band = "floor to ceiling" if any(math.isfinite(row.ceiling) for row in kept) else "above the floor"
        parts.append(_text((LABEL + WIDTH - RIGHT) / 2, bottom + 10, f"band: {band}", "middle", 30))
    return _picture(title, bottom + 14, parts, more)


def ranges(title: str, rows: Sequence[Ranged]) -> str:
    """Numbers in the ranges that they must lie in: the range is the band, the number the dot; failures first."""
    kept, more = _cut(sorted(rows, key=lambda row: row.passed))
    parts, space = [], WIDTH - LABEL - RIGHT
    for k, row in enumerate(kept):
        top = ABOVE + k * ROW
        middle = top + ROW / 2 - 1
        begin, low, high, end, dot = _range_places(row)
        parts.append(_name(row.name, top))
        parts.append(_rule(LABEL, LABEL + space, middle, 1, 0.35))
        left, right = (LABEL + _share(x, begin, end) * space for x in (low, high))
        parts.append(_rule(left, right, middle, 7, 0.3))
        hollow = 'fill="currentColor"' if row.passed else 'fill="none" stroke="currentColor" stroke-width="2"'
        if math.isfinite(dot):
            parts.append(
                f'<circle cx="{_at(LABEL + _share(dot, begin, end) * space)}" cy="{_at(middle)}" r="4" {hollow}/>'
            )
        parts.append(_text(WIDTH - RIGHT + 6, top + 11, _short(row.value)))
    parts.append(_text(LABEL, ABOVE + len(kept) * ROW + 10, "band: allowed; hollow: failed", space=34))
    return _picture(title, ABOVE + len(kept) * ROW + 14, parts, more)


def heatmap(title: str, names: Sequence[str], values: Sequence[Sequence[float]]) -> str:
    """A square matrix of numbers in [-1, 1] with one name per row; colour is the sign, opacity the size."""
    shown = min(len(names), MOST_CELLS)
    if not shown:
        return note(title, "Nothing to draw.")
    cell = max(7.0, min(14.0, (WIDTH - LABEL) / shown))
    every = max(1, math.ceil(11 / cell))
    parts = []
    for i in range(shown):
        y = ABOVE + i * cell
        if i % every == 0:
            parts.append(_text(LABEL - 5, y + cell / 2 + 3.5, names[i], "end", 22))
        for j in range(shown):
            value = float(values[i][j])
            if math.isfinite(value) and abs(value) >= 0.01:
                parts.append(
                    f'<rect x="{_at(LABEL + j * cell)}" y="{_at(y)}" width="{_at(cell)}" height="{_at(cell)}" '
                    f'fill="{POSITIVE if value > 0 else NEGATIVE}" fill-opacity="{min(abs(value), 1.0):.2f}"/>'
                )
    side = shown * cell
    parts.append(
        f'<rect x="{LABEL}" y="{ABOVE}" width="{_at(side)}" height="{_at(side)}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.4"/>'
    )
    parts.append(_text(LABEL, ABOVE + side + 12, "blue: cosine > 0, orange: < 0", space=36))
    return _picture(title, ABOVE + side + 16, parts, len(names) - shown, "most frequent shown")


def note(title: str, sentence: str) -> str:
    """A title with a sentence, where there is nothing to draw."""
    return _picture(title, ABOVE + 16, [_text(0, ABOVE + 8, sentence, space=52)])


def _picture(title: str, height: float, parts: Iterable[str], more: int = 0, why: str = "") -> str:
    """The whole picture, with its title above and, where something is not shown, how much below."""
    left = [_text(0, height + 11, f"{more:,} more {why or 'not shown'}".strip(), space=50)] if more else []
    whole = height + (15 if more else 0)
    head = f'<text x="0" y="12" font-weight="bold" fill="currentColor">{_shown(title, 54)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="{_at(whole)}" '
        f'viewBox="0 0 {WIDTH} {_at(whole)}" font-size="{FONT}" font-family="sans-serif" '
        f'style="max-width:100%;color:inherit"><title>{_shown(title, 200)}</title>'
        f"{head}{''.join(parts)}{''.join(left)}</svg>"
    )


def _cut(rows: list[T]) -> tuple[list[T], int]:
    """The rows that are shown, and how many are not."""
    return rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS)


def _length(value: float, log: bool) -> float:
    if not math.isfinite(value):
        return 0.0
    return math.log10(1.0 + max(value, 0.0)) if log else value


def _points(x: Sequence[float], y: Sequence[float], log: bool) -> list[tuple[float, float]]:
    """The points that can be drawn, with log10 of y where asked."""
    pairs = ((float(a), float(b)) for a, b in zip(x, y, strict=False))
    known = [(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b) and (b > 0 or not log)]
    return [(a, math.log10(b)) for a, b in known] if log else known


def _range_places(row: Ranged) -> tuple[float, float, float, float, float]:
    """Ends of the axis, of the range and the place of the number, which stays on the axis."""
    low, high = (end if end is not None and math.isfinite(end) else None for end in (row.low, row.high))
    value = row.value if math.isfinite(row.value) else math.nan
    known = [x for x in (low, high, value) if x is not None and math.isfinite(x)] or [0.0]
    inner = (max(known) - min(known)) or abs(known[0]) or 1.0
    if low is not None and high is not None:
        inner = (high - low) or abs(low) or 1.0
        begin, end = low - 0.4 * inner, high + 0.4 * inner
    else:
        begin, end = min(known) - 0.2 * inner, max(known) + 0.2 * inner
    dot = min(max(value, begin), end) if math.isfinite(value) else math.nan
    return begin, begin if low is None else low, end if high is None else high, end, dot


def _share(value: float, begin: float, end: float) -> float:
    """Place of a value between two ends, in [0, 1]; the middle where they are equal."""
    reach = end - begin
    found = (value - begin) / reach if reach > 0 and math.isfinite(reach) else 0.5
    return min(max(found, 0.0), 1.0) if math.isfinite(found) else 0.5


def _axis(left: float, bottom: float, right: float) -> str:
    return _rule(left, right, bottom, 1, 0.5)


def _rule(x1: float, x2: float, y: float, thick: float, opacity: float) -> str:
    """A horizontal line."""
    return (
        f'<line x1="{_at(x1)}" y1="{_at(y)}" x2="{_at(x2)}" y2="{_at(y)}" stroke="currentColor" '
        f'stroke-width="{thick:g}" stroke-opacity="{opacity:g}"/>'
    )


def _name(name: str, top: float) -> str:
    return _text(LABEL - 5, top + 11, name, "end", 22)


def _text(x: float, y: float, text: str, anchor: str = "start", space: int = 60) -> str:
    """A text that is cut after ``space`` characters of usual width."""
    place = f'x="{_at(x)}" y="{_at(y)}" text-anchor="{anchor}" fill="currentColor"'
    return f"<text {place}>{_shown(text, space)}</text>" if text else ""


def _shown(text: str, space: int) -> str:
    """A text that is cut, without control characters, and escaped."""
    plain = _NOT_SHOWN.sub("\ufffd", re.sub(r"\s", " ", text))
    used, kept = 0, ""
    for character in plain:
        used += 2 if east_asian_width(character) in "WF" else 1
        if used > space:
            kept = f"{kept[:-1]}\u2026"
            break
        kept += character
    return escape(kept)


def _short(value: float) -> str:
    """A number with three digits; with an exponent, two."""
    if not math.isfinite(value):
        return "-"
    found = f"{value:.3g}"
    return re.sub(r"e([+-])0*", lambda sign: f"e{sign[1].strip('+')}", f"{value:.2g}") if "e" in found else found


def _at(value: float) -> str:
    """A coordinate with one decimal."""
    return f"{value:.1f}".removesuffix(".0")
