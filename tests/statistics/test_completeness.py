"""Estimates of what a longer text would add, compared with what drawing the longer text shows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tokengeom import NextTokenStatistics, count
from tokengeom.core.numerics import Float, Int
from tokengeom.statistics.completeness import Completeness, estimate_completeness
from tokengeom.statistics.supports import half_text_correlation, support_cosines, warnings_about
from tokengeom.theory.proxy import proxy

V, CONTEXTS, WINDOWS = 300, 80, 250


def language(rng: np.random.Generator) -> Float:
    """P, V x m, with the long tail of a natural text: Zipf's law in another order of tokens per context."""
    share = 1.0 / np.arange(1, V + 1) ** 1.2
    return np.stack([rng.permutation(share / share.sum()) for _ in range(CONTEXTS)], axis=1)


def draw(P: Float, rng: np.random.Generator) -> Int:
    return np.stack([rng.multinomial(WINDOWS, P[:, j]) for j in range(P.shape[1])], axis=1)


def estimated(counts: Int) -> Completeness:
    return estimate_completeness(sparse.csc_array(counts))


@pytest.fixture(scope="module")
def draws() -> list[tuple[Float, Int, Int]]:
    """Twenty times: the language, a text, and as much text again."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(20):
        P = language(rng)
        made.append((P, draw(P, rng), draw(P, rng)))
    return made


def test_good_turing_is_the_probability_outside_the_support(draws: list[tuple[Float, Int, Int]]) -> None:
    found = np.array([estimated(first).missing_share for _, first, _ in draws])
    truth = np.array([np.where(first == 0, P, 0.0).sum() / CONTEXTS for P, first, _ in draws])
    assert truth.mean() > 0.1
    assert found.mean() == pytest.approx(truth.mean(), rel=0.02)
    assert np.abs(found - truth).max() < 0.1 * truth.mean()
    per_context = np.concatenate([estimated(first).missing for _, first, _ in draws])
    true_per_context = np.concatenate([np.where(first == 0, P, 0.0).sum(axis=0) for P, first, _ in draws])
    assert per_context.mean() == pytest.approx(true_per_context.mean(), rel=0.02)


def test_good_toulmin_is_what_twice_the_text_adds(draws: list[tuple[Float, Int, Int]]) -> None:
    found = [estimated(first) for _, first, _ in draws]
    truth = np.array([np.count_nonzero((first == 0) & (second > 0)) for _, first, second in draws])
    new = np.array([one.new_pairs for one in found])
    assert truth.mean() > 1000
    assert new.mean() == pytest.approx(truth.mean(), rel=0.03)
    # The error of an estimate is the standard error stated, with that of what the second text shows.
    spread = np.hypot([one.new_pairs_error for one in found], np.sqrt(truth))
    assert np.mean(np.abs(new - truth) < 2 * spread) >= 0.9


def test_supports_that_grow_are_at_most_about_those_with_a_token_seen_once() -> None:
    """With supports of few tokens, where not all of them grow."""
    rng = np.random.default_rng(1)
    share = 0.45 ** np.arange(V)
    P = np.stack([rng.permutation(share / share.sum()) for _ in range(2000)], axis=1)
    first, second = draw(P, rng), draw(P, rng)
    truth = np.mean(((first == 0) & (second > 0)).any(axis=0))
    assert 0.3 < truth < 0.8
    assert truth - 0.03 < estimated(first).growing_share < truth + 0.2


def test_counts_of_two_or_more_look_complete() -> None:
    found = estimated(np.full((3, 4), 7))
    assert (found.missing_share, found.growing_share, found.singles) == (0.0, 0.0, 0)
    assert "look complete" in " ".join(found.sentences)
    assert found.to_dict()["pairs"] == 12


def test_statistics_say_how_complete_they_are() -> None:
    stats = NextTokenStatistics.from_counts([[5, 1, 0], [1, 1, 4]])
    assert stats.completeness is not None
    assert stats.completeness.missing.tolist() == [1 / 6, 1.0, 0.0]
    assert stats.completeness.missing_share == 3 / 12
    said = " ".join(warnings_about(stats))
    assert "about 25% of further windows" in said
    assert "treats a token outside the support as impossible" in said
    assert said in stats.summary().replace("\n", " ")
    assert stats.to_dict()["completeness"]["missing_share"] == 0.25
    assert NextTokenStatistics.from_probabilities([[1.0], [0.0]]).completeness is None
    assert not warnings_about(NextTokenStatistics.from_counts([[50, 0, 9], [20, 30, 0], [0, 2, 9]]))


def test_cosines_of_supports_are_those_of_the_proxy() -> None:
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 3, (9, 7))
    counts[0] += 1
    S = proxy(counts > 0)
    unit = S / np.linalg.norm(S, axis=0)
    np.testing.assert_allclose(support_cosines(sparse.csc_array(counts)), unit.T @ unit, atol=1e-12)


def test_half_of_a_long_text_predicts_the_same_and_half_of_a_short_one_does_not() -> None:
    rng = np.random.default_rng(3)
    P = language(rng) * (rng.random((V, CONTEXTS)) < 0.1)
    P /= P.sum(axis=0)
    long, short = (np.round(P * n).astype(int) + (P > 0) for n in (1e7, 1.0))
    often, seldom = (half_text_correlation(sparse.csc_array(one)) for one in (long, short))
    assert often == pytest.approx(1.0)
    assert seldom is not None
    assert seldom < 0.9
    assert half_text_correlation(sparse.csc_array(short), seed=1) != seldom
    assert half_text_correlation(sparse.csc_array(np.ones((3, 2), int))) is None
    assert half_text_correlation(sparse.csc_array(np.full((3, 9), 1000))) is None


def test_what_is_merged_is_not_missing() -> None:
    """A token outside the vocabulary is in the support of a context that any such token followed."""
    stats = count(["a b a c a d a e a f a b a b"], context=1)
    assert stats.completeness is not None
    assert stats.completeness.missing[0] == 4 / 7
    merged = stats.limited(vocabulary=2, rest="merge").completeness
    assert merged is not None
    assert merged.missing[0] == 0.0
