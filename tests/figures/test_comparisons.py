from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from figure_cases import line_panel
from tokengeom.errors import InputError
from tokengeom.figures.comparisons import checkpoints, rival_bars
from tokengeom.geometry.checkpoints import CheckpointCurve
from tokengeom.geometry.rival_table import Rivals
from tokengeom.geometry.rivals import rivals
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run


def test_checkpoints_are_drawn_by_step_with_interval_and_chance(over_training: CheckpointCurve) -> None:
    figure = checkpoints(over_training)
    loss, similarity = (line_panel(figure, panel.title) for panel in figure.panels)
    np.testing.assert_array_equal(loss.curves[0].x, [0, 32, 200])
    assert loss.x_scale == "linear", "step 0 has no logarithm"
    np.testing.assert_array_equal(loss.curves[0].y, [point.loss_gap for point in over_training])
    contexts, chance, tokens, _ = similarity.curves
    assert [contexts.label, chance.label, tokens.label] == ["contexts", "contexts, chance", "tokens"]
    last = over_training.points[-1].comparison.context_similarity
    assert contexts.low is not None
    assert (contexts.low[-1], contexts.y[-1], chance.y[-1]) == (last.low, last.value, last.null)
    with pytest.raises(InputError, match="at least two checkpoints"):
        checkpoints(replace(over_training, points=over_training.points[:1]))


def test_rivals_are_ranked_with_interval_and_chance(
    prediction: FeaturePrediction, stats: NextTokenStatistics, run: Run
) -> None:
    table = rivals(stats, run, prediction, held_out=0, resamples=20, permutations=20)
    figure = rival_bars(table)
    assert [panel.title for panel in figure.panels] == ["Contexts", "Tokens"]
    panels = [line_panel(figure, title) for title in ("Contexts", "Tokens")]
    for panel in panels:
        *bars, chance = panel.curves
        rows = table.of(panel.title.lower())
        assert [bar.label for bar in bars] == [row.rival for row in rows]
        for rank, (bar, row) in enumerate(zip(bars, rows, strict=True), start=1):
            np.testing.assert_array_equal(bar.x, rank)
            np.testing.assert_array_equal(bar.y, [row.similarity.low, row.similarity.value, row.similarity.high])
        np.testing.assert_array_equal(chance.y, [row.similarity.null for row in rows])
    colours = [{curve.label: curve.colour for curve in panel.curves} for panel in panels]
    assert colours[0] == colours[1], "a rival has one colour in all panels"


def test_an_empty_table_of_rivals_is_refused() -> None:
    with pytest.raises(InputError, match="at least one row"):
        rival_bars(Rivals((), 0, (), 0, 0, 0))
