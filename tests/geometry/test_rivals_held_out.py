"""Folds of held-out contexts: no support in two folds, every context once per split, no trace in the tokens."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csc_array

from geometry_cases import grouped_counts
from tokengeom.errors import ProblemError
from tokengeom.geometry.rivals import leave_out, make_folds
from tokengeom.statistics.next_token import NextTokenStatistics


def supports(P: csc_array) -> set[bytes]:
    return {column.tobytes() for column in (P.toarray() > 0).T}


@pytest.fixture(scope="module")
def stats() -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(grouped_counts(8, 30, 2, 3, seed=0))


def test_every_context_is_held_out_once_together_with_all_of_its_support(stats: NextTokenStatistics) -> None:
    found = make_folds(stats, 0.25, seed=1, splits=1)
    assert len(found) == 4
    np.testing.assert_array_equal(np.sort(np.concatenate([fold.columns for fold in found])), np.arange(60))
    for fold in found:
        assert fold.lost_tokens == 0
        assert 9 <= fold.columns.size <= 21
        assert not supports(fold.P) & supports(fold.kept.P)
        np.testing.assert_allclose(fold.P.toarray(), stats.P.toarray()[:, fold.columns], atol=1e-15)


def test_random_splits_differ(stats: NextTokenStatistics) -> None:
    found = make_folds(stats, 0.25, seed=1, splits=3)
    assert len(found) == 12
    times = np.bincount(np.concatenate([fold.columns for fold in found]))
    np.testing.assert_array_equal(times, 3)
    assert len({fold.columns.tobytes() for fold in found}) == 12


def test_the_seed_determines_the_folds(stats: NextTokenStatistics) -> None:
    def first(seed: int) -> list[int]:
        return [int(j) for j in make_folds(stats, 0.2, seed)[0].columns]

    assert first(0) == first(0)
    assert first(0) != first(1)


def test_tokens_that_follow_only_held_out_contexts_are_dropped() -> None:
    counts = np.array([[3, 1, 0, 0], [1, 2, 1, 0], [0, 0, 3, 0], [0, 0, 0, 5]])
    fold = leave_out(NextTokenStatistics.from_counts(counts), np.array([2, 3]))
    assert (fold.kept.V, fold.kept.m) == (2, 2)
    assert fold.columns.tolist() == [2], "nothing is known of what follows context 3"
    assert fold.lost_tokens == 2
    np.testing.assert_allclose(fold.P.toarray(), [[0.0], [1.0]])
    np.testing.assert_allclose(fold.kept.pi, [4 / 7, 3 / 7])
    np.testing.assert_allclose(fold.kept.P.toarray(), [[3 / 4, 1 / 3], [1 / 4, 2 / 3]])


def test_too_few_supports_give_no_folds() -> None:
    counts = np.array([[1, 2, 3, 1], [4, 1, 1, 1], [0, 0, 0, 2]])
    assert make_folds(NextTokenStatistics.from_counts(counts), 0.5, seed=0) == []


@pytest.mark.parametrize("share", [-0.1, 0.6, 1.0, float("nan")])
def test_a_share_that_leaves_too_little_is_refused(stats: NextTokenStatistics, share: float) -> None:
    with pytest.raises(ProblemError, match=r"at most 0\.5; got held_out="):
        make_folds(stats, share, seed=0)
