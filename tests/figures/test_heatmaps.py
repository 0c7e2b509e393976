from __future__ import annotations

import numpy as np
import pytest

from figure_cases import heatmap
from tokengeom.core.errors import InputError
from tokengeom.figures.heatmaps import (
    evolution,
    feature_heatmaps,
    labelled_contexts,
    pattern_triple,
)
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.training.run import Run


def context_index(stats: NextTokenStatistics, name: str) -> int:
    names = [stats.context_text(j) for j in range(stats.m)]
    assert names.count(name) == 1
    return names.index(name)


def test_all_panels_have_one_order(prediction: FeaturePrediction, stats: NextTokenStatistics) -> None:
    triple = pattern_triple(prediction, stats=stats)
    first = heatmap(triple)
    S, S_tilde, L_mm = (heatmap(triple, index).values for index in range(3))
    rows = [stats.vocabulary.index(name) for name in first.y_names]
    columns = [context_index(stats, name) for name in first.x_names]
    np.testing.assert_array_equal(S, stats.S.toarray()[np.ix_(rows, columns)])
    np.testing.assert_allclose(S_tilde, S - S.mean(axis=0), atol=1e-12)
    margin = np.where(S > 0, L_mm, np.inf).min(axis=0) - np.where(S > 0, -np.inf, L_mm).max(axis=0)
    assert margin.min() >= 1 - 1e-6, "rows or columns are mixed up"


def test_cosines_are_those_of_the_run(prediction: FeaturePrediction, stats: NextTokenStatistics, run: Run) -> None:
    maps = feature_heatmaps(prediction, {"UFM": run}, stats=stats)
    assert maps.columns == 3
    contexts, tokens = heatmap(maps, 0), heatmap(maps, 3)
    h = run.H[:, [context_index(stats, name) for name in contexts.x_names[:2]]]
    assert contexts.values[0, 1] == pytest.approx(h[:, 0] @ h[:, 1] / np.prod(np.linalg.norm(h, axis=0)))
    w = (run.W - run.W.mean(axis=0))[[stats.vocabulary.index(name) for name in tokens.x_names[:2]]]
    assert tokens.values[0, 1] == pytest.approx(w[0] @ w[1] / np.prod(np.linalg.norm(w, axis=1)))


def test_contexts_with_one_support_are_between_breaks(
    prediction: FeaturePrediction, stats: NextTokenStatistics
) -> None:
    panel = heatmap(labelled_contexts(prediction, stats, groups=4, each=3))
    for start, end in zip((0, *panel.x_breaks), (*panel.x_breaks, len(panel.x_names)), strict=True):
        np.testing.assert_allclose(panel.values[start:end, start:end], 1.0, atol=1e-6)


def test_a_run_of_other_sizes_is_refused_by_name(
    prediction: FeaturePrediction, stats: NextTokenStatistics, run: Run
) -> None:
    with pytest.raises(InputError, match=rf"'UFM' cannot be drawn.*m={stats.m} and H of the run"):
        feature_heatmaps(prediction, {"UFM": (run.W, run.H[:, 1:])}, stats=stats)
    with pytest.raises(InputError, match=rf"'step 7' cannot be drawn.*V={stats.V}"):
        evolution({7: (run.W[1:], run.H)}, prediction)
    with pytest.raises(InputError, match="at least one step"):
        evolution({}, prediction)


def test_supports_without_geometry_are_drawn() -> None:

    stats = NextTokenStatistics.from_probabilities(np.full((3, 4), 1 / 3))
    figure = feature_heatmaps(predict(stats), stats=stats)
    assert len(figure.panels) == 6
    np.testing.assert_array_equal(heatmap(figure).values, 0.0)
