from __future__ import annotations

import numpy as np
import pytest

from figure_cases import heatmap
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom_studies.common.sweeps import PhaseGrid, phase_diagram, small_d


def test_the_phase_diagram_has_small_supports_below_and_marks_d_equal_m() -> None:
    share: Float = np.array([[0.0, 0.1], [0.2, 1.0]])
    panel = heatmap(phase_diagram([PhaseGrid(7, [0.5, 1.0], [1, 3], share, 10)]))
    assert panel.y_names == ["3", "1"]
    np.testing.assert_array_equal(panel.values, [[0.2, 1.0], [0.0, 0.1]])
    assert list(panel.x_breaks) == [1]


def test_a_grid_that_is_missing_or_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"\(2, 2\).*V=7"):
        phase_diagram([PhaseGrid(7, [0.5, 1.0], [1, 3], np.zeros((1, 2)), 10)])
    with pytest.raises(InputError, match="at least one grid"):
        phase_diagram([])


def test_measurements_for_other_dimensions_are_refused() -> None:
    with pytest.raises(InputError, match="'tokens' must have one row for each of the 2"):
        small_d(np.array([1.0, 2.0]), np.ones(2), {"tokens": np.ones(3)}, np.ones(2))


def test_seeds_are_mentioned_only_where_there_are_several() -> None:
    d, once, thrice = np.array([1.0, 2.0]), np.ones(2), np.ones((2, 3))
    assert "seeds" not in small_d(d, once, {"tokens": once}, once).caption
    assert "Bands: range over seeds." in small_d(d, once, {"tokens": thrice}, once).caption
