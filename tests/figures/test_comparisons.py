from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from figure_cases import line_panel
from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.core.errors import InputError
from tokengeom.figures.comparisons import checkpoints, rival_bars
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run


def test_checkpoints_are_drawn_by_step_with_interval_and_chance(over_training: CheckpointCurve) -> None:
    figure = checkpoints(over_training)
    loss, at_loss, limit = (line_panel(figure, panel.title) for panel in figure.panels)
    np.testing.assert_array_equal(loss.curves[0].x, [0, 32, 200])
    assert loss.x_scale == "linear", "step 0 has no logarithm"
    np.testing.assert_array_equal(loss.curves[0].y, [point.loss_gap for point in over_training])
    last = over_training.points[-1].comparison
    for panel, table in ((at_loss, last.at_loss), (limit, last.in_limit)):
        contexts, chance, tokens, _ = panel.curves
        assert [contexts.label, chance.label, tokens.label] == ["contexts", "contexts, chance", "tokens"]
        one = table["support_agreement"]
        assert contexts.low is not None
        assert (contexts.low[-1], contexts.y[-1], chance.y[-1]) == (one.low, one.value, one.floor)
        assert tokens.y[-1] == table["token_agreement"].value
    with pytest.raises(InputError, match="at least two checkpoints"):
        checkpoints(replace(over_training, points=over_training.points[:1]))


def test_a_checkpoint_above_the_uniform_guess_has_a_gap_in_the_curve(over_training: CheckpointCurve) -> None:
    first = over_training.points[0]
    without = {name: one for name, one in first.comparison.agreements.items() if name.startswith("limit_")}
    bare = replace(first, comparison=replace(first.comparison, agreements=without, norm=None))
    figure = checkpoints(replace(over_training, points=(bare, *over_training.points[1:])))
    curve = line_panel(figure, "Agreement with the prediction at the loss").curves[0]
    assert np.isnan(curve.y[0])
    assert np.isfinite(curve.y[1:]).all()


def test_rivals_are_ranked_with_interval_floor_and_what_is_attainable(
    prediction: FeaturePrediction, stats: NextTokenStatistics, run: Run
) -> None:
    other = replace(run, H=run.H + 0.1 * np.random.default_rng(0).standard_normal(run.H.shape))
    table = rivals(stats, [run, other], prediction, permutations=20, at_loss=False)
    figure = rival_bars(table)
    titles = ["Contexts, pairs of supports", "Contexts, pairs of contexts", "Tokens"]
    assert [panel.title for panel in figure.panels] == titles
    panels = [line_panel(figure, title) for title in titles]
    for panel, items in zip(panels, ("supports", "contexts", "tokens"), strict=True):
        *bars, floor, attainable = panel.curves
        rows = [row for row in table.of(items) if np.isfinite(row.agreement.fair)]
        assert [bar.label for bar in bars] == [row.rival for row in rows] == list(panel.x_names)
        for rank, (bar, row) in enumerate(zip(bars, rows, strict=True), start=1):
            np.testing.assert_array_equal(bar.x, rank)
            ends = [row.agreement.low, row.agreement.fair, row.agreement.high]
            np.testing.assert_array_equal(bar.y, ends if np.isfinite(ends).all() else ends[1:2])
        assert np.all(np.diff([row.agreement.fair for row in rows]) <= 0), "the best is on the left"
        assert (floor.label, attainable.label) == ("floor", "attainable")
        np.testing.assert_array_equal(floor.y, [row.agreement.floor for row in rows])
        np.testing.assert_array_equal(attainable.y, [np.sqrt(row.agreement.reproducible) for row in rows])
    colours = [{curve.label: curve.colour for curve in panel.curves} for panel in panels]
    shared = colours[0].keys() & colours[1].keys()
    assert len(shared) > 8
    assert all(colours[0][name] == colours[1][name] for name in shared), "a rival has one colour in all panels"
    without = rival_bars(rivals(stats, run, prediction, permutations=0, at_loss=False))
    assert "attainable" not in {curve.label for curve in line_panel(without, titles[0]).curves}


def test_an_empty_table_of_rivals_is_refused() -> None:
    with pytest.raises(InputError, match="at least one row"):
        rival_bars(Rivals((), 0, (), 0, 0))
