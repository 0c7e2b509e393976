"""Trainings that are read at given losses, predictions that are kept, and texts in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from study_cases import counted_text
from tokengeom import NextTokenStatistics, TrainingSettings, predict
from tokengeom.extending import InputError
from tokengeom_studies.common.torch_runs import DeviceText, first_below, load_text, save_text


@pytest.fixture(scope="module")
def text() -> DeviceText:
    return DeviceText(counted_text())


def test_a_run_is_read_where_its_loss_first_falls_below_each_target(text: DeviceText) -> None:
    run = text.begin(TrainingSettings(model="ufm", dim=16, learning_rate=1e-2, rate_schedule="constant"))
    found = list(first_below(run, text, [0.1, 0.5], most_steps=2_000))
    assert [one.target for one in found] == [0.5, 0.1]
    for one in found:
        assert 0.9 * one.target < one.loss_gap <= one.target
        assert text.loss_gap(one.W, one.H) == pytest.approx(one.loss_gap, abs=1e-6)
    assert not list(first_below(run, text, [1e-9], most_steps=run.step + 5))


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
