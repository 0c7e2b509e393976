"""Choices on other items than those they are judged on: explicit pairs, scipy's least squares, noise, and mixtures."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from tokengeom.comparison.explained import FEWEST_IN_FOLD, FOLDS, CrossFit
from tokengeom.comparison.similarity_numbers import full_cosines
from tokengeom.core.numerics import Float, Int

UNITS = np.concatenate([np.arange(30), np.repeat(np.arange(10), [6, 4, 3, 2, 2, 1, 1, 1, 1, 1])])


def symmetric(rng: np.random.Generator, n: int = UNITS.size) -> Float:
    M = rng.normal(size=(n, n))
    return np.asarray(M + M.T)


def explicit(cross: CrossFit, folds: Int) -> tuple[Int, Int, Float]:
    """Pairs of items inside some folds that count, one by one, with their weights."""
    n = cross.fold.size
    inside = [(i, j) for i in range(n) for j in range(n) if cross.fold[i] in folds and cross.fold[j] in folds]
    rows, columns = np.array(inside).T
    weight = cross.weight[rows, columns]
    return rows[weight > 0], columns[weight > 0], weight[weight > 0]


def correlation(x: Float, y: Float, w: Float) -> float:
    C = np.cov(x, y, aweights=w)
    return float(C[0, 1] / np.sqrt(C[0, 0] * C[1, 1]))


def agreement(cross: CrossFit, X: Float, Y: Float) -> float:
    i, j, w = explicit(cross, np.unique(cross.fold))
    return correlation(X[i, j], Y[i, j], w)


def test_folds_hold_whole_units_and_few_units_are_not_split() -> None:
    cross = CrossFit.of(UNITS)
    for unit in range(30):
        assert np.unique(cross.fold[unit == UNITS]).size == 1
    sizes = np.bincount([cross.fold[unit == UNITS][0] for unit in range(30)])
    assert sizes.tolist() == [10, 10, 10]
    assert np.unique(CrossFit.of(np.arange(FOLDS * FEWEST_IN_FOLD)).fold).size == FOLDS
    assert np.unique(CrossFit.of(np.arange(FOLDS * FEWEST_IN_FOLD - 1)).fold).size == 1


@pytest.mark.parametrize("by_unit", [False, True])
def test_agreements_are_weighted_correlations_over_pairs_of_different_units(by_unit: bool) -> None:
    rng, cross = np.random.default_rng(0), CrossFit.of(UNITS, by_unit=by_unit)
    X, candidates = symmetric(rng), [symmetric(rng), symmetric(rng), np.ones((UNITS.size, UNITS.size))]
    found = cross.agreements(X, candidates)
    assert found[:2] == pytest.approx([agreement(cross, X, Y) for Y in candidates[:2]])
    assert np.isnan(found[2])
    total = [
        cross.weight[np.ix_(np.flatnonzero(a == UNITS), np.flatnonzero(b == UNITS))].sum()
        for a, b in ((0, 1), (0, 20), (20, 21), (0, 0))
    ]
    assert total == pytest.approx([1.0, 1.0, 1.0, 0.0] if by_unit else [7 * 5, 7, 1, 0])


def test_a_choice_uses_no_pair_with_an_item_that_it_is_judged_on() -> None:
    """The first candidate is perfect inside one fold, the second everywhere else."""
    rng, cross = np.random.default_rng(0), CrossFit.of(UNITS)
    X, noise = symmetric(rng), symmetric(rng)
    inside = cross.fold == 0
    of_fold = np.outer(inside, inside)
    first, second = np.where(of_fold, X, noise), np.where(of_fold, noise, X)
    chosen, best = cross.choose(X, [first, second])
    for a in range(FOLDS):
        for b in range(FOLDS):
            block = np.ix_(cross.fold == a, cross.fold == b)
            judged_on_first = {a, b} == {1, 2}  # only fold 0 is left to choose on
            assert np.array_equal(chosen[block], (first if judged_on_first else second)[block])
    assert best == 1, "on all items"
    np.testing.assert_array_equal(chosen, chosen.T)


def test_with_few_units_the_choice_is_that_on_all_items_and_undefined_candidates_lose() -> None:
    rng, units = np.random.default_rng(0), np.arange(8)
    X = full_cosines(rng.normal(size=(3, 8)))
    near, far = X + 0.1 * symmetric(rng, 8), symmetric(rng, 8)
    chosen, best = CrossFit.of(units).choose(X, [far, np.ones((8, 8)), near])
    assert best == 2
    np.testing.assert_array_equal(chosen, near)


def by_hand(cross: CrossFit, X: Float, explanations: list[Float]) -> Float:
    """Least squares with non-negative weights and an intercept, on explicit pairs of the other folds."""
    combined = np.empty_like(X)
    for a in range(FOLDS):
        for b in range(FOLDS):
            i, j, w = explicit(cross, np.setdiff1d(np.arange(FOLDS), [a, b]))
            root = np.sqrt(w)
            columns = np.stack([Y[i, j] for Y in explanations], axis=1)
            means, mean = np.average(columns, axis=0, weights=w), np.average(X[i, j], weights=w)
            weights, _ = nnls(root[:, None] * (columns - means), root * (X[i, j] - mean))
            block = np.ix_(cross.fold == a, cross.fold == b)
            combined[block] = mean + sum(
                c * (Y[block] - m) for c, Y, m in zip(weights, explanations, means, strict=True)
            )
    return combined


@pytest.mark.parametrize("by_unit", [False, True])
def test_the_sum_of_explanations_is_that_of_least_squares_on_explicit_pairs(by_unit: bool) -> None:
    rng, cross = np.random.default_rng(1), CrossFit.of(UNITS, by_unit=by_unit)
    explanations = [symmetric(rng) for _ in range(4)]
    explanations.append(explanations[0] + 1e-3 * explanations[1])  # nearly the same as another
    X = explanations[0] - 0.5 * explanations[1] + 0.3 * explanations[2] + 2.0 + symmetric(rng)
    np.testing.assert_allclose(cross.together(X, explanations), by_hand(cross, X, explanations), atol=1e-6)


def test_a_mixture_is_explained_better_by_the_sum_than_by_any_part() -> None:
    rng, cross = np.random.default_rng(2), CrossFit.of(UNITS)
    parts = [full_cosines(rng.normal(size=(4, UNITS.size))) for _ in range(3)]
    X = 0.5 * parts[0] + 0.3 * parts[1] + 0.2 * parts[2]
    assert agreement(cross, X, cross.together(X, parts)) == pytest.approx(1.0, abs=1e-9)
    noisy = X + 0.2 * symmetric(rng)
    alone = cross.agreements(noisy, parts)
    assert agreement(cross, noisy, cross.together(noisy, parts)) > alone.max()
    # One part that explains everything is not made worse by others that explain nothing.
    single = parts[0] + 0.2 * symmetric(rng)
    best = cross.agreements(single, parts).max()
    assert agreement(cross, single, cross.together(single, parts)) > best - 0.02


def test_an_explanation_that_varies_only_by_rounding_has_no_part_in_the_sum() -> None:
    rng, cross = np.random.default_rng(4), CrossFit.of(UNITS)
    parts = [symmetric(rng) for _ in range(2)]
    # The second part would need a negative weight, for which the next explanation could stand in.
    X, flat = parts[0] - parts[1] + symmetric(rng), np.ones_like(parts[0])
    rounded = flat + 1e-9 * X
    first = np.flatnonzero(cross.fold == 0)
    inside = np.ix_(first, first)
    rounded[inside] += symmetric(rng, first.size)  # it varies only where it is judged
    np.testing.assert_allclose(cross.together(X, [*parts, rounded])[inside], cross.together(X, parts)[inside])
    constant = cross.together(X, [flat])
    assert np.isfinite(constant).all()
    assert np.unique(constant).size <= FOLDS * (FOLDS + 1) // 2, "the mean of the other folds"


def test_noise_is_not_explained_by_many_explanations_of_noise() -> None:
    """Fitted to the pairs that they are judged on, 20 explanations of noise would agree with it."""
    found, fitted = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        cross = CrossFit.of(np.arange(40))
        X, explanations = symmetric(rng, 40), [symmetric(rng, 40) for _ in range(20)]
        found.append(agreement(cross, X, cross.together(X, explanations)))
        i, j = np.triu_indices(40, 1)
        columns = np.stack([Y[i, j] for Y in explanations], axis=1)
        weights, _ = nnls(columns - columns.mean(axis=0), X[i, j] - X[i, j].mean())
        fitted.append(np.corrcoef(columns @ weights, X[i, j])[0, 1])
    # 780 pairs: a correlation of noise has a standard error of 0.036, and the mean of ten one of 0.011.
    assert abs(np.mean(found)) < 0.04
    assert np.mean(fitted) > 0.08
