"""Trainings and comparisons on a torch device, compared with those that every user calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from study_cases import counted_text
from tokengeom.comparison import logit_numbers
from tokengeom.comparison.explanations.log_counts import LogCounts
from tokengeom.comparison.explanations.simplex_frame import SimplexFrame
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import train
from tokengeom_studies.common.torch_runs import (
    DeviceText,
    SteppedRun,
    agreement,
    best_candidates,
    first_below,
    load_text,
    nuclear_norm,
    save_text,
    split_exponent,
)


@pytest.fixture(scope="module")
def text() -> DeviceText:
    return DeviceText(counted_text())


def random_factors(text: DeviceText, seed: int) -> Factors:
    generator = np.random.default_rng(seed)
    return Factors(generator.normal(size=(text.stats.V, 6)), generator.normal(size=(6, text.stats.m)))


def placed(text: DeviceText, found: Factors) -> tuple[object, object]:
    return text.torch.tensor(found.W).float(), text.torch.tensor(found.H).float()


def test_agreement_is_that_of_compare(text: DeviceText) -> None:
    one, other = random_factors(text, 1), random_factors(text, 2)
    found = agreement(text.geometry(*placed(text, one)), text.geometry(*placed(text, other)))
    groups = np.asarray(text.stats.groups.label)
    contexts = SimilarityNumbers.of("contexts", one.H, {"": other.H}, groups).values()
    tokens = SimilarityNumbers.of("tokens", one.tokens, {"": other.tokens}).values()
    assert found["contexts"] == pytest.approx(contexts["", "context_agreement"], abs=1e-5)
    assert found["tokens"] == pytest.approx(tokens["", "token_agreement"], abs=1e-5)


def test_agreement_does_not_change_under_a_rotation_or_a_softmax_shift(text: DeviceText) -> None:
    one, other = random_factors(text, 1), random_factors(text, 2)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    turned = Factors(one.W @ Q + 3.0, Q.T @ one.H)
    before = agreement(text.geometry(one.W, one.H), text.geometry(other.W, other.H))
    after = agreement(text.geometry(turned.W, turned.H), text.geometry(other.W, other.H))
    assert after == pytest.approx(before, abs=1e-5)


def test_loss_gap_and_norms_are_those_of_the_library(text: DeviceText) -> None:
    one = random_factors(text, 3)
    W, H = placed(text, one)
    assert text.loss_gap(W, H) == pytest.approx(text.labels.loss_gap(one.W @ one.H), rel=1e-4)
    centred = one.W @ one.H - (one.W @ one.H).mean(axis=0)
    assert nuclear_norm(W, H) == pytest.approx(np.linalg.norm(centred, "nuc"), rel=1e-5)
    _, carried, s = logit_numbers.balanced_factors(one)
    assert split_exponent(W, H) == pytest.approx(logit_numbers.split_exponent(carried, s), abs=0.02)


def test_rivals_have_the_geometry_of_their_fits(text: DeviceText) -> None:
    rivals = text.rivals()
    everything = np.arange(text.stats.m)
    for name, kind in (("log-counts", LogCounts(0.1, 0.5)), ("ETF", SimplexFrame())):
        fit = kind.fit(text.stats)
        expected = text.geometry(fit.tokens(np.arange(text.stats.V)).T, fit.contexts(everything))
        candidates = dict(rivals[name])
        found = candidates[kind.chosen]
        assert agreement(found, expected)["contexts"] == pytest.approx(1.0, abs=1e-4)
        best = best_candidates({name: rivals[name]}, expected)[name]
        assert best["contexts"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("model", ["ufm", "mlp"])
def test_a_stepped_run_makes_the_steps_of_train(text: DeviceText, model: str) -> None:
    settings = TrainingSettings(model=model, dim=8, steps=40, seed=3, precision="float32", rate_schedule="constant")
    run = SteppedRun(text, settings)
    for steps in (7, 33):
        run.advance(steps)
    expected = train(text.stats, model, dim=8, steps=40, seed=3, precision="float32", rate_schedule="constant")
    W, H = run.factors()
    assert np.asarray(W) @ np.asarray(H) == pytest.approx(expected.W @ expected.H, rel=1e-3, abs=1e-4)


def test_a_run_is_read_where_its_loss_first_falls_below_each_target(text: DeviceText) -> None:
    run = SteppedRun(text, TrainingSettings(model="ufm", dim=16, learning_rate=1e-2, rate_schedule="constant"))
    found = list(first_below(run, [0.1, 0.5], most_steps=2_000))
    assert [one.target for one in found] == [0.5, 0.1]
    for one in found:
        assert 0.9 * one.target < one.loss_gap <= one.target
        assert text.loss_gap(one.W, one.H) == pytest.approx(one.loss_gap, abs=1e-6)
    assert not list(first_below(run, [1e-9], most_steps=run.step + 5))


def test_predictions_are_those_of_predict_and_are_kept(tmp_path: Path) -> None:
    stats = counted_text(1)
    text = DeviceText(stats, cache=tmp_path)
    for norm in ("nuclear", "gamma2"):
        found = text.prediction(0.1, norm)
        expected = predict(stats, loss_gap=0.1, norm=norm, tolerance=1e-4)
        assert found.norm_value == pytest.approx(expected.norm_value, rel=2e-2)
    limit = text.limit
    assert limit.norm_value == pytest.approx(predict(stats).certificate.value, rel=2e-3)
    again = DeviceText(stats, cache=tmp_path)
    assert len(list(tmp_path.glob("*.npz"))) == 3
    np.testing.assert_array_equal(again.limit.W, limit.W)
    assert again.prediction(0.1, "nuclear").facts() == text.prediction(0.1, "nuclear").facts()


def test_a_text_is_written_and_read(tmp_path: Path) -> None:
    stats = counted_text(2)
    save_text(stats, tmp_path / "a.npz")
    again = load_text({"text": str(tmp_path / "a.npz")})
    assert (again.table != stats.table).nnz == 0
    np.testing.assert_array_equal(np.asarray(again.contexts), np.asarray(stats.contexts))
    with pytest.raises(InputError, match=r"an \.npz file"):
        load_text({"text": str(tmp_path / "b.npz")})
    with pytest.raises(InputError, match="Only statistics with counts"):
        save_text(NextTokenStatistics.from_probabilities(stats.P, stats.pi), tmp_path / "c.npz")
