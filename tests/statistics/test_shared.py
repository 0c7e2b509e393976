"""Two texts restricted to the tokens and contexts that both have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokengeom import NextTokenStatistics, count
from tokengeom.core.errors import StatisticsError
from tokengeom.statistics.shared import FEWEST_IN_HALVES, same_support_units, shared_halves, shared_statistics

FIRST = ["the cat sat on the mat and the dog sat on the cat", "the cat ran and the dog ran"]
SECOND = ["a dog sat on the cat and the cat ran", "the dog sat on a mat and the cat sat"]


def followers(statistics: NextTokenStatistics) -> dict[str, dict[str, int]]:
    table = statistics.counts.toarray()
    return {
        statistics.context_text(j): {
            token: int(n) for token, n in zip(statistics.vocabulary, table[:, j], strict=True) if n
        }
        for j in range(statistics.m)
    }


def test_rows_and_columns_have_the_same_names_in_both_and_counts_are_those_of_each_text() -> None:
    texts = [count(FIRST, context=1), count(SECOND, context=1)]
    made = shared_statistics(*texts)
    assert made[0].vocabulary == made[1].vocabulary
    assert list(followers(made[0])) == list(followers(made[1]))
    assert "a" not in made[0].vocabulary
    for whole, part in zip(texts, made, strict=True):
        before = followers(whole)
        for context, tokens in followers(part).items():
            assert tokens == {token: n for token, n in before[context].items() if token in part.vocabulary}


def test_what_is_left_out_is_known() -> None:
    first = count(FIRST, context=1)
    made, _ = shared_statistics(first, count(SECOND, context=1))
    assert made.coverage == made.n / first.n < 1
    assert made.text_counts is not None
    before = {first.context_text(j): int(n) for j, n in enumerate(first.context_counts)}
    assert made.text_counts.tolist() == [before[made.context_text(j)] for j in range(made.m)]
    assert "the other text has too" in made.summary()


def test_the_order_of_the_texts_only_changes_the_order_of_names() -> None:
    one, two = count(FIRST, context=2), count(SECOND, context=2)
    forward, backward = shared_statistics(one, two), shared_statistics(two, one)
    assert followers(forward[0]) == followers(backward[1])
    assert followers(forward[1]) == followers(backward[0])


def test_a_text_shares_everything_with_itself() -> None:
    stats = count(FIRST, context=1)
    one, two = shared_statistics(stats, stats)
    assert one.equals(two)
    assert (one.n, one.m) == (stats.n, stats.m)


def test_a_context_that_loses_all_windows_is_dropped_from_both() -> None:
    first = NextTokenStatistics.from_counts(
        [[3, 1, 0], [0, 2, 0], [0, 0, 4]], contexts=["p", "q", "r"], vocabulary=["x", "y", "z"]
    )
    second = NextTokenStatistics.from_counts([[1, 1, 2], [2, 1, 0]], contexts=["p", "q", "r"], vocabulary=["x", "y"])
    one, two = shared_statistics(first, second)
    # r is followed by z alone in the first text, which the second does not have.
    assert one.labels == two.labels == ("p", "q")
    np.testing.assert_array_equal(one.counts.toarray(), [[3, 1], [0, 2]])
    np.testing.assert_array_equal(two.counts.toarray(), [[1, 1], [2, 1]])


def test_merged_tokens_are_not_shared() -> None:
    merged = [count(text, context=1, vocabulary=4, rest="merge") for text in (FIRST, SECOND)]
    assert all(one.other is not None for one in merged)
    assert all(one.other is None for one in shared_statistics(*merged))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (["x y z x y"], "at least 2 tokens; they share 0"),
        (["zebra cat yak sat wolf mat"], "at least 2 contexts; they share"),
        (
            ["the cat dog sat on cat"],
            "share 5 tokens and 3 contexts, but only one of these tokens follows",
        ),
    ],
)
def test_too_little_in_common_is_refused_with_a_remedy(second: list[str], message: str) -> None:
    with pytest.raises(StatisticsError, match=message):
        shared_statistics(count(FIRST, context=2), count(second, context=2))


def test_probabilities_and_names_that_are_not_unique_are_refused() -> None:
    stats = NextTokenStatistics.from_counts([[1, 2], [3, 1]], contexts=["p", "q"], vocabulary=["x", "y"])
    twice = NextTokenStatistics.from_counts([[1, 2], [3, 1]], contexts=["p", "p"], vocabulary=["x", "y"])
    given = NextTokenStatistics.from_probabilities([[0.5, 1.0], [0.5, 0.0]], contexts=["p", "q"], vocabulary=["x", "y"])
    with pytest.raises(StatisticsError, match="'p' is the name of several"):
        shared_statistics(stats, twice)
    with pytest.raises(StatisticsError, match="needs counts"):
        shared_statistics(stats, given)


def texts_of(first: Any, second: Any) -> tuple[NextTokenStatistics, NextTokenStatistics]:
    """Statistics with the same names from two tables of counts."""
    V, m = first.shape
    names = [f"c{j:02d}" for j in range(m)], [f"t{z:02d}" for z in range(V)]
    return NextTokenStatistics.from_counts(first, *names), NextTokenStatistics.from_counts(second, *names)


def test_halves_are_disjoint_parts_of_their_texts_and_of_equal_size() -> None:
    rng = np.random.default_rng(0)
    texts = texts_of(rng.integers(5, 50, size=(12, 15)), rng.integers(20, 200, size=(12, 15)))
    halves = shared_halves(texts[0], texts[1], seed=0)
    assert halves is not None
    assert len({half.vocabulary for half in halves}) == len({half.labels for half in halves}) == 1
    for text, (one, other) in zip(texts, (halves[:2], halves[2:]), strict=True):
        left = text.counts.toarray() - one.counts.toarray() - other.counts.toarray()
        assert left.min() >= 0
        assert left.any() == (text is texts[1]), "all windows of the smaller text are in one of its halves"
        assert abs(one.counts.toarray() - text.counts.toarray() * one.n / text.n).max() < 30
    size = texts[0].n / 2
    assert [half.n for half in halves] == pytest.approx([size] * 4, abs=5 * np.sqrt(size))


def test_halves_depend_on_the_seed_and_not_on_the_order_of_the_texts() -> None:
    rng = np.random.default_rng(1)
    texts = texts_of(*(rng.integers(0, 9, size=(2, 12, 15)) + np.eye(12, 15, dtype=int)))
    forward, backward = shared_halves(*texts, seed=0), shared_halves(texts[1], texts[0], seed=0)
    other = shared_halves(*texts, seed=1)
    assert forward is not None
    assert backward is not None
    assert other is not None
    assert [half.hash for half in forward] == [half.hash for half in (*backward[2:], *backward[:2])]
    assert forward[0].hash != other[0].hash
    equal = shared_halves(texts[0], texts[0], 0)
    assert equal is not None
    assert [half.hash for half in equal[:2]] == [half.hash for half in equal[2:]]
    assert equal[0].hash != equal[1].hash


def test_halves_do_not_depend_on_the_ids_of_tokens() -> None:
    counts = np.random.default_rng(2).integers(0, 9, size=(12, 12)) + np.eye(12, dtype=int)
    tokens = [f"t{z:02d}" for z in range(12)]
    by_id = NextTokenStatistics.from_counts(counts, np.arange(12, dtype=np.int32)[:, None], tokens)
    named = NextTokenStatistics.from_counts(counts, [by_id.context_text(j) for j in range(12)], tokens)
    assert by_id.hash != named.hash
    ours, theirs = shared_halves(named, named, 0), shared_halves(by_id, by_id, 0)
    assert ours is not None
    assert theirs is not None
    assert [half.hash for half in ours] == [half.hash for half in theirs]


def test_too_few_shared_tokens_or_contexts_have_no_halves() -> None:
    full = np.full((FEWEST_IN_HALVES, FEWEST_IN_HALVES), 50)
    assert shared_halves(*texts_of(full, full), 0) is not None
    assert shared_halves(*texts_of(full[1:], full[1:]), 0) is None
    assert shared_halves(*texts_of(full[:, 1:], full[:, 1:]), 0) is None
    once = np.eye(30, dtype=np.int64)
    assert shared_halves(*texts_of(once, once), 0) is None


def test_contexts_of_one_unit_have_the_same_support_in_every_text() -> None:
    one = np.array([[1, 2, 0, 1], [0, 0, 3, 0]])
    other = np.array([[1, 1, 1, 1], [0, 0, 0, 5]])
    assert same_support_units(texts_of(one, one)).tolist() == [0, 0, 1, 0]
    assert same_support_units(texts_of(one, other)).tolist() == [0, 0, 1, 2]
