"""Every builder on real predictions and runs: consistent data, and pictures in which all of it can be read."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from html import escape

import numpy as np
import pytest
from drawn_text import assert_nothing_is_clipped, plotly_text, rendered, static_text

import tokengeom.figures
from tokengeom.errors import InputError
from tokengeom.figures.base import Figure, HeatmapPanel, LinePanel
from tokengeom.figures.comparisons import checkpoints, rival_bars
from tokengeom.figures.concepts import LearnedConcepts, concepts
from tokengeom.figures.heatmaps import (
    evolution,
    feature_heatmaps,
    labelled_contexts,
    labelled_words,
    linear_heatmaps,
    pattern_triple,
)
from tokengeom.figures.interactive import to_plotly
from tokengeom.figures.linear_plane import linear_plane
from tokengeom.figures.path import path
from tokengeom.figures.prepare import legend_labels, legible
from tokengeom.figures.sweeps import PhaseGrid, phase_diagram, small_d
from tokengeom.figures.training_curves import feature_training, linear_training
from tokengeom.geometry.checkpoint_text import CheckpointText
from tokengeom.geometry.checkpoints import CheckpointComparison, CheckpointCurve
from tokengeom.geometry.compare import compare
from tokengeom.geometry.rivals import Rivals, rivals
from tokengeom.numerics import Float
from tokengeom.theory.closed_forms import proxy
from tokengeom.theory.concepts import Concepts
from tokengeom.theory.linear_path import norm_path
from tokengeom.theory.logit_path import regularisation_path
from tokengeom.training.objective import SoftLabels

BUILDERS = {
    "checkpoints", "concepts", "evolution", "feature_heatmaps", "feature_training", "labelled", "linear_heatmaps",
    "linear_plane", "linear_training", "path", "pattern_triple", "phase_diagram", "rivals", "small_d",
}  # fmt: skip
HELPERS = {
    "base", "boxes", "curves", "data", "feature_order", "interactive", "interactive_panels", "names", "ordering",
    "prepare", "sizes", "static", "static_panels", "theme", "word_places",
}  # fmt: skip


@pytest.fixture(scope="module")
def over_training(stats, prediction, run, snapshots) -> CheckpointCurve:  # type: ignore[no-untyped-def]
    """The run's snapshots as if they were checkpoints of a model."""
    labels, points = SoftLabels.from_statistics(stats), []
    for step, (W, H) in snapshots.taken.items():
        found = compare(prediction, (W, H), resamples=20, permutations=20)
        gap = labels.loss_gap(W @ H)
        points.append(
            CheckpointComparison(
                model=f"checkpoint-{step}",
                step=step,
                convention="",
                W=W,
                H=H,
                bias=None,
                loss_gap=gap,
                entropy=stats.entropy,
                bos=False,
                other_gap=None,
                windows=stats.n,
                context=4,
                is_proxy=False,
                comparison=found,
            )
        )
    return CheckpointCurve(tuple(points), CheckpointText(stats, stats, np.arange(stats.V), prediction))


@pytest.fixture(scope="module")
def figures(  # type: ignore[no-untyped-def]
    in_the_plane, linear_case, stats, prediction, run, snapshots, over_training
) -> dict[str, list[Figure]]:
    linear, runs = linear_case
    nameless = tuple(replace(point, step=None) for point in over_training)
    d = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    seeds = np.random.default_rng(0).uniform(0.5, 1.0, size=(5, 3))
    grids = [
        PhaseGrid(V, [0.25, 0.5, 1.0, 1.5], [1, 2, 4], np.linspace(0, 1, 12).reshape(3, 4), 20) for V in (5, 10, 20)
    ]
    found = Concepts.of(proxy(stats.S))
    learned = LearnedConcepts(np.arange(5.0), np.random.default_rng(1).uniform(size=(6, 5)))
    return {
        "linear_plane": [linear_plane(in_the_plane)],
        "linear_heatmaps": [linear_heatmaps(linear), linear_heatmaps(in_the_plane)],
        "linear_training": [linear_training(runs, linear)],
        "phase_diagram": [phase_diagram(grids, m=50)],
        "feature_training": [feature_training({"UFM": run})],
        "feature_heatmaps": [feature_heatmaps(prediction, {"UFM": run}, stats=stats), feature_heatmaps(prediction)],
        "pattern_triple": [pattern_triple(prediction, stats=stats), pattern_triple(prediction, most=10)],
        "evolution": [evolution(snapshots.taken, prediction, stats=stats)],
        "labelled": [
            labelled_contexts(prediction, stats, run=run),
            labelled_words(prediction, stats, run=run),
            labelled_words(prediction, stats),
        ],
        "path": [
            path(norm_path(linear, np.logspace(0.5, 4, 8))),
            path(regularisation_path(stats.P, stats.pi, prediction.L_mm, lambdas=np.logspace(-1, -4, 4))),
        ],
        "rivals": [
            rival_bars(rivals(stats, run, prediction, held_out=0.5, resamples=20, permutations=20)),
            rival_bars(rivals(stats, run, prediction, held_out=0, resamples=0, permutations=0)),
        ],
        "small_d": [small_d(d, seeds, {"contexts": seeds, "words": seeds[:, 0]}, seeds[:, 1], rank=4, V=16)],
        "concepts": [concepts(found, stats), concepts(found, stats, learned=learned)],
        "checkpoints": [checkpoints(over_training), checkpoints(replace(over_training, points=nameless))],
    }


