"""`CheckpointCurve` as a result: saved with its arrays, loaded without its text, and described."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from forging import Entry, forge_array, forge_json
from geometry_cases import grouped_counts
from tokengeom.comparison.checkpoints import CheckpointComparison, CheckpointCurve
from tokengeom.comparison.compare import compare
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.verification.verify import verify


@pytest.fixture(scope="module")
def curve() -> CheckpointCurve:
    stats = NextTokenStatistics.from_counts(grouped_counts(8, 5, 2, 3, seed=0))
    prediction, rng = predict(stats, spread_solves=0), np.random.default_rng(0)

    def point(step: int, bias: bool, other_gap: float | None) -> CheckpointComparison:
        # Near the prediction, so that the loss is below that of a uniform guess.
        W, H = (x + 0.3 * rng.normal(size=x.shape) for x in (prediction.W, prediction.H))
        factors = Factors(W, H, 0.1 * rng.normal(size=stats.V) if bias else None)
        return CheckpointComparison(
            model=f"checkpoint-{step}",
            step=step,
            convention="W: the rows of the head.",
            factors=factors,
            loss_gap=1.0 / step,
            entropy=stats.entropy,
            bos=True,
            other_gap=other_gap,
            windows=stats.n,
            context=2,
            is_proxy=False,
            comparison=compare(prediction, factors, permutations=20),
        )

    return CheckpointCurve((point(1, False, None), point(20, True, 0.5)), prediction, stats)


def test_arrays_and_numbers_are_loaded_as_they_were_saved(curve: CheckpointCurve, tmp_path: Path) -> None:
    curve.save(tmp_path / "c")
    again = load(tmp_path / "c")
    assert isinstance(again, CheckpointCurve)
    assert str(again.to_dict()) == str(curve.to_dict())
    assert again.summary() == curve.summary()
    assert again.prediction is None
    assert again.stats is not None
    assert curve.stats is not None
    assert again.stats.equals(curve.stats)
    for mine, theirs in zip(curve, again, strict=True):
        np.testing.assert_array_equal(mine.W, theirs.W)
        np.testing.assert_array_equal(mine.H, theirs.H)
        assert mine.other_gap == theirs.other_gap
    assert again.points[0].bias is None
    np.testing.assert_array_equal(again.points[1].bias, curve.points[1].bias)
    assert verify(tmp_path / "c")


def test_damaged_arrays_are_refused(curve: CheckpointCurve, tmp_path: Path) -> None:
    curve.save(tmp_path / "c")
    path = tmp_path / "c/checkpoints.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"is damaged: checkpoints\.safetensors"):
        CheckpointCurve.load(tmp_path / "c")


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        (("points",), [], "the number of its checkpoints"),
        (("points", 0, "step"), "1", "points 0, step must be a whole number"),
        (("points", 1, "bos"), 1, "points 1, bos must be true or false"),
        (("points", 1, "model"), None, "model must be a text"),
        (("points", 0, "comparison", "runs"), 0, "runs must be at least 1"),
        (("points", 0, "comparison", "agreements"), {}, "is missing"),
        (("points", 0, "loss_gap"), [], "loss_gap must be a finite number"),
    ],
)
def test_forged_entries_are_refused(
    curve: CheckpointCurve, tmp_path: Path, entry: Entry, value: object, message: str
) -> None:
    folder = forge_json(curve.save(tmp_path / "c"), "checkpoints.json", entry, lambda before: value)
    with pytest.raises(InputError, match="c is damaged") as found:
        CheckpointCurve.load(folder)
    assert message in str(found.value)


def test_arrays_that_do_not_fit_are_refused(curve: CheckpointCurve, tmp_path: Path) -> None:
    changes: list[Callable[[NDArray[Any]], NDArray[Any]]] = [lambda x: x[0:1] * np.nan, lambda x: x.astype(int)]
    for name in ("0.W", "0.H", "1.bias"):
        for change in changes:
            folder = forge_array(curve.save(tmp_path / "c"), "checkpoints.safetensors", name, change)
            with pytest.raises(InputError, match="c is damaged"):
                CheckpointCurve.load(folder)


def test_a_forged_verdict_of_a_checkpoint_is_named(curve: CheckpointCurve, tmp_path: Path) -> None:
    folder = curve.save(tmp_path / "c")
    assert any("only reading the models again" in sentence for sentence in verify(folder).not_checked)
    forge_json(folder, "checkpoints.json", ("points", 1, "comparison", "reasons", 0), lambda before: "All is well.")
    assert verify(folder).failed == ("checkpoint 2: the verdict and its reasons follow from the numbers",)


def test_the_last_checkpoint_is_described_in_full_and_all_of_them_in_a_table(curve: CheckpointCurve) -> None:
    assert curve.steps.tolist() == [1, 20]
    assert [one["step"] for one in curve.to_dict()["checkpoints"]] == [1, 20]
    assert "which gives the lower loss (CE - H is about 0.5000 without it)" in curve.summary()
    last = curve.points[-1].comparison
    assert repr(curve).startswith(
        f"CheckpointCurve(checkpoints=2, last=checkpoint-20, loss_gap=0.05, verdict={last.verdict}, contexts, at the "
    )
    assert repr(curve.points[0]) == "CheckpointComparison(checkpoint-1, step=1, loss_gap=1, V=8, m=10)"
    html = curve._repr_html_()
    assert html.count("<tr>") == 3
    assert "tokens, in the limit" in html
    assert "checkpoint-20" in html


def test_agreement_is_given_at_the_loss_and_in_the_limit(curve: CheckpointCurve) -> None:
    point = curve.points[-1]
    assert list(point.headline()) == [
        "contexts, at the loss", "contexts, in the limit", "tokens, at the loss", "tokens, in the limit",
    ]  # fmt: skip
    assert point.headline()["tokens, at the loss"] == point.comparison.token_agreement
    data = point.to_dict()
    assert str(data["context_agreement"]) == str(point.comparison.context_agreement.to_dict())
    assert (data["loss_gap"], data["compared_loss_gap"]) == (0.05, point.comparison.loss_gap)
    assert data["verdict"] == point.comparison.verdict
    said = curve.summary().splitlines()
    assert not [line for line in said if re.search(r"with the run|the run's contexts", line)], "nothing was run"
    assert [line for line in said if "the model" in line and line.startswith(("The prediction", "Another", "Whether"))]
    assert said[1].startswith(f"checkpoint-20: loss gap 0.0500; {point.comparison.verdict}; contexts, at the loss ")
    assert f"After the support policy it is {point.comparison.loss_gap:.4f} nats above the floor" in curve.summary()


def test_the_summary_says_how_many_contexts_repeat(curve: CheckpointCurve) -> None:
    point = curve.points[0]
    assert "occur once" not in point.summary(), "not known"
    once = replace(point, occur_once=7).summary()
    assert "7 of these contexts occur once in the text, and 3 repeat." in once
    assert "occur once" not in replace(point, occur_once=0).summary()


def test_steps_that_are_not_known_are_numbered(curve: CheckpointCurve) -> None:
    unknown = CheckpointCurve(tuple(replace(point, step=None) for point in curve))
    assert unknown.steps.tolist() == [1, 2]
    assert not unknown.steps_known
