from __future__ import annotations

import numpy as np
import pytest

from tokengeom.figures.base import Points, ScatterPanel
from tokengeom.figures.layout import legend_grid, place_names, point_name_width, scatter_limits, wrap


def test_a_legend_fits_its_width() -> None:
    assert legend_grid([], 4.0) == (1, 0)
    assert legend_grid(["a", "b"], 4.0) == (2, 1)
    assert legend_grid(["a" * 60, "b"], 4.0) == (1, 2)
    assert max(len(line) for line in wrap("text " * 50, 3.0, 10.0)) <= 3.0 * 72 / 5.5


def test_names_beside_points_stay_inside_their_panel() -> None:
    x, y = np.random.default_rng(3).standard_normal((2, 12))
    panel = ScatterPanel("t", "x", "y", [Points("p", x, y, [f"name {i}" for i in range(12)])], equal=True)
    (left, right), (bottom, top) = scatter_limits(panel, 5.0, 5.0)
    assert right - left == pytest.approx(top - bottom)
    unit = (right - left) / 5.0
    for name in place_names(panel, 5.0, 5.0)[0]:
        outer = name.x + name.right * (0.08 + point_name_width(name.text)) * unit
        assert left <= outer <= right


def test_a_name_does_not_cover_another_point() -> None:
    alone = ScatterPanel("t", "x", "y", [Points("p", np.array([1.0]), np.array([-1.0]), ["name"])], from_origin=True)
    assert [(name.right, name.up) for name in place_names(alone, 5.0, 5.0)[0]] == [(1, -1)]
    beside = Points("q", np.array([1.05]), np.array([-1.04]), [""])
    crowded = ScatterPanel("t", "x", "y", [*alone.points, beside], from_origin=True)
    assert [(name.right, name.up) for name in place_names(crowded, 5.0, 5.0)[0]] != [(1, -1)]


def test_a_name_is_written_to_the_inside_where_a_crowd_leaves_no_other_space() -> None:
    x, y = np.array([0.3, 0.302, 0.301, 0.8]), np.array([0.5, 0.501, 0.499, 0.6])
    names = ["the first name", "the second name", "the third name", "far"]
    panel = ScatterPanel("t", "x", "y", [Points("p", x, y, names)])
    (left, right), _ = scatter_limits(panel, 4.0, 3.0)
    unit = (right - left) / 4.0
    for name in place_names(panel, 4.0, 3.0)[0]:
        width = point_name_width(name.text) * unit
        outer = name.x + name.right * (width + 0.08 * unit) if name.right else name.x - width / 2
        assert left - 0.02 * unit <= outer <= right + 0.02 * unit
