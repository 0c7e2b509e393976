from __future__ import annotations

import numpy as np

from figure_cases import line_panel
from tokengeom.figures.training_curves import path
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.linear_path import norm_path
from tokengeom.training.run import Run


def test_a_loss_gap_that_is_too_small_for_a_float_is_drawn(
    linear_case: tuple[LinearPrediction, dict[str, Run]],
) -> None:
    gap = line_panel(path(norm_path(linear_case[0], [10.0, 1e4])), "Loss gap")
    assert gap.curves[0].y[-1] < -400
    assert np.isfinite(gap.curves[0].y).all()
