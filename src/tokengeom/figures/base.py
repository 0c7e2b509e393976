"""A figure as plain data: what is drawn, with its labels, and nothing of how.

A builder makes a `Figure` from predictions and runs; a renderer (static or interactive) draws any `Figure`. The data
can be saved without drawing anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tokengeom.numerics import Float

Scale = Literal["linear", "log"]
Marker = Literal["point", "star", "square", "cross"]


@dataclass(frozen=True, eq=False)
class Curve:
    """A named line; ``low`` and ``high`` bound a band around it.

    ``dashed`` is for what is predicted, not measured; ``dotted`` for the companion of a curve of the same colour.
    ``colour`` is a place in the palette, by default the curve's place in its panel.
    """

    label: str
    x: Float
    y: Float
    low: Float | None = None
    high: Float | None = None
    dashed: bool = False
    dotted: bool = False
    colour: int | None = None


@dataclass(frozen=True, eq=False)
class LinePanel:
    """Curves over one axis.

    ``levels`` are named horizontal lines: a floor, a bound, a published number. ``marks`` are named vertical ones: a
    rank, a change of schedule.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    levels: Sequence[tuple[str, float]] = ()
    marks: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True, eq=False)
class HeatmapPanel:
    """A matrix; row 0 is drawn on top.

    ``x_names``, ``y_names`` are shown as ticks when they fit, and always on hover. ``x_breaks``, ``y_breaks`` are the
    places where a group ends, drawn as thin lines. ``low`` and ``high`` fix the colours, so that panels side by side
    can be compared; a range around 0 gets a diverging palette.
    """

    title: str
    values: Float
    x_label: str
    y_label: str
    x_names: Sequence[str] = ()
    y_names: Sequence[str] = ()
    x_breaks: Sequence[int] = ()
    y_breaks: Sequence[int] = ()
    low: float | None = None
    high: float | None = None
    colour_label: str = ""


@dataclass(frozen=True, eq=False)
class Points:
    """Named points in the plane, all of one kind; ``words`` are written beside them.

    ``colour`` is a place in the palette, by default the kind's place in its panel.
    """

    label: str
    x: Float
    y: Float
    words: Sequence[str] = ()
    marker: Marker = "point"
    colour: int | None = None


@dataclass(frozen=True, eq=False)
class ScatterPanel:
    """Points of several kinds in the plane; ``equal`` keeps angles true; ``from_origin`` draws a line to each point."""

    title: str
    x_label: str
    y_label: str
    points: Sequence[Points]
    equal: bool = False
    from_origin: bool = False


Panel = LinePanel | HeatmapPanel | ScatterPanel


@dataclass(frozen=True, eq=False)
class Figure:
    """Panels in a grid of ``columns``, with a caption that a reader needs no other page for."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel] = field(default_factory=tuple)
    columns: int = 2
