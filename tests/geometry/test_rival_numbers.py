"""Numbers of several explanations on the same draws: paired differences, and means over folds."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.geometry.agreement import draw
from tokengeom.geometry.rival_numbers import FoldedNumbers, RivalNumbers, full_cosines
from tokengeom.geometry.similarity import structural_similarity


def test_differences_are_paired() -> None:
    rng = np.random.default_rng(0)
    run = rng.normal(size=(6, 40))
    near = run + 0.7 * rng.normal(size=run.shape)
    targets = {"a": near, "b": near + 0.02 * rng.normal(size=run.shape)}
    drawn = draw(RivalNumbers("contexts", run, targets), resamples=200, permutations=0, seed=0)
    difference, low, high = drawn.difference("a similarity", "b similarity")
    alone = drawn.agreements()["a similarity"]
    assert low <= difference <= high
    assert high - low < 0.2 * (alone.high - alone.low)
    assert drawn.difference("a similarity", "a similarity") == (0.0, 0.0, 0.0)


def test_numbers_are_means_over_folds_and_pairs_stay_within_folds() -> None:
    rng = np.random.default_rng(4)
    parts = [RivalNumbers("held-out contexts", rng.normal(size=(3, n)), {"a": rng.normal(size=(3, n))}) for n in (8, 4)]
    both = FoldedNumbers("held-out contexts", [np.arange(8), np.arange(8, 12)], parts)
    first, second = (structural_similarity(full_cosines(part.run), full_cosines(part.targets["a"])) for part in parts)
    assert both.values()["a similarity"] == pytest.approx((2 * first + second) / 3)
    order = np.array([[9, 3, 0, 1, 2, 11, 4, 5, 8, 6, 7, 10]])
    within = [np.array([6, 3, 0, 1, 2, 7, 4, 5]), np.array([2, 0, 1, 3])]
    permuted = [
        structural_similarity(full_cosines(part.run[:, place]), full_cosines(part.targets["a"]))
        for part, place in zip(parts, within, strict=True)
    ]
    assert both.permuted(order)["a similarity"][0] == pytest.approx((2 * permuted[0] + permuted[1]) / 3)


def test_an_item_in_two_folds_is_drawn_in_both() -> None:
    rng = np.random.default_rng(6)
    run, target = rng.normal(size=(2, 3, 6))
    columns = [np.array([0, 1, 2, 3]), np.array([2, 3, 4, 5])]
    parts = [RivalNumbers("held-out contexts", run[:, c], {"a": target[:, c]}) for c in columns]
    both = FoldedNumbers("held-out contexts", columns, parts)
    draws = np.array([[1.0, 0.0, 2.0, 1.0, 1.0, 1.0]])
    alone = [part.resampled(draws[:, c])["a similarity"] for part, c in zip(parts, columns, strict=True)]
    assert both.size == 6
    np.testing.assert_allclose(both.resampled(draws)["a similarity"], np.mean(alone, axis=0))


def test_a_fold_without_items_in_a_resample_is_not_counted() -> None:
    rng = np.random.default_rng(5)
    parts = [RivalNumbers("held-out contexts", rng.normal(size=(3, 4)), {"a": rng.normal(size=(3, 4))}) for _ in "ab"]
    draws = np.array([[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 8])
    columns = [np.arange(4), np.arange(4, 8)]
    found = FoldedNumbers("held-out contexts", columns, parts).resampled(draws)["a similarity"]
    assert found[0] == pytest.approx(parts[0].values()["a similarity"])
    assert np.isnan(found[1])


def test_a_fold_with_fewer_than_three_different_items_in_a_resample_is_not_counted() -> None:
    rng = np.random.default_rng(0)
    columns = [np.arange(4), np.arange(4, 8)]
    folds = [RivalNumbers("x", rng.normal(size=(3, 4)), {"R": rng.normal(size=(3, 4))}) for _ in columns]
    numbers = FoldedNumbers("x", columns, folds)
    # Any two cosine matrices of two items correlate perfectly; only the second fold is informative here.
    draws = np.array([[4.0, 1, 0, 0, 1, 1, 1, 1]])
    found = numbers.resampled(draws)
    alone = folds[1].resampled(np.ones((1, 4)))
    assert found["R similarity"] == pytest.approx(alone["R similarity"])
    assert found["R cka"] == pytest.approx(alone["R cka"])


def test_a_fold_in_which_a_rival_has_no_variation_is_counted_for_none() -> None:
    """SIM with a matrix of equal cosines is 1 whatever the run does."""
    rng = np.random.default_rng(0)
    run, other = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    flat = RivalNumbers("x", run, {"flat": np.ones((1, 4)), "other": other})
    assert flat.values()["flat similarity"] == pytest.approx(1.0)
    varied = RivalNumbers("x", run, {"flat": rng.normal(size=(3, 4)), "other": other})
    both = FoldedNumbers("x", [np.arange(4), np.arange(4, 8)], [flat, varied])
    assert both.values() == pytest.approx(varied.values())
    orders = np.array([[1, 0, 3, 2, 4, 5, 6, 7]])
    assert both.permuted(orders)["other similarity"] == pytest.approx(varied.values()["other similarity"])
    none = FoldedNumbers("x", [np.arange(4)], [flat])
    assert np.isnan(list(none.values().values())).all()
