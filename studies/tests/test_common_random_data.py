"""Random supports and counts."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom import NextTokenStatistics
from tokengeom.extending import InputError
from tokengeom_studies.common.random_data import dirichlet_counts, random_counts, random_supports, repeated


def test_supports_have_the_given_size_and_every_token_is_equally_likely() -> None:
    S = random_supports(np.random.default_rng(0), V=6, m=6000, size=2)
    assert np.all(S.sum(axis=0) == 2)
    # Each token is in a third of 6000 supports: a binomial with standard deviation 36.
    assert np.all(np.abs(S.sum(axis=1) - 2000) < 5 * 36)


@pytest.mark.parametrize("size", [0, 7])
def test_a_support_size_outside_the_vocabulary_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"between 1 and V=6 tokens; got size={size}"):
        random_supports(np.random.default_rng(0), V=6, m=3, size=size)


def test_counted_windows_show_exactly_the_supports() -> None:
    rng = np.random.default_rng(1)
    S = random_supports(rng, V=7, m=9, size=4)
    stats = dirichlet_counts(rng, S, n=100)
    assert stats.n == 100
    assert np.array_equal(stats.counts.toarray() > 0, S)


def test_too_few_windows_for_the_supports_are_refused() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(InputError, match="n=5 windows cannot show each of 12 pairs"):
        dirichlet_counts(rng, random_supports(rng, V=7, m=4, size=3), n=5)


def test_random_counts_have_the_given_supports() -> None:
    stats = random_counts(3, V=9, m=7, size=4, most=4)
    assert (stats.V, stats.m) == (9, 7)
    assert set(stats.support_sizes) == {4}
    assert set(np.unique(stats.counts.data)) <= {1, 2, 3, 4}


def test_random_repeats_keep_contexts_tokens_and_supports() -> None:
    contexts = np.array([[0, 1], [1, 1], [2, 0]], np.int32)
    counts = np.array([[9, 0, 3], [1, 7, 0], [0, 2, 5], [8, 6, 0]])
    stats = NextTokenStatistics.from_counts(counts, contexts=contexts, vocabulary=["a", "b", "c", "d"])
    drawn = repeated(stats, seed=1, most=4)
    assert (drawn.S != stats.S).nnz == 0
    assert set(np.unique(drawn.counts.data)) <= {1, 2, 3, 4}
    assert drawn.vocabulary == stats.vocabulary
    assert np.array_equal(np.asarray(drawn.contexts), contexts)
    assert not np.array_equal(drawn.counts.toarray(), counts)
