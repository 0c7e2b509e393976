from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from figure_cases import line_panel
from tokengeom.comparison.probes import linear_probes
from tokengeom.core.errors import InputError
from tokengeom.figures.training_curves import feature_training, linear_training
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.predict import predict
from tokengeom.training.run import Run, Trajectory
from tokengeom.training.train import train

LinearCase = tuple[LinearPrediction, dict[str, Run]]


def test_curves_are_the_measurements_of_the_runs(linear_case: LinearCase) -> None:
    prediction, runs = linear_case
    figure = linear_training(runs, prediction)
    cosine = line_panel(figure, "Direction: cosine with W^mm")
    assert [curve.label for curve in cosine.curves[:3]] == ["GD: W_k", "NGD: W_k", "ADAM: W_k"]
    np.testing.assert_array_equal(cosine.curves[5].y, runs["ADAM"].trajectory["cosine_without_finite"])
    assert cosine.curves[5].colour == cosine.curves[2].colour
    loss = line_panel(figure, "Loss")
    np.testing.assert_allclose(loss.curves[0].y - prediction.entropy, runs["GD"].trajectory["loss_gap"], atol=1e-12)
    assert loss.levels == [("entropy H", prediction.entropy)]


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


def test_a_panel_without_a_measurement_is_left_out(linear_case: LinearCase) -> None:
    prediction, runs = linear_case
    bare = {
        name: replace(run, trajectory=Trajectory({c: run.trajectory[c] for c in ("step", "loss_gap", "norm_W")}))
        for name, run in runs.items()
    }
    assert len(linear_training(bare, prediction).panels) == 3
    assert len(feature_training(bare).panels) == 2
    assert "nan" not in linear_training(bare, prediction).caption


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


def test_data_on_which_nothing_diverges_have_no_direction_panel() -> None:
    stats = NextTokenStatistics.from_probabilities(np.array([[0.5, 0.25], [0.5, 0.75]]))
    embeddings = np.eye(2)
    prediction = predict(stats, embeddings=embeddings)
    probes = linear_probes(prediction)
    run = train(stats, "linear", embeddings=embeddings, optimizer="gd", learning_rate=0.1, steps=20, probes=probes)
    figure = linear_training({"GD": run}, prediction)
    assert "nothing diverges" in figure.caption
    assert not {"Direction: cosine with W^mm", "Margin per unit of norm"} & {panel.title for panel in figure.panels}


def test_no_runs_are_refused() -> None:
    with pytest.raises(InputError, match="at least one run"):
        feature_training({})