def test_every_file_of_the_room_is_a_known_helper_or_has_a_figure_here(figures: dict[str, list[Figure]]) -> None:
    files = {module.name for module in pkgutil.iter_modules(tokengeom.figures.__path__)}
    assert files - HELPERS == BUILDERS == set(figures)


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_the_data_of_a_figure_are_consistent(figures: dict[str, list[Figure]], name: str) -> None:
    for figure in figures[name]:
        assert figure.panels
        assert len(figure.caption) > 100, "a caption must stand by itself"
        assert "nan" not in figure.caption
        for panel in figure.panels:
            assert panel.title
            assert panel.x_label
            assert panel.y_label
            if isinstance(panel, HeatmapPanel):
                rows, columns = panel.values.shape
                assert (len(panel.y_names), len(panel.x_names)) == (rows, columns)
                assert np.isfinite(panel.values).all()
                assert all(0 < place < columns for place in panel.x_breaks)
                assert all(0 < place < rows for place in panel.y_breaks)
            elif isinstance(panel, LinePanel):
                assert panel.curves
                assert all(curve.x.shape == curve.y.shape and np.isfinite(curve.x).all() for curve in panel.curves)
                assert all(np.isfinite(curve.y).any() for curve in panel.curves)
            else:
                assert all(p.x.shape == p.y.shape == (len(p.words),) for p in panel.points)
                assert all(np.isfinite(p.x).all() and np.isfinite(p.y).all() for p in panel.points)


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_every_label_is_in_both_pictures_and_nothing_is_cut_off(figures: dict[str, list[Figure]], name: str) -> None:
    for figure in figures[name]:
        canvas = rendered(figure)
        assert_nothing_is_clipped(figure, canvas)
        static, page = static_text(canvas), plotly_text(to_plotly(figure))
        labels = {figure.title}
        for panel in figure.panels:
            labels |= {panel.title, panel.x_label, panel.y_label, *legend_labels(panel)}
        wanted = {legible(label) for label in labels}
        assert wanted <= static
        assert {escape(label, quote=False) for label in wanted} <= page
        assert figure.caption in static


def test_tokens_with_equal_contexts_share_a_star(in_the_plane) -> None:  # type: ignore[no-untyped-def]
    figure = linear_plane(in_the_plane)
    stars = figure.panels[0].points[-1]  # type: ignore[union-attr]
    assert sorted(stars.words) == ["$ba_rk$", "<script>", "ran = smiled", "slept"]
    place = list(stars.words).index("ran = smiled")
    np.testing.assert_allclose([stars.x[place], stars.y[place]], in_the_plane.W_mm[0], atol=1e-5)
    words = [points.words[0] for points in figure.panels[0].points[:-1]]  # type: ignore[union-attr]
    assert words == ["{<script>, $ba_rk$, slept}", "{ran, <script>, smiled}", "{ran, slept, smiled}"]


def test_the_plane_refuses_other_dimensions(linear_case) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match="d=60"):
        linear_plane(linear_case[0])


