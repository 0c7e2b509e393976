"""Where the words beside points go: eight places around each, the one that covers least.

Shared by the renderers, in inches of the axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom.figures.base import ScatterPanel
from tokengeom.figures.prepare import drawable, reach, short
from tokengeom.figures.theme import TICK_SIZE

WORD_SIZE = TICK_SIZE + 0.5
LONGEST = 34
"""Characters of the words beside a point; longer ones are cut in their middle."""
AWAY = 0.08
"""Inches between a point and its word."""
DOT = 0.09
SIDES = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))

Limits = tuple[float, float]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Word:
    """A word beside a point; ``right`` and ``up`` are -1, 0 or 1: the side of the point on which it stands."""

    text: str
    x: float
    y: float
    right: int
    up: int


def scatter_limits(panel: ScatterPanel, width: float, height: float) -> tuple[Limits, Limits]:
    """Ends of both axes, with room for every word beside its point; one scale for both where angles must stay true."""
    x, y = _reaches(panel)
    unit = _unit(panel, width)
    if panel.equal:
        unit = max(unit, (y[1] - y[0]) / max(height - 0.7, 0.5))
        return _around(_with_words(panel, x, unit), unit * width), _around(y, unit * height)
    high = (y[1] - y[0]) / max(height - 0.7, 0.5) or 1.0 / height
    return _around(_with_words(panel, x, unit), unit * width), _around(y, high * height)


def fitting_height(panel: ScatterPanel, width: float, least: float, most: float) -> float:
    """Height of axes with equal scales that leaves little of them empty."""
    _, y = _reaches(panel)
    return float(np.clip((y[1] - y[0]) / _unit(panel, width) + 0.7, least, most))


def place_words(panel: ScatterPanel, width: float, height: float) -> list[list[Word]]:
    """Each kind's words with the side on which each stands; those of undrawable points are left out."""
    across, upwards = scatter_limits(panel, width, height)
    scale = width / (across[1] - across[0]), height / (upwards[1] - upwards[0])
    dots = [
        _dot(a * scale[0], b * scale[1])
        for points in panel.points
        for a, b in zip(points.x, points.y, strict=True)
        if np.isfinite(a) and np.isfinite(b)
    ]
    taken: list[Box] = []
    placed = []
    for points in panel.points:
        kind = []
        for a, b, word in zip(points.x, points.y, points.words, strict=False):
            if np.isfinite(a) and np.isfinite(b):
                shown = short(word, LONGEST)
                right, up, box = _best(float(a), float(b), scale, shown, [*dots, *taken])
                taken.append(box)
                kind.append(Word(shown, float(a), float(b), right, up))
        placed.append(kind)
    return placed


def word_width(word: str) -> float:
    """Inches that a word takes."""
    return len(word) * 0.57 * WORD_SIZE / 72


def _best(a: float, b: float, scale: tuple[float, float], word: str, others: Sequence[Box]) -> tuple[int, int, Box]:
    """The place that covers least; among equals the one that looks away from the origin."""
    outward = (1 if a >= 0 else -1), (1 if b >= 0 else -1)
    sides = sorted(SIDES, key=lambda side: (side != outward, side[0] != outward[0]))
    boxes = [_box(a * scale[0], b * scale[1], word, side) for side in sides]
    covered = [sum(_overlap(box, other) for other in others) for box in boxes]
    best = int(np.argmin(np.round(covered, 4)))
    return *sides[best], boxes[best]


def _box(x: float, y: float, word: str, side: tuple[int, int]) -> Box:
    wide, high = word_width(word), 1.2 * WORD_SIZE / 72
    left = x + AWAY if side[0] > 0 else x - AWAY - wide if side[0] < 0 else x - wide / 2
    bottom = y + AWAY if side[1] > 0 else y - AWAY - high if side[1] < 0 else y - high / 2
    return left, bottom, left + wide, bottom + high


def _dot(x: float, y: float) -> Box:
    return x - DOT, y - DOT, x + DOT, y + DOT


def _overlap(one: Box, other: Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0.0) * max(high, 0.0)


def _reaches(panel: ScatterPanel) -> tuple[Limits, Limits]:
    zero = [np.zeros(1)] if panel.from_origin else []
    x = reach([drawable(points.x) for points in panel.points] + zero)
    y = reach([drawable(points.y) for points in panel.points] + zero)
    return x, y


def _unit(panel: ScatterPanel, width: float) -> float:
    """Data units an inch at which points and words fit across: a larger unit makes words longer in it, so iterate."""
    x, _ = _reaches(panel)
    unit = (x[1] - x[0]) / width or 1.0 / width
    for _ in range(30):
        ends = _with_words(panel, x, unit)
        unit = max(unit, (ends[1] - ends[0]) / width)
    return unit


def _with_words(panel: ScatterPanel, x: Limits, unit: float) -> Limits:
    ends = [x[0] - 0.15 * unit, x[1] + 0.15 * unit]
    for points in panel.points:
        for a, word in zip(drawable(points.x), points.words, strict=False):
            if np.isfinite(a):
                ends.append(a + (1 if a >= 0 else -1) * (word_width(short(word, LONGEST)) + AWAY + 0.08) * unit)
    return min(ends), max(ends)


def _around(ends: Limits, length: float) -> Limits:
    middle = 0.5 * (ends[0] + ends[1])
    return middle - 0.5 * length, middle + 0.5 * length
