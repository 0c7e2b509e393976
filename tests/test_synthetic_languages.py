"""Synthetic languages: counts converge to the true probabilities, and impossible languages are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from synthetic_languages import (
    MarkovLanguage,
    WindowLanguage,
    markov_chain,
    planted_supports,
    random_soft_labels,
)
from tokengeom import NextTokenStatistics, count
from tokengeom.core.errors import InputError

LANGUAGES = {
    "planted": planted_supports(8, [1, 2, 3, 8, 5, 2] * 2, seed=1),
    "random": random_soft_labels(seed=3),
    "zipf": random_soft_labels(zipf=1.0, seed=4),
}


def check_truth(language: WindowLanguage | MarkovLanguage) -> None:
    truth = language.truth
    np.testing.assert_allclose(truth.P.sum(axis=0), 1)
    assert (truth.P.data > 0).all()
    assert truth.pi.sum() == pytest.approx(1)
    assert len({tuple(row) for row in truth.contexts.tolist()}) == truth.P.shape[1]


@pytest.mark.parametrize("name", LANGUAGES)
def test_counts_converge_to_the_truth(name: str) -> None:
    language = LANGUAGES[name]
    check_truth(language)
    V, n = language.truth.P.shape[0], 40_000
    length = language.truth.contexts.shape[1]
    statistics = count(language.documents(n, seed=7), context=length, vocabulary_size=V)
    assert statistics.n == n
    # Both list contexts in the order of ids, and with so many windows every context is seen.
    assert statistics.contexts is not None
    assert np.array_equal(statistics.contexts, language.truth.contexts)
    assert statistics.S.multiply(1 - language.truth.S.toarray()).sum() == 0
    np.testing.assert_allclose(statistics.pi, language.truth.pi, atol=6 * np.sqrt(0.25 / n))
    error = np.abs(statistics.P.toarray() - language.truth.P.toarray()) * np.sqrt(n * language.truth.pi)
    assert error.max() < 3


def test_the_sizes_are_the_ones_asked_for() -> None:
    truth = LANGUAGES["planted"].truth
    assert truth.S.sum(axis=0).tolist() == [1, 2, 3, 8, 5, 2] * 2


def test_zipf_shares_are_proportional_to_one_over_rank() -> None:
    pi = LANGUAGES["zipf"].truth.pi
    np.testing.assert_allclose(pi * np.arange(1, pi.size + 1), pi[0])


def test_a_markov_chain_has_its_conditionals_and_stationary_shares() -> None:
    language = markov_chain(5, 2, 3, seed=0)
    check_truth(language)
    documents = list(language.documents(400, 100, seed=1))
    statistics = count(documents, context=2, vocabulary_size=5)
    truth = language.truth
    recurrent = truth.pi > 1e-9
    assert statistics.contexts is not None
    assert np.array_equal(statistics.contexts, truth.contexts[recurrent])
    np.testing.assert_allclose(statistics.pi, truth.pi[recurrent], atol=0.01)
    np.testing.assert_allclose(statistics.P.toarray(), truth.P.toarray()[:, recurrent], atol=0.12)
    assert (statistics.S.toarray() <= truth.S.toarray()[:, recurrent]).all()
    true = NextTokenStatistics.from_probabilities(
        truth.P[:, recurrent], truth.pi[recurrent] / truth.pi[recurrent].sum()
    )
    assert statistics.entropy == pytest.approx(true.entropy, abs=0.02)


def test_the_same_seed_gives_the_same_documents() -> None:
    one, two = (list(random_soft_labels(seed=1).documents(50, seed=2)) for _ in range(2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, list(random_soft_labels(seed=1).documents(50, seed=3)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: planted_supports(3, [4]),
        lambda: planted_supports(3, []),
        lambda: planted_supports(1, [1, 1]),
        lambda: planted_supports(3, [1], concentration=0),
        lambda: markov_chain(3, 0, 1),
        lambda: markov_chain(3, 2, 4),
        lambda: list(markov_chain(3, 2, 2).documents(1, 1, 0)),
    ],
)
def test_impossible_languages_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        make()
