"""The figure of the linear model in training shows what the runs measured, and nothing that they did not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from figure_cases import assert_nothing_is_clipped, line_panel, rendered
from linear_instances import overparameterised
from tokengeom import LinearPrediction, NextTokenStatistics, Run, Trajectory, predict, train
from tokengeom.extending import InputError, linear_probes
from tokengeom_studies.common.linear_training import linear_training

LinearCase = tuple[LinearPrediction, dict[str, Run]]


@pytest.fixture(scope="module")
def linear_case() -> LinearCase:
    data = overparameterised(0)
    stats = NextTokenStatistics.from_probabilities(data.P, data.pi)
    prediction = predict(stats, embeddings=data.H)
    probes = linear_probes(prediction)
    runs = {
        name.upper(): train(
            stats, "linear", embeddings=data.H, optimizer=name, learning_rate=rate, steps=300, probes=probes
        )
        for name, rate in (("gd", 0.5), ("ngd", 0.01), ("adam", 0.01))
    }
    return prediction, runs


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


def test_a_panel_without_a_measurement_is_left_out(linear_case: LinearCase) -> None:
    prediction, runs = linear_case
    bare = {
        name: replace(run, trajectory=Trajectory({c: run.trajectory[c] for c in ("step", "loss_gap", "norm_W")}))
        for name, run in runs.items()
    }
    assert len(linear_training(bare, prediction).panels) == 3
    assert "nan" not in linear_training(bare, prediction).caption


def test_nothing_is_cut_off(linear_case: LinearCase) -> None:
    figure = linear_training(linear_case[1], linear_case[0])
    assert_nothing_is_clipped(figure, rendered(figure))


def test_data_on_which_nothing_diverges_have_no_direction_panel() -> None:
    stats = NextTokenStatistics.from_probabilities(np.array([[0.5, 0.25], [0.5, 0.75]]))
    embeddings = np.eye(2)
    prediction = predict(stats, embeddings=embeddings)
    probes = linear_probes(prediction)
    run = train(stats, "linear", embeddings=embeddings, optimizer="gd", learning_rate=0.1, steps=20, probes=probes)
    figure = linear_training({"GD": run}, prediction)
    assert "nothing diverges" in figure.caption
    assert not {"Direction: cosine with W^mm", "Margin per unit of norm"} & {panel.title for panel in figure.panels}


def test_no_runs_are_refused(linear_case: LinearCase) -> None:
    with pytest.raises(InputError, match="at least one run"):
        linear_training({}, linear_case[0])
