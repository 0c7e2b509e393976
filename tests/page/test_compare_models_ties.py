"""Trained models compared with a prediction with ties: which contexts are used, and what is said beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengeom as tg
from tied_models import AdditiveModel, L
from tiny_models import ROWS, build, fit_head, save, sentences
from tokengeom.comparison.checkpoints import CheckpointCurve
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.progress import SilentProgress
from tokengeom.page import compare_models as module
from tokengeom.page.compare_models import FrequentOrDrawn, compare_models, contexts_for_ties, expected_with_ties
from tokengeom.page.settings import ReportSettings, TiesSettings
from tokengeom.statistics.context_features import ContextFeatures
from tokengeom.statistics.count import count
from tokengeom.theory.tied import TiedPrediction

GIVEN: dict[str, Any] = {"context": L, "permutations": 20, "bos": False}


class Recorded(SilentProgress):
    """Remembers sentences."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        """Remember the sentence."""
        self.said.append(sentence)


@pytest.fixture
def folder(additive: AdditiveModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a checkpoint that is the additive model."""
    monkeypatch.setattr(module, "load_model", lambda *_: additive.language_model())
    return save(build("llama"), tmp_path / "checkpoint-5")


def test_a_model_that_adds_up_tokens_is_explained_by_ties(folder: Path, tmp_path: Path) -> None:
    shown = Recorded()
    curve = compare_models(folder, sentences(), ties="positions", top_contexts=5, progress=shown, **GIVEN)
    (point,), stats = curve, curve.stats
    assert stats is not None
    assert point.m == stats.m == 94, "all contexts, not the most frequent"
    assert shown.said[0].startswith("With ties, 94 of the 94 contexts of the text are used, which have 100%")
    assert isinstance(curve.prediction, TiedPrediction)
    numbers = {name: number.value for name, number in point.headline().items()}
    assert list(numbers)[:2] == ["frequent contexts, with ties", "frequent contexts, without ties (at loss, nuclear)"]
    tied = [value for name, value in numbers.items() if name.endswith("with ties")]
    assert tied == pytest.approx([1.0] * 3, abs=0.02)
    assert numbers["rare contexts, without ties (at loss, nuclear)"] < 0.8
    assert "the theory then predicts one direction per next token" not in curve.summary()
    curve.save(tmp_path / "curve")
    again = tg.load(tmp_path / "curve")
    assert isinstance(again, CheckpointCurve)
    assert {name: number.value for name, number in again.points[0].headline().items()} == pytest.approx(numbers)
    checked = tg.verify(tmp_path / "curve")
    assert checked.ok, checked.failed
    assert any("prediction was not a saved result" in sentence for sentence in checked.not_checked)


def test_the_untied_prediction_is_left_out_as_asked(folder: Path) -> None:
    (point,) = compare_models(folder, sentences(), ties="positions", at_loss=False, **GIVEN)
    assert not any("without ties" in name for name in point.headline())


def test_a_loss_above_a_uniform_guess_is_refused_with_the_model_s_name(tmp_path: Path) -> None:
    model = save(build("llama"), tmp_path / "untrained")
    stats = count(sentences(), context=L, tokenizer=model, vocabulary_size=ROWS)
    fit_head(model, stats, share=-1.0)
    with pytest.raises(ProblemError, match="at the loss of untrained"):
        compare_models(model, sentences(), ties="positions", **GIVEN)


@pytest.mark.parametrize("asked", [None, 40, 41, 500])
def test_contexts_are_frequent_ones_and_a_random_choice_of_the_others(
    additive: AdditiveModel, asked: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIED_SIZES", (60, 30))
    tying, whole = TiesSettings("positions", asked), additive.stats
    assert whole.contexts is not None
    if asked is None:
        # As if all contexts, and 60 of them, would take too long.
        monkeypatch.setattr(module, "_fits", lambda rows, features, contexts, device: contexts <= 30)
    kept = contexts_for_ties(whole, tying, "cpu", SilentProgress())
    assert kept.m == min(asked or 30, whole.m)
    assert expected_with_ties(whole, tying, "cpu")[0] == kept.m
    counts, place = whole.context_counts, {tuple(row): j for j, row in enumerate(np.asarray(whole.contexts).tolist())}
    there = np.zeros(whole.m, dtype=bool)
    there[[place[tuple(row)] for row in np.asarray(kept.contexts).tolist()]] = True
    frequent = np.sort(counts)[::-1][: kept.m - kept.m // 2]
    assert there[counts > frequent[-1]].all(), "no context that is left out is more frequent"
    if kept.m < whole.m:
        assert (~there[counts == 1]).any()
        assert there[counts == 1].any(), "rare ones are among them"
    np.testing.assert_array_equal(kept.counts.toarray(), whole.counts.toarray()[:, there])


def test_drawn_contexts_have_a_fixed_seed_and_are_described(additive: AdditiveModel) -> None:
    cut = FrequentOrDrawn(10, 7)
    once, again = (additive.stats.cut(cut) for _ in range(2))
    assert once.hash == again.hash
    assert once.m == 17
    assert "the 10 most frequent contexts and 7 of the others, drawn at random" in once.effects[-1].sentence
    frequent = additive.stats.cut(FrequentOrDrawn(10))
    kept = {tuple(row) for row in np.asarray(frequent.contexts).tolist()}
    assert kept <= {tuple(row) for row in np.asarray(once.contexts).tolist()}


def test_work_and_memory_grow_with_contexts_and_features(
    additive: AdditiveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats = additive.stats
    assert stats.contexts is not None
    few = stats.cut(FrequentOrDrawn(40))
    assert few.contexts is not None
    contexts, times = expected_with_ties(few, TiesSettings("positions"), "cpu")
    assert contexts == stats.m, "the statistics know how many the text has"
    features = ContextFeatures.of_contexts(few.contexts, "positions").F
    assert times == pytest.approx(stats.m / few.m, rel=0.05), f"{features} features and contexts alike"
    monkeypatch.setattr(module, "free_memory", lambda device: 1000)
    monkeypatch.setattr(module, "TIED_SIZES", (50,))
    assert expected_with_ties(few, TiesSettings("positions"), "cpu")[0] == 50, "the last size in any case"


def test_settings_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(InputError, match="needs ties"):
        TiesSettings(tied_contexts=100)
    with pytest.raises(InputError, match="2 or more"):
        TiesSettings("positions", 1)
    with pytest.raises(InputError, match="sideways"):
        TiesSettings("sideways")
    with pytest.raises(InputError, match="about a trained model"):
        ReportSettings(ties="positions")
    with pytest.raises(InputError, match="sideways"):
        ReportSettings(model="folder", ties="sideways")
