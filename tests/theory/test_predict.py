"""The verb `predict`: what it returns, the settings that it takes, and what it refuses."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest

import tokengeom as tg
from feature_cases import from_counts, random_counts
from tokengeom.core.errors import InputError, ProblemError, ResourceError, StatisticsError
from tokengeom.core.progress import AbstractProgress, AbstractStage
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction, predict_linear
from tokengeom.theory.predict import PredictSettings, predict

STATS = from_counts(random_counts(12, 30, 3, seed=0))
H = np.random.default_rng(0).normal(size=(5, 30))


def test_embeddings_choose_the_linear_model() -> None:
    assert isinstance(predict(STATS), FeaturePrediction)
    linear = predict(STATS, embeddings=H)
    assert isinstance(linear, LinearPrediction)
    assert linear.statistics_hash == STATS.hash
    assert linear.stats is STATS
    assert linear.to_dict() == predict_linear(STATS, H).to_dict()


def test_saved_statistics_are_used_by_their_path(tmp_path: Path) -> None:
    STATS.save(tmp_path / "stats")
    for given in (tmp_path / "stats", str(tmp_path / "stats")):
        assert predict(given).to_dict() == predict(STATS).to_dict()


def test_the_settings_are_shown_in_the_signature_and_the_documentation() -> None:
    parameters = inspect.signature(predict).parameters
    assert list(parameters)[:5] == ["stats", "embeddings", "loss_gap", "ties", "progress"]
    assert parameters["max_iterations"].default == PredictSettings().max_iterations == 5000
    assert "random starts" in (predict.__doc__ or "")
    assert tg.predict is predict


def test_settings_reach_the_solver() -> None:
    rough, fine = predict(STATS, tolerance=1e-2, spread_solves=0), predict(STATS, tolerance=1e-9, spread_solves=3)
    assert rough.spread is None
    assert fine.spread is not None
    assert fine.spread.solves == 3
    assert fine.certificate.relative_gap <= 1e-9 < rough.certificate.relative_gap
    stopped = predict(STATS, tolerance=1e-12, max_iterations=2, spread_solves=0)
    assert "max_iterations" in stopped.status
    assert predict(STATS, seed=1).spread != predict(STATS, seed=2).spread


def test_the_linear_model_takes_a_tolerance_and_refuses_settings_that_it_does_not_use() -> None:
    assert predict(STATS, embeddings=H, tolerance=1e-7).certificate.holds(1e-7)
    assert predict(STATS, embeddings=H, device="cpu", seed=0).margin == predict(STATS, embeddings=H).margin
    for setting in ({"max_iterations": 10}, {"device": "cuda"}, {"spread_solves": 3}, {"seed": 1}):
        with pytest.raises(InputError, match=f"{next(iter(setting))} is a setting of learned features"):
            predict(STATS, embeddings=H, **setting)
    with pytest.raises(ProblemError, match=r"tolerance is a relative gap.*got 0\.0"):
        predict(STATS, embeddings=H, tolerance=0.0)


def test_statistics_and_settings_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "stories.txt").write_text("a b a c")
    with pytest.raises(StatisticsError, match=r"tg\.count"):
        predict(tmp_path / "stories.txt")
    with pytest.raises(StatisticsError, match="from_counts"):
        predict(np.eye(3))  # type: ignore[call-overload]
    with pytest.raises(InputError, match="Did you mean 'tolerance'"):
        predict(STATS, tolerence=1e-3)  # type: ignore[call-overload]
    with pytest.raises(ProblemError, match="tolerance"):
        predict(STATS, tolerance=0.0)
    with pytest.raises(ProblemError, match="device='tpu'"):
        predict(STATS, device="tpu")
    with pytest.raises(ProblemError, match="2 tokens"):
        predict(from_counts(np.ones((1, 3), dtype=int)))
    with pytest.raises(ResourceError, match=r"GiB.*predict_proxy"):
        predict(STATS, memory_limit=20_000)


class Recorded(AbstractProgress, AbstractStage):
    """Keeps what it is asked to show."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.notes: list[str] = []

    def stage(self, title: str, total: float | None) -> AbstractContextManager[AbstractStage]:
        self.titles.append(title)
        return nullcontext(self)

    def advance(self, amount: float, note: str = "") -> None:
        self.notes.append(note)


def test_progress_shows_the_proven_gap() -> None:
    shown = Recorded()
    predict(STATS, progress=shown, tolerance=1e-9)
    predict(STATS, embeddings=H, progress=shown)
    assert shown.titles == ["Predicting", "Predicting"]
    assert all("estimated gap" in note for note in shown.notes)
    assert shown.notes
