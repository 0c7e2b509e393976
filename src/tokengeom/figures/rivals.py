"""Rival explanations side by side: how well each gives a run's cosines, with its interval and chance."""

from __future__ import annotations

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, LinePanel
from tokengeom.geometry.rival_table import RivalRow, Rivals
from tokengeom.numerics import Float


def rival_bars(table: Rivals) -> Figure:
    """Draw a panel for each kind of items: every rival's SIM with its interval, the best on the left."""
    if not table.rows:
        raise InputError("A figure of rivals needs at least one row; got none. Pass what rivals(stats, run) returned.")
    names = sorted({row.rival for row in table.rows})
    panels = [_panel(items, table.of(items), names) for items in table.items]
    told = [f"{items}: {row.rival}, {row.similarity.value:.3f}" for items, row in table.best.items()]
    silent = sorted({row.rival for row in table.rows if row.without_direction})
    quiet = f" Of some items {', '.join(silent)} says nothing; they count as like no other." if silent else ""
    caption = (
        "Explanations of a model's geometry, made from the text alone and held against the model's cosines: structural "
        "similarity (1 where they agree), the best on the left. Lines: 95% intervals over resamples of the items. "
        f"Dotted: what chance reaches in one of twenty permutations. Best: {'; '.join(told)}.{quiet}{_meanings(table)}"
    )
    return Figure("rivals", "Which explanation fits the model's geometry", caption, panels, columns=len(panels))


def _panel(items: str, rows: tuple[RivalRow, ...], names: list[str]) -> LinePanel:
    curves = [_interval(place, row, names.index(row.rival)) for place, row in enumerate(rows, start=1)]
    nulls = np.array([row.similarity.null for row in rows])
    if np.isfinite(nulls).any():
        places = np.arange(1.0, len(rows) + 1.0)
        curves.append(Curve("chance", places, nulls, dotted=True, colour=len(names)))
    title = f"{items[:1].upper()}{items[1:]}"
    return LinePanel(title, "place (1 explains best)", "SIM with the model", curves, levels=[("equal geometry", 1.0)])


def _interval(place: int, row: RivalRow, colour: int) -> Curve:
    """The number between the ends of its interval, upright at its place."""
    number = row.similarity
    heights: Float = np.array([number.low, number.value, number.high])
    heights = heights if np.isfinite(heights).all() else np.array([number.value])
    return Curve(row.rival, np.full(heights.size, float(place)), heights, colour=colour)


def _meanings(table: Rivals) -> str:
    found = dict(sorted((row.rival, row.meaning) for row in table.rows))
    return " " + "; ".join(f"{name}: {meaning}" for name, meaning in found.items()) + "."