def test_heat_maps_hold_the_matrices_in_one_order(prediction, stats, run) -> None:  # type: ignore[no-untyped-def]
    triple = pattern_triple(prediction, stats=stats)
    S, S_tilde, L_mm = (panel.values for panel in triple.panels)  # type: ignore[union-attr]
    rows = [stats.vocabulary.index(name) for name in triple.panels[0].y_names]  # type: ignore[union-attr]
    columns = [stats_index(stats, name) for name in triple.panels[0].x_names]  # type: ignore[union-attr]
    np.testing.assert_array_equal(S, stats.S.toarray()[np.ix_(rows, columns)])
    np.testing.assert_allclose(S_tilde, S - S.mean(axis=0), atol=1e-12)
    margin = np.where(S > 0, L_mm, np.inf).min(axis=0) - np.where(S > 0, -np.inf, L_mm).max(axis=0)
    assert margin.min() >= 1 - 1e-6, "rows or columns are mixed up"
    maps = feature_heatmaps(prediction, {"UFM": run}, stats=stats)
    assert maps.columns == 3
    trained = maps.panels[0]
    assert isinstance(trained, HeatmapPanel)
    first, second = (stats_index(stats, name) for name in trained.x_names[:2])
    h = run.H[:, [first, second]]
    assert trained.values[0, 1] == pytest.approx(h[:, 0] @ h[:, 1] / np.prod(np.linalg.norm(h, axis=0)))


def stats_index(stats, name: str) -> int:  # type: ignore[no-untyped-def]
    names = [stats.context_text(j) for j in range(stats.m)]
    assert names.count(name) == 1
    return names.index(name)


def test_contexts_of_one_support_stand_between_breaks(prediction, stats) -> None:  # type: ignore[no-untyped-def]
    panel = labelled_contexts(prediction, stats, groups=4, each=3).panels[0]
    assert isinstance(panel, HeatmapPanel)
    for start, end in zip((0, *panel.x_breaks), (*panel.x_breaks, len(panel.x_names)), strict=True):
        np.testing.assert_allclose(panel.values[start:end, start:end], 1.0, atol=1e-6)


def test_curves_are_the_runs_own_measurements(linear_case) -> None:  # type: ignore[no-untyped-def]
    prediction, runs = linear_case
    panels = {panel.title: panel for panel in linear_training(runs, prediction).panels}
    cosine = panels["Direction: cosine with W^mm"]
    assert isinstance(cosine, LinePanel)
    assert [curve.label for curve in cosine.curves[:3]] == ["GD: W_k", "NGD: W_k", "ADAM: W_k"]
    np.testing.assert_array_equal(cosine.curves[5].y, runs["ADAM"].trajectory["cosine_without_finite"])
    assert cosine.curves[5].colour == cosine.curves[2].colour
    loss = panels["Loss"]
    assert isinstance(loss, LinePanel)
    np.testing.assert_allclose(loss.curves[0].y - prediction.entropy, runs["GD"].trajectory["loss_gap"], atol=1e-12)
    assert loss.levels == [("entropy H", prediction.entropy)]


def test_a_measurement_that_was_not_taken_leaves_its_panel_out(linear_case) -> None:  # type: ignore[no-untyped-def]
    from tokengeom.training.run import Trajectory

    prediction, runs = linear_case
    bare = {
        name: replace(run, trajectory=Trajectory({c: run.trajectory[c] for c in ("step", "loss_gap", "norm_W")}))
        for name, run in runs.items()
    }
    assert len(linear_training(bare, prediction).panels) == 3
    assert len(feature_training(bare).panels) == 2
    assert "nan" not in linear_training(bare, prediction).caption


def test_checkpoints_are_drawn_over_their_steps_with_interval_and_chance(over_training: CheckpointCurve) -> None:
    loss, similarity = checkpoints(over_training).panels
    assert isinstance(loss, LinePanel)
    assert isinstance(similarity, LinePanel)
    np.testing.assert_array_equal(loss.curves[0].x, [0, 32, 200])
    assert loss.x_scale == "linear", "step 0 has no logarithm"
    np.testing.assert_array_equal(loss.curves[0].y, [point.loss_gap for point in over_training])
    contexts, chance, words, _ = similarity.curves
    assert [contexts.label, chance.label, words.label] == ["contexts", "contexts, chance", "words"]
    last = over_training.points[-1].comparison.context_similarity
    assert contexts.low is not None
    assert (contexts.low[-1], contexts.y[-1], chance.y[-1]) == (last.low, last.value, last.null)
    with pytest.raises(InputError, match="at least two checkpoints"):
        checkpoints(replace(over_training, points=over_training.points[:1]))


