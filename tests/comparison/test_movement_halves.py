"""Halves of texts: two samples of one language are alike, two languages are not, and chance moves nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from movement_cases import brute_force, named_counts, sampled
from synthetic_languages import WindowLanguage, planted_supports
from tokengeom.comparison.compare_texts import compare_texts
from tokengeom.comparison.movement import HalfNumbers
from tokengeom.comparison.text_comparison import FEWEST_WINDOWS, TextComparison
from tokengeom.core.numerics import cosines
from tokengeom.statistics.shared import same_support_units, shared_halves, shared_statistics
from tokengeom.theory.predict import predict

LANGUAGE = planted_supports(24, [3, 4, 5, 6] * 12, zipf=0.7, seed=3)
OTHER_LANGUAGE = planted_supports(24, [3, 4, 5, 6] * 12, zipf=0.7, seed=4)
AGREEMENTS = ("context_agreement", "token_agreement")
DRAWS = 20


def compared(language: WindowLanguage, other: WindowLanguage, n: int, m: int, seed: int) -> TextComparison:
    texts = sampled(language, n, seed), sampled(other, m, 1000 + seed)
    return compare_texts(*texts, permutations=0, seed=seed)


@pytest.mark.parametrize("m", [2500, 12_500])
def test_two_samples_of_one_language_have_a_corrected_agreement_of_1(m: int) -> None:
    """Also where one of them is five times as large, and its geometry less noisy."""
    found = [compared(LANGUAGE, LANGUAGE, 2500, m, seed) for seed in range(DRAWS)]
    for name in AGREEMENTS:
        known = [one.agreements[name] for one in found]
        assert np.mean([one.corrected for one in known]) == pytest.approx(1.0, abs=0.03)
        assert sum(one.corrected_low <= 1.0 <= one.corrected_high for one in known) >= 0.8 * DRAWS
        # Without the correction they look different.
        assert max(one.mean for one in known) < 0.95
    moved = [one.beyond_chance / one.seen_enough for each in found for one in each.movements]
    assert np.mean(moved) < 1 / 15 + 0.02


def test_two_languages_have_less() -> None:
    between = WindowLanguage(replace(LANGUAGE.truth, P=(0.5 * LANGUAGE.truth.P + 0.5 * OTHER_LANGUAGE.truth.P).tocsc()))
    for seed in range(3):
        far, near = (compared(LANGUAGE, other, 4000, 4000, seed) for other in (OTHER_LANGUAGE, between))
        for name in AGREEMENTS:
            assert far.agreements[name].corrected_high < 0.5
            assert far.agreements[name].corrected < near.agreements[name].corrected - 0.2
            assert near.agreements[name].corrected_high < 1.0
        assert all(one.beyond_chance > 0.5 * one.seen_enough for one in far.movements)
        assert "where 1 would be two samples of one text" in far.summary()


def test_a_text_is_a_sample_of_itself() -> None:
    text = sampled(LANGUAGE, 2500, 0)
    same = compare_texts(text, text, permutations=0)
    for name in AGREEMENTS:
        known = same.agreements[name]
        assert (known.corrected, known.corrected_low, known.corrected_high) == pytest.approx((1.0, 1.0, 1.0), abs=1e-9)
        assert known.mean < 0.95
    assert not any(one.beyond_chance or one.listed for one in same.movements)
    assert "Nothing moved" in same.summary()


def test_numbers_are_those_of_the_predictions_of_the_halves() -> None:
    texts = sampled(LANGUAGE, 700, 0), sampled(OTHER_LANGUAGE, 700, 1)
    found = compare_texts(*texts, permutations=0, tolerance=1e-6)
    halves = shared_halves(*shared_statistics(*texts), seed=0)
    assert halves is not None
    assert found.halves is not None
    assert (found.halves.windows, found.halves.tokens) == (min(one.n for one in halves), halves[0].V)
    predictions = [predict(one, loss_gap=0.2, tolerance=1e-6) for one in halves]
    H = [known.H for known in predictions]
    units = same_support_units(halves)
    apart = np.not_equal.outer(units, units)
    x = [cosines(one)[apart] for one in H]
    r: Any = np.corrcoef(x)
    known = found.agreements["context_agreement"]
    assert (known.reproducible, known.reliability) == pytest.approx((r[0, 1], r[2, 3]), abs=1e-4)
    assert known.mean == pytest.approx(r[:2, 2:].mean(), abs=1e-4)
    assert known.corrected == pytest.approx(r[:2, 2:].mean() / np.sqrt(r[0, 1] * r[2, 3]), abs=1e-4)
    moved = {(a, b): np.array(brute_force(H[a], H[b], units)) for a in range(4) for b in range(4)}
    least = np.min([moved[a, b] for a in (0, 1) for b in (2, 3)], axis=0)
    names = [halves[0].context_text(j) for j in range(halves[0].m)]
    beyond = dict(zip(found.contexts.names, found.contexts.beyond, strict=True))
    often = np.min([one.context_counts for one in halves], axis=0) >= FEWEST_WINDOWS
    assert 0 < often.sum() < often.size
    assert found.contexts.seen_enough == often.sum()
    expected = np.where(often, least - np.maximum(moved[0, 1], moved[2, 3]), np.nan)
    np.testing.assert_allclose([beyond[name] for name in names], expected, atol=1e-4)
    assert all(np.isnan(beyond[name]) for name in set(found.contexts.names) - set(names))
    W = [(known.W - known.W.mean(axis=0)).T for known in predictions]
    tokens = [np.array(brute_force(*pair, range(halves[0].V))) for pair in combinations(W, 2)]
    often = np.min([one.counts.sum(axis=1) for one in halves], axis=0) >= FEWEST_WINDOWS
    expected = np.where(often, np.min(tokens[1:5], axis=0) - np.maximum(tokens[0], tokens[5]), np.nan)
    beyond = dict(zip(found.tokens.names, found.tokens.beyond, strict=True))
    np.testing.assert_allclose([beyond[token] for token in halves[0].vocabulary], expected, atol=1e-4)


def test_the_interval_is_that_of_the_ratio_without_each_item() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(6, 30))
    halves = [truth + rng.normal(size=truth.shape) for _ in range(4)]
    numbers = HalfNumbers.of_halves("tokens", halves)
    draws = 1.0 - np.eye(30)[:3]
    values = numbers.resampled(draws)
    for k in range(3):
        kept = np.delete(np.arange(30), k)
        off = ~np.eye(29, dtype=bool)
        r: Any = np.corrcoef([cosines(half[:, kept])[off] for half in halves])
        expected = r[:2, 2:].mean() / np.sqrt(r[0, 1] * r[2, 3])
        assert values["", "token_agreement, corrected"][k] == pytest.approx(expected)


def test_without_any_agreement_between_halves_nothing_is_corrected() -> None:
    X = np.eye(5)
    X[0, 1] = 1.0
    opposite = np.eye(5)
    opposite[0, 1] = -1.0
    values = HalfNumbers.of_halves("tokens", [X, opposite, X, X]).resampled(np.ones((1, 5)))
    assert values["", "token_agreement, reproducible"][0] < 0
    assert np.isnan(values["", "token_agreement, corrected"][0])


def test_what_really_changed_is_listed_before_what_is_rare() -> None:
    """One frequent context changes its followers; two in three others are so rare that chance moves them further."""
    truth = LANGUAGE.truth
    P = truth.P.toarray()
    P[:, 2] = np.roll(P[:, 2], 7)
    windows = np.where(np.arange(P.shape[1]) < 16, 200, 4)
    language = WindowLanguage(replace(truth, pi=windows / windows.sum()))
    other = WindowLanguage(replace(language.truth, P=csc_array(P)))
    for seed in range(3):
        texts = sampled(language, 4000, seed), sampled(other, 4000, 100 + seed)
        found = compare_texts(*texts, permutations=0)
        listed = found.contexts.listed
        assert listed[0].name == "c002"
        assert listed[0].beyond > 2 * max([item.beyond for item in listed[1:]], default=0.0)
        assert [item.beyond for item in listed] == sorted((item.beyond for item in listed), reverse=True)
        assert all(item.beyond > 0 for item in listed)
        by_movement = compare_texts(*texts, permutations=0, halves=False)
        assert by_movement.contexts.listed[0].name != "c002", "movement alone is led by chance"
        assert listed[0].moved == by_movement.contexts.moved[by_movement.contexts.names.index("c002")]


def test_rare_items_are_not_listed() -> None:
    """Both have one window per half and are the same in the halves of a text, and different in the two texts."""
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 30, size=(14, 20))
    one, other = counts.copy(), counts + rng.integers(0, 3, size=counts.shape)
    for table, place in ((one, 3), (other, 4)):
        table[:, 5:9] = 0
        table[place, 5:9] = 3
    found = compare_texts(named_counts(one), named_counts(other), permutations=0, top=20)
    rare = [found.contexts.names.index(f"c{j:02d}") for j in range(5, 9)]
    assert found.contexts.moved[rare].min() > 0.5
    assert np.isnan(np.array(found.contexts.beyond)[rare]).all()
    assert not {item.name for item in found.contexts.listed} & {found.contexts.names[j] for j in rare}
