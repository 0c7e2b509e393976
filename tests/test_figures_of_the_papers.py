"""The page on the papers is made from what is kept; and figures that only it has: overlaps of supports, and angles."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pictures import SAME_PICTURE, changed_share
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.figures.base import HeatmapPanel, ScatterPanel
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.training.run import Run
from tokengeom.training.train import train


def papers_script() -> ModuleType:
    place = Path(__file__).parents[1] / "results/figures_of_the_papers.py"
    spec = importlib.util.spec_from_file_location("figures_of_the_papers", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAPERS = papers_script()


FEW = ["feature-training", "path", "synthetic-training"]
KEPT = {page.stem: page for page in sorted(PAPERS.KEPT.glob("*/*.json"))}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in FEW else [pytest.mark.slow]) for name in KEPT])
def test_a_picture_is_drawn_from_what_is_kept(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = PAPERS.PICTURES / f"{name}.png"
    monkeypatch.setattr(PAPERS, "PICTURES", tmp_path)
    PAPERS.save(PAPERS.load_data(KEPT[name]), name)
    assert changed_share(tmp_path / kept.name, kept) <= SAME_PICTURE


def test_the_page_has_every_picture_and_the_numbers_that_are_kept() -> None:
    page = PAPERS.PAGE.read_text(encoding="utf-8")
    assert all(f"(figures/{name}.png)" in page for name in KEPT)
    assert all(f"| {' | '.join(number)} |" in page for number in PAPERS.kept_numbers())


def test_natural_stories_are_those_of_the_kept_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = PAPERS.PICTURES
    monkeypatch.setattr(PAPERS, "PICTURES", tmp_path)
    (number,) = PAPERS.natural_stories()
    assert f"| {' | '.join(number)} |" in PAPERS.PAGE.read_text(encoding="utf-8")
    for picture in sorted(tmp_path.glob("*.png")):
        assert changed_share(picture, kept / picture.name) <= SAME_PICTURE


@pytest.fixture(scope="module")
def stats(built_in: NextTokenStatistics) -> NextTokenStatistics:
    return built_in.limited(top_contexts=60, vocabulary=40)


@pytest.fixture(scope="module")
def prediction(stats: NextTokenStatistics) -> FeaturePrediction:
    return predict(stats)


@pytest.fixture(scope="module")
def run(stats: NextTokenStatistics) -> Run:
    return train(stats, "ufm", dim=40, optimizer="adamw", learning_rate=1e-2, steps=200)


def test_overlaps_count_shared_tokens(prediction: FeaturePrediction, stats: NextTokenStatistics, run: Run) -> None:
    maps = PAPERS.support_heatmaps(prediction, {"UFM": run}, stats)
    assert maps.columns == 3
    overlaps, shared = maps.panels[2], maps.panels[5]
    assert isinstance(overlaps, HeatmapPanel)
    assert isinstance(shared, HeatmapPanel)
    S = stats.S.toarray() > 0
    contexts = [stats.context_text(j) for j in range(stats.m)]
    first, second = (set(np.flatnonzero(S[:, contexts.index(name)])) for name in overlaps.x_names[:2])
    assert overlaps.values[0, 1] == pytest.approx(len(first & second) / np.sqrt(len(first) * len(second)))
    first, second = (set(np.flatnonzero(S[stats.vocabulary.index(name)])) for name in shared.x_names[:2])
    assert shared.values[0, 1] == pytest.approx(len(first & second) / np.sqrt(len(first) * len(second)))


def test_the_prediction_compared_with_itself_lies_on_the_diagonal(prediction: FeaturePrediction) -> None:
    (panel,) = PAPERS.context_token_angles(prediction, Factors(prediction.W, prediction.H)).panels
    assert isinstance(panel, ScatterPanel)
    for points in panel.points:
        np.testing.assert_allclose(points.x, points.y, atol=1e-12)
        assert 0 < len(points.x) <= PAPERS.MOST_PAIRS


def test_the_angles_of_one_hot_labels_are_those_of_a_simplex() -> None:
    """Neural collapse: a context has its token's direction, and cosine -1/(V-1) with every other token."""
    stats = NextTokenStatistics.from_probabilities(np.eye(4))
    prediction = predict(stats)
    figure = PAPERS.context_token_angles(prediction, Factors(prediction.W, prediction.H))
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
    caption = PAPERS.context_token_angles(prediction, Factors.of(run)).caption
    assert f"found {C[S].mean():.3f}; other tokens" in caption
    assert f"found {C[~S].mean():.3f}. A context" in caption


def test_a_run_of_other_sizes_is_refused(prediction: FeaturePrediction, run: Run) -> None:
    with pytest.raises(ProblemError, match=f"m={prediction.reduction.m}"):
        PAPERS.context_token_angles(prediction, Factors(run.W, run.H[:, 1:]))
