from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from figure_cases import line_panel
from tokengeom.core.errors import InputError
from tokengeom.figures.training_curves import feature_training
from tokengeom.training.run import Run, Trajectory


def test_of_many_runs_the_legend_lists_each_run_once(run: Run) -> None:
    figure = feature_training({f"seed {k}": run for k in range(5)})
    norms, gaps = line_panel(figure, "Norms"), line_panel(figure, "Loss gap")
    assert [curve.label for curve in norms.curves if curve.in_legend] == [
        "seed 0: tokens ||W||",
        "seed 0: contexts ||H||",
        "seed 0: logits ||L||",
    ]
    assert len(norms.curves) == 15
    assert all(curve.in_legend for curve in gaps.curves)


def test_a_panel_without_a_measurement_is_left_out(run: Run) -> None:
    bare = replace(run, trajectory=Trajectory({c: run.trajectory[c] for c in ("step", "loss_gap", "norm_W")}))
    figure = feature_training({"UFM": bare})
    assert len(figure.panels) == 2
    assert "nan" not in figure.caption


def test_agreement_at_each_steps_loss_is_beside_that_in_the_limit(run: Run) -> None:
    steps = {name: run.trajectory[name] for name in ("step", "loss_gap")}
    at, limit = np.linspace(0, 0.9, len(run.trajectory)), np.linspace(0, 0.7, len(run.trajectory))
    measured = Trajectory({**steps, "context_agreement": at, "limit_context_agreement": limit})
    figure = feature_training({"UFM": replace(run, trajectory=measured)})
    curves = line_panel(figure, "Contexts: agreement across supports").curves
    assert [(curve.label, curve.dashed) for curve in curves] == [("UFM, at its loss", False), ("UFM, with L^mm", True)]
    np.testing.assert_array_equal(curves[0].y, at)
    np.testing.assert_array_equal(curves[1].y, limit)
    assert "agreement of contexts at the loss = 0.900, agreement of contexts in the limit = 0.700" in figure.caption
    assert "Tokens: agreement" not in {panel.title for panel in figure.panels}


def test_no_runs_are_refused() -> None:
    with pytest.raises(InputError, match="at least one run"):
        feature_training({})
