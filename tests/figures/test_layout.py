from __future__ import annotations

import numpy as np
import pytest

from tokengeom.figures.base import Points, ScatterPanel
from tokengeom.figures.layout import legend_grid, point_name_width, scatter_limits, wrap


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
    away = (0.08 + point_name_width("name 10")) * (right - left) / 5.0
    assert left <= (x[x < 0] - away).min()
    assert (x[x >= 0] + away).max() <= right
