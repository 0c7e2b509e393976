"""Contexts left out: no support on both sides, every context once, nothing of them in the tokens."""

from __future__ import annotations

import numpy as np
import pytest

from geometry_cases import grouped_counts
from tokengeom.errors import ProblemError
from tokengeom.geometry.rivals import folds, leave_out
from tokengeom.statistics.next_token import NextTokenStatistics


def supports(P) -> set[bytes]:  # type: ignore[no-untyped-def]
    return {column.tobytes() for column in (P.toarray() > 0).T}


@pytest.fixture(scope="module")
def stats() -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(grouped_counts(8, 30, 2, 3, seed=0))


def test_every_context_is_judged_once_and_never_beside_one_of_its_support(stats: NextTokenStatistics) -> None:
    found = folds(stats, 0.25, seed=1, deals=1)
    assert len(found) == 4
    np.testing.assert_array_equal(np.sort(np.concatenate([split.columns for split in found])), np.arange(60))
    for split in found:
        assert split.lost_tokens == 0
        assert 9 <= split.columns.size <= 21
        assert not supports(split.P) & supports(split.kept.P)
        np.testing.assert_allclose(split.P.toarray(), stats.P.toarray()[:, split.columns], atol=1e-15)


def test_every_deal_is_another(stats: NextTokenStatistics) -> None:
    found = folds(stats, 0.25, seed=1, deals=3)
    assert len(found) == 12
    times = np.bincount(np.concatenate([split.columns for split in found]))
    np.testing.assert_array_equal(times, 3)
    assert len({split.columns.tobytes() for split in found}) == 12


def test_the_generator_decides_the_split(stats: NextTokenStatistics) -> None:
    def first(seed: int) -> list[int]:
        return folds(stats, 0.2, seed)[0].columns.tolist()

    assert first(0) == first(0)
    assert first(0) != first(1)


def test_tokens_that_only_left_out_contexts_have_are_gone() -> None:
    counts = np.array([[3, 1, 0, 0], [1, 2, 1, 0], [0, 0, 3, 0], [0, 0, 0, 5]])
    split = leave_out(NextTokenStatistics.from_counts(counts), np.array([2, 3]))
    assert (split.kept.V, split.kept.m) == (2, 2)
    assert split.columns.tolist() == [2], "nothing is known of what follows context 3"
    assert split.lost_tokens == 2
    np.testing.assert_allclose(split.P.toarray(), [[0.0], [1.0]])
    np.testing.assert_allclose(split.kept.pi, [4 / 7, 3 / 7])
    np.testing.assert_allclose(split.kept.P.toarray(), [[3 / 4, 1 / 3], [1 / 4, 2 / 3]])


def test_too_few_supports_leave_nothing_to_judge() -> None:
    counts = np.array([[1, 2, 3, 1], [4, 1, 1, 1], [0, 0, 0, 2]])
    assert folds(NextTokenStatistics.from_counts(counts), 0.5, seed=0) == []


@pytest.mark.parametrize("share", [-0.1, 0.6, 1.0, float("nan")])
def test_a_share_that_leaves_too_little_is_refused(stats: NextTokenStatistics, share: float) -> None:
    with pytest.raises(ProblemError, match=r"at most 0\.5; got held_out="):
        folds(stats, share, seed=0)
