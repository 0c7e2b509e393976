"""Rows of explanations on the same pairs: order and paired differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokengeom.comparison.agreement import assess
from tokengeom.comparison.explained import Lead, RivalRow, rival_rows
from tokengeom.comparison.explanations.base import ExplanationInfo
from tokengeom.comparison.similarity_numbers import Geometry, SimilarityNumbers
from tokengeom.results.convert import from_plain, to_plain

INFOS = {
    "near": ExplanationInfo("near", "close to the run", "supports"),
    "mine": ExplanationInfo("mine", "the prediction", "the loss", ours=True),
    "far": ExplanationInfo("far", "noise", "counts", "k=3"),
}


@pytest.fixture(scope="module")
def numbers() -> SimilarityNumbers:
    rng = np.random.default_rng(0)
    run = rng.normal(size=(6, 40))
    near = run + 0.4 * rng.normal(size=run.shape)
    targets = {"near": near, "mine": near + 0.02 * rng.normal(size=run.shape), "far": rng.normal(size=run.shape)}
    return SimilarityNumbers.of("contexts", run, targets, np.arange(40) // 2)


def test_rows_are_in_order_with_paired_differences(numbers: SimilarityNumbers) -> None:
    assessed = assess(numbers, permutations=20, seed=0)
    rows = rival_rows(assessed, INFOS, "mine")
    values = [row.agreement.value for row in rows]
    assert values == sorted(values, reverse=True)
    assert rows[-1].rival == "far"
    assert rows[0].behind == Lead(0.0, 0.0, 0.0)
    far = rows[-1]
    assert far.behind.value == pytest.approx(values[0] - values[-1])
    assert far.behind.is_clear
    assert (far.meaning, far.uses, far.parameters, far.ours) == ("noise", "counts", "k=3", False)
    mine = next(row for row in rows if row.rival == "mine")
    assert mine.ours
    assert mine.ahead == Lead(0.0, 0.0, 0.0)
    assert far.ahead.value == pytest.approx(far.agreement.value - mine.agreement.value)
    near = next(row for row in rows if row.rival == "near")
    width = near.agreement.high - near.agreement.low
    assert near.ahead.high - near.ahead.low < 0.3 * width, "differences are paired"


def test_rows_are_in_the_order_of_means_over_trainings_without_their_own_noise() -> None:
    """The first run and one seed alone would give another order."""
    rng = np.random.default_rng(1)
    shared = rng.normal(size=(6, 40))
    runs = [shared + 0.5 * rng.normal(size=shared.shape) for _ in range(3)]
    seeds = [shared + rng.normal(size=shared.shape) for _ in range(4)]
    vectors = {
        "mine": runs[0] + 0.4 * rng.normal(size=shared.shape),
        "far": shared + 0.6 * rng.normal(size=shared.shape),
    }
    targets = {key: Geometry.of(of) for key, of in vectors.items()} | {"near": Geometry.of(np.vstack(seeds), 4)}
    assessed = assess(SimilarityNumbers("tokens", tuple(map(Geometry.of, runs)), targets, 6), permutations=0, seed=0)
    rows = rival_rows(assessed, INFOS, "mine")
    by_name = {row.rival: row for row in rows}
    assert [row.rival for row in rows] == sorted(INFOS, key=lambda name: -by_name[name].agreement.fair)
    assert max(rows, key=lambda row: row.agreement.value).rival == "mine"
    assert rows[0].rival == "near"
    for row in rows:
        assert row.behind.value == pytest.approx(rows[0].agreement.fair - row.agreement.fair)
        assert row.ahead.value == pytest.approx(row.agreement.fair - by_name["mine"].agreement.fair)


def test_rows_show_the_floor_before_training_and_no_lead_without_a_prediction(numbers: SimilarityNumbers) -> None:
    rows = rival_rows(assess(numbers, 0, 0, {("far", "context_agreement"): 0.9}), INFOS, None)
    assert {row.rival: row.agreement.untrained for row in rows if np.isfinite(row.agreement.untrained)} == {"far": 0.9}
    assert all(np.isnan(row.ahead.value) for row in rows)


def test_rows_are_the_same_after_they_are_saved(numbers: SimilarityNumbers) -> None:
    for row in rival_rows(assess(numbers, permutations=20, seed=0), INFOS, "mine"):
        assert str(from_plain(RivalRow, to_plain(row), Path("folder"))) == str(row)
