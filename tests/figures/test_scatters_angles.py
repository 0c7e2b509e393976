from __future__ import annotations

import numpy as np
import pytest

from tokengeom.core.errors import ProblemError
from tokengeom.figures.base import ScatterPanel
from tokengeom.figures.scatters import MOST_PAIRS, context_token_angles
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.training.run import Run


def test_the_prediction_compared_with_itself_lies_on_the_diagonal(prediction: FeaturePrediction) -> None:
    (panel,) = context_token_angles(prediction, (prediction.W, prediction.H)).panels
    assert isinstance(panel, ScatterPanel)
    for points in panel.points:
        np.testing.assert_allclose(points.x, points.y, atol=1e-12)
        assert 0 < len(points.x) <= MOST_PAIRS


def test_the_angles_of_one_hot_labels_are_those_of_a_simplex() -> None:
    """Neural collapse: a context has its token's direction, and cosine -1/(V-1) with every other token."""
    stats = NextTokenStatistics.from_probabilities(np.eye(4))
    prediction = predict(stats)
    figure = context_token_angles(prediction, (prediction.W, prediction.H))
    (panel,) = figure.panels
    assert isinstance(panel, ScatterPanel)
    may_follow, other = panel.points
    np.testing.assert_allclose(may_follow.y, 1.0, atol=1e-6)
    np.testing.assert_allclose(other.y, -1.0 / 3.0, atol=1e-6)
    assert "in 100% of the contexts as predicted, and in 100% as found" in figure.caption


def test_the_caption_has_the_mean_cosines_of_the_run(prediction: FeaturePrediction, run: Run) -> None:
    W = run.W - run.W.mean(axis=0)
    C = (W / np.linalg.norm(W, axis=1, keepdims=True)) @ (run.H / np.linalg.norm(run.H, axis=0))
    S = prediction.P.toarray() > 0
    caption = context_token_angles(prediction, run).caption
    assert f"found {C[S].mean():.3f}; other tokens" in caption
    assert f"found {C[~S].mean():.3f}. A context" in caption


def test_a_run_of_other_sizes_is_refused(prediction: FeaturePrediction, run: Run) -> None:
    with pytest.raises(ProblemError, match=f"m={prediction.reduction.m}"):
        context_token_angles(prediction, (run.W, run.H[:, 1:]))
