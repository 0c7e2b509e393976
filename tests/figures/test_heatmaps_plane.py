from __future__ import annotations

import numpy as np
import pytest

from figure_cases import scatter_panel
from tokengeom.core.errors import InputError
from tokengeom.figures.heatmaps import linear_plane
from tokengeom.theory.linear import LinearPrediction
from tokengeom.training.run import Run


def test_tokens_with_equal_contexts_share_a_star(in_the_plane: LinearPrediction) -> None:
    *contexts, stars = scatter_panel(linear_plane(in_the_plane)).points
    assert sorted(stars.names) == ["$ba_rk$", "<script>", "ran = smiled", "slept"]
    index = list(stars.names).index("ran = smiled")
    np.testing.assert_allclose([stars.x[index], stars.y[index]], in_the_plane.W_mm[0], atol=1e-5)
    supports = [points.names[0] for points in contexts]
    assert supports == ["{<script>, $ba_rk$, slept}", "{ran, <script>, smiled}", "{ran, slept, smiled}"]


def test_the_plane_refuses_other_dimensions(linear_case: tuple[LinearPrediction, dict[str, Run]]) -> None:
    with pytest.raises(InputError, match="d=60"):
        linear_plane(linear_case[0])
