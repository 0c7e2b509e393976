"""Agreement across two kinds of training: other seeds, correction for attenuation, and decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokengeom_studies.common.measured import Interval, Rows
from tokengeom_studies.common.same_geometry import (
    Compared,
    add_comparisons,
    answer_for_all,
    largest_relative_gap,
    predicted_geometries,
    within,
)
from tokengeom_studies.common.torch_runs import DeviceText
from training_problems import random_statistics

CELL = {"text": "t"}


def interval(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 5)


@pytest.fixture(scope="module")
def text() -> DeviceText:
    return DeviceText(random_statistics(0, V=12, m=30))


def noisy_rows(text: DeviceText, noise: float, seeds: int = 6) -> list[Any]:
    """Runs of two trainings: a common part of all runs, one of each training, and noise of each run."""
    generator = np.random.default_rng(0)
    V, m, d = text.stats.V, text.stats.m, 400

    def factors(scale: float) -> tuple[Any, Any]:
        return scale * generator.standard_normal((V, d)), scale * generator.standard_normal((d, m))

    base = factors(1.0)
    own = {"a": factors(0.0), "b": factors(0.0)}
    runs = {}
    for training in own:
        for seed in range(seeds):
            W, H = (sum(parts) for parts in zip(base, own[training], factors(noise), strict=True))
            runs[training, seed] = text.geometry(W, H)
    rows = Rows()
    add_comparisons(rows, CELL, runs, {"gamma2": text.geometry(*base)})
    return rows.rows


@pytest.mark.parametrize("item", ["contexts", "tokens"])
def test_a_common_part_is_found_behind_the_differences_between_seeds(text: DeviceText, item: str) -> None:
    found = Compared(noisy_rows(text, 0.7), CELL)
    assert np.mean(list(found.across("a", "a", item).values())) < 0.9
    assert found.corrected("a", "b", item).mean == pytest.approx(1.0, abs=0.06)
    assert abs(found.less_than_seeds("a", "b", item).mean) < 0.06
    assert min(found.with_prediction("a", "gamma2", item).values()) > 0.5
    # The prediction is the common part itself.
    assert np.mean(list(found.with_prediction("a", "gamma2", item).values())) < 0.95
    assert found.corrected_prediction("a", "gamma2", item).mean == pytest.approx(1.0, abs=0.06)


def test_pairs_of_one_seed_are_left_out() -> None:
    text = DeviceText(random_statistics(0, V=12, m=30))
    one = text.geometry(np.eye(text.stats.V), np.ones((text.stats.V, text.stats.m)))
    rows = Rows()
    add_comparisons(rows, CELL, {("a", 0): one, ("b", 0): one, ("a", 1): one}, {})
    assert [(row["trainings"], row["seeds"]) for row in rows.rows] == [
        (["a", "a"], [0, 1]),
        (["a", "b"], [1, 0]),
    ]


def test_agreement_is_compared_with_the_training_whose_seeds_agree_less_well() -> None:
    values = {("a", "a"): 0.9, ("b", "b"): 0.5, ("a", "b"): 0.6}
    rows = [
        {"kind": "pair", **CELL, "trainings": list(pair), "seeds": [s, t], "contexts": value, "tokens": value}
        for pair, value in values.items()
        for s in range(3)
        for t in range(3)
        if s < t or (s != t and pair == ("a", "b"))
    ]
    found = Compared(rows, CELL)
    assert found.less_than_seeds("b", "a", "contexts").mean == pytest.approx(0.1)
    assert found.corrected("a", "b", "contexts").mean == pytest.approx(0.6 / np.sqrt(0.45))


def test_a_prediction_has_the_loss_asked_for_and_a_certificate(text: DeviceText) -> None:
    found, facts = predicted_geometries(text, 0.1)
    assert set(found) == {"nuclear", "gamma2", "supports"}
    for norm in ("nuclear", "gamma2"):
        assert facts[norm]["loss_gap"] == pytest.approx(0.1, rel=0.02)
        assert facts[norm]["relative_gap"] < 0.01


def test_a_prediction_that_cannot_be_solved_is_left_out_with_its_reason(text: DeviceText) -> None:
    found, facts = predicted_geometries(text, 50.0)
    assert set(found) == {"supports"}
    assert "gap of a uniform guess" in facts["gamma2"]["problem"]
    assert np.isnan(largest_relative_gap([{"kind": "prediction", **facts}]))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.02, 0.02, "yes"),
        (0.03, 0.05, "no"),
        (-0.05, -0.04, "no"),
        (-0.05, 0.0, "undecided"),
        (0.0, 0.04, "undecided"),
    ],
)
def test_a_difference_is_small_where_its_whole_interval_is(low: float, high: float, expected: str) -> None:
    assert within(interval(low, high), 0.03) == expected


def test_an_answer_for_all_is_no_where_one_case_is() -> None:
    one = interval(0.0, 0.1)
    assert answer_for_all({"a": ("yes", one), "b": ("yes", one)}, "x").decision == "yes"
    assert answer_for_all({"a": ("yes", one), "b": ("undecided", one)}, "x").decision == "undecided"
    assert answer_for_all({"a": ("yes", one), "b": ("no", one), "c": ("undecided", one)}, "x").decision == "no"
    assert answer_for_all({}, "x").decision == "undecided"
