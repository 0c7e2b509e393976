"""A figure as plain data: titles, labels, numbers and a caption, without any drawing.

A builder makes a `Figure` from predictions and runs; a renderer (static or interactive) draws any `Figure`. The data
can be saved without drawing anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tokengeom.core.numerics import Float

Scale = Literal["linear", "log"]
Marker = Literal["point", "star", "square", "cross"]
EQUAL = [("equal geometry", 1.0)]
"""Level of the best agreement."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A line with its name in the legend.

    ``label``, ``x``, ``y``
        Its name, and the coordinates of its points.
    ``low``, ``high``
        Band around the line.
    ``dashed``, ``dotted``
        Dashed lines are predictions or second quantities; dotted lines accompany a solid line of the same colour.
    ``colour``
        Index into the palette; by default the curve's index in its panel.
    ``in_legend``
        Whether the legend lists the curve; its name appears on hover in any case.
    """

    label: str
    x: Float
    y: Float
    low: Float | None = None
    high: Float | None = None
    dashed: bool = False
    dotted: bool = False
    colour: int | None = None
    in_legend: bool = True


@dataclass(frozen=True, eq=False)
class LinePanel:
    """Curves over one x axis.

    ``title``, ``x_label``, ``y_label``
        Texts above the panel and beside its axes.
    ``curves``
        The curves, in the order of the legend.
    ``x_scale``, ``y_scale``
        Scales of the axes.
    ``levels``
        Named horizontal lines, such as a floor or a bound.
    ``marks``
        Named vertical lines, such as a rank or a change of schedule.
    ``x_names``
        Names of 1, 2, 3, ... on the x axis, instead of numbers.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    levels: Sequence[tuple[str, float]] = ()
    marks: Sequence[tuple[str, float]] = ()
    x_names: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class HeatmapPanel:
    """A matrix as a heat-map; row 0 is at the top.

    ``title``, ``x_label``, ``y_label``
        Texts above the panel and beside its axes.
    ``values``, ``colour_label``
        The matrix, and what its numbers are, beside the colour scale.
    ``x_names``, ``y_names``
        Names of columns and rows: tick labels where they fit, and always shown on hover.
    ``x_breaks``, ``y_breaks``
        Indices at which a new group begins, drawn as thin lines.
    ``low``, ``high``
        Ends of the colour scale, so that panels side by side can be compared; a range that contains both signs gets a
        diverging palette with white at 0.
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
    """Points in the plane with one marker and one colour.

    ``label``, ``x``, ``y``
        Their entry in the legend, and their coordinates.
    ``names``
        Text beside each point.
    ``marker``, ``colour``
        Shape, and index into the palette; by default their index in the panel.
    """

    label: str
    x: Float
    y: Float
    names: Sequence[str] = ()
    marker: Marker = "point"
    colour: int | None = None


@dataclass(frozen=True, eq=False)
class ScatterPanel:
    """Points of several kinds in the plane.

    ``title``, ``x_label``, ``y_label``
        Texts above the panel and beside its axes.
    ``points``
        The points, one entry per kind.
    ``equal``
        Whether both axes have the same scale, so that angles are drawn as they are.
    ``from_origin``
        Whether a line is drawn from the origin to each point.
    """

    title: str
    x_label: str
    y_label: str
    points: Sequence[Points]
    equal: bool = False
    from_origin: bool = False


Panel = LinePanel | HeatmapPanel | ScatterPanel


@dataclass(frozen=True, eq=False)
class Figure:
    """Panels in a grid, with a caption that explains them without further text.

    ``name``
        Name of its files, without a suffix.
    ``title``, ``caption``
        Texts above and below the panels.
    ``panels``, ``columns``
        The panels, and the number of columns of their grid.
    """

    name: str
    title: str
    caption: str
    panels: Sequence[Panel] = field(default_factory=tuple)
    columns: int = 2