def test_the_phase_diagram_puts_small_supports_below_and_marks_d_equal_m() -> None:
    share: Float = np.array([[0.0, 0.1], [0.2, 1.0]])
    (panel,) = phase_diagram([PhaseGrid(7, [0.5, 1.0], [1, 3], share, 10)]).panels
    assert isinstance(panel, HeatmapPanel)
    assert panel.y_names == ["3", "1"]
    np.testing.assert_array_equal(panel.values, [[0.2, 1.0], [0.0, 0.1]])
    assert list(panel.x_breaks) == [1]
    with pytest.raises(InputError, match=r"\(2, 2\).*V=7"):
        phase_diagram([PhaseGrid(7, [0.5, 1.0], [1, 3], share.T[:1], 10)])


def test_rivals_stand_in_their_order_with_interval_and_chance(prediction, stats, run) -> None:  # type: ignore[no-untyped-def]
    table = rivals(stats, run, prediction, held_out=0, resamples=20, permutations=20)
    contexts, words = rival_bars(table).panels
    assert (contexts.title, words.title) == ("Contexts", "Words")
    for panel in (contexts, words):
        assert isinstance(panel, LinePanel)
        *bars, chance = panel.curves
        rows = table.of(panel.title.lower())
        assert [bar.label for bar in bars] == [row.rival for row in rows]
        for place, (bar, row) in enumerate(zip(bars, rows, strict=True), start=1):
            np.testing.assert_array_equal(bar.x, place)
            np.testing.assert_array_equal(bar.y, [row.similarity.low, row.similarity.value, row.similarity.high])
        np.testing.assert_array_equal(chance.y, [row.similarity.null for row in rows])
    colours = [{curve.label: curve.colour for curve in panel.curves} for panel in (contexts, words)]  # type: ignore[union-attr]
    assert colours[0] == colours[1], "a rival has one colour in all panels"
    with pytest.raises(InputError, match="at least one row"):
        rival_bars(Rivals((), 0, (), 0, 0, 0))


def test_a_loss_below_the_smallest_number_is_still_drawn(linear_case) -> None:  # type: ignore[no-untyped-def]
    figure = path(norm_path(linear_case[0], [10.0, 1e4]))
    loss = figure.panels[0]
    assert isinstance(loss, LinePanel)
    assert loss.curves[0].y[-1] < -400
    assert np.isfinite(loss.curves[0].y).all()


def test_nothing_to_draw_is_refused_in_words(prediction, stats, run) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match="at least one run"):
        feature_training({})
    with pytest.raises(InputError, match="at least one grid"):
        phase_diagram([])
    with pytest.raises(InputError, match="at least one step"):
        evolution({}, prediction)
    with pytest.raises(InputError, match=r"'UFM' has W \(40, 40\)"):
        feature_heatmaps(prediction, {"UFM": (run.W, run.H[:, 1:])}, stats=stats)
    with pytest.raises(InputError, match="every support is the whole vocabulary"):
        concepts(Concepts.of(np.zeros((3, 4))))
    with pytest.raises(InputError, match="'words' must have a row for each of the 2"):
        small_d(np.array([1.0, 2.0]), np.ones(2), {"words": np.ones(3)}, np.ones(2))


def test_snapshots_are_taken_at_the_first_record_after_each_step(snapshots, run) -> None:  # type: ignore[no-untyped-def]
    assert list(snapshots.taken) == [0, 32, 200]
    np.testing.assert_array_equal(snapshots.taken[200][0], run.W)
    assert "snapshots" not in run.trajectory.names


def test_a_figure_against_d_speaks_of_seeds_only_where_there_are_several() -> None:
    d, once, thrice = np.array([1.0, 2.0]), np.ones(2), np.ones((2, 3))
    assert "seeds" not in small_d(d, once, {"words": once}, once).caption
    assert "Bands: range over seeds." in small_d(d, once, {"words": thrice}, once).caption
