from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import entropy

from tokengeom import NextTokenStatistics
from tokengeom.errors import StatisticsError
from tokengeom.statistics.supports import warnings_about


def random_counts(seed: int, V: int = 7, m: int = 9) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, (V, m)) * (rng.random((V, m)) < 0.5)
    counts[rng.integers(0, V, m), np.arange(m)] += 1
    return counts


@given(st.integers(0, 10_000))
def test_the_entropy_floor_agrees_with_scipy(seed: int) -> None:
    counts = random_counts(seed)
    statistics = NextTokenStatistics.from_counts(counts)
    expected = sum(entropy(column) * column.sum() for column in counts.T) / counts.sum()
    assert statistics.entropy == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(statistics.context_entropies, [entropy(column) for column in counts.T], atol=1e-12)


@given(st.integers(0, 10_000))
def test_shares_and_conditionals_are_distributions(seed: int) -> None:
    counts = random_counts(seed)
    statistics = NextTokenStatistics.from_counts(sparse.coo_array(counts))
    np.testing.assert_allclose(statistics.P.sum(axis=0), 1, rtol=1e-14)
    assert statistics.pi.sum() == pytest.approx(1)
    np.testing.assert_allclose(statistics.P.toarray() * statistics.pi, counts / counts.sum(), rtol=1e-13)
    assert (statistics.S.toarray() == (counts > 0)).all()
    assert statistics.n == counts.sum()


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_support_groups_agree_with_a_dictionary(seed: int, V: int) -> None:
    counts = random_counts(seed, V=V, m=15)
    groups = NextTokenStatistics.from_counts(counts).groups
    seen: dict[tuple[bool, ...], int] = {}
    expected = [seen.setdefault(tuple(column > 0), len(seen)) for column in counts.T]
    assert groups.label.tolist() == expected
    assert groups.multiplicity.tolist() == np.bincount(expected).tolist()
    assert [tuple(column > 0) for column in groups.S.toarray().T] == list(seen)
    assert groups.members(0).tolist() == [j for j, g in enumerate(expected) if g == 0]


def test_probabilities_need_no_counts() -> None:
    P = np.array([[0.5, 0.0], [0.5, 1.0]])
    statistics = NextTokenStatistics.from_probabilities(P, pi=[0.25, 0.75])
    assert statistics.entropy == pytest.approx(0.25 * np.log(2))
    assert statistics.P.toarray().tolist() == P.tolist()
    with pytest.raises(StatisticsError, match="no counts"):
        _ = statistics.n
    assert "n=" not in repr(statistics)


def test_counts_and_their_probabilities_agree() -> None:
    counted = NextTokenStatistics.from_counts(random_counts(1))
    given_ = NextTokenStatistics.from_probabilities(counted.P, counted.pi)
    assert given_.entropy == pytest.approx(counted.entropy, rel=1e-13)


def test_statistics_are_frozen() -> None:
    statistics = NextTokenStatistics.from_counts(random_counts(2))
    with pytest.raises(ValueError, match="read-only"):
        statistics.counts.data[0] = 5
    with pytest.raises(AttributeError):
        statistics.vocabulary = ()  # type: ignore[misc]


def test_explicit_zeros_and_duplicates_are_no_support() -> None:
    table = sparse.csc_array((np.array([1, 0, 2, 3]), (np.array([0, 1, 0, 1]), np.array([0, 0, 0, 1]))), shape=(2, 2))
    assert NextTokenStatistics.from_counts(table).counts.toarray().tolist() == [[3, 0], [0, 3]]
    assert NextTokenStatistics.from_counts(table).support_sizes.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([[1, 0], [0, 0]], "1 of 2 have none, the first is column 1"),
        ([[1, -1], [0, 2]], "not negative"),
        ([[0.5, 1], [0.5, 0]], "whole numbers"),
        (np.zeros((0, 3), int), "V=0"),
        (np.zeros((3, 0), int), "m=0"),
    ],
)
def test_impossible_counts_are_refused(counts: object, message: str) -> None:
    with pytest.raises(StatisticsError, match=message):
        NextTokenStatistics.from_counts(counts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("P", "pi", "message"),
    [
        ([[0.5, 1], [0.4, 0]], None, "column 0 sums to 0.9"),
        ([[1, 1]], [0.5, 0.6], "pi must be positive and sum to 1"),
        ([[1, 1]], [1.0, 0.0], "pi must be positive"),
        ([[1, 1]], [1.0], "pi must have 2 entries"),
        ([[np.nan, 1]], None, "finite"),
    ],
)
def test_impossible_probabilities_are_refused(P: object, pi: object, message: str) -> None:
    with pytest.raises(StatisticsError, match=message):
        NextTokenStatistics.from_probabilities(P, pi)  # type: ignore[arg-type]


def test_names_must_fit() -> None:
    with pytest.raises(StatisticsError, match="vocabulary must have 1 entries, one for each; got 2"):
        NextTokenStatistics.from_counts([[1]], vocabulary=["a", "b"])
    with pytest.raises(StatisticsError, match="context labels must have 1"):
        NextTokenStatistics.from_counts([[1]], contexts=["x", "y"])


def test_contexts_have_text_on_demand(built_in: NextTokenStatistics) -> None:
    j = int(built_in.most_frequent(1)[0])
    assert built_in.context_text(j) == "once upon a time"
    assert built_in.next_tokens(j) == [("there", 1.0)]
    assert NextTokenStatistics.from_counts([[1]], contexts=["here"]).context_text(0) == "here"
    assert NextTokenStatistics.from_counts([[1]]).context_text(0) == "context 0"
    ids = np.array([[-2, -1, 3]], np.int32)
    assert NextTokenStatistics.from_counts([[1]], contexts=ids).context_text(0) == "<start> 3"


def test_degenerate_supports_are_worth_a_warning(built_in: NextTokenStatistics) -> None:
    assert "one token alone" in warnings_about(NextTokenStatistics.from_counts(np.eye(3, dtype=int)))[0]
    assert "every token" in warnings_about(NextTokenStatistics.from_counts(np.ones((3, 3), int)))[0]
    assert "single token" in warnings_about(NextTokenStatistics.from_counts([[1, 2]]))[0]
    mostly = np.eye(20, dtype=int)
    mostly[0, 1] = 1
    assert "95%" in warnings_about(NextTokenStatistics.from_counts(mostly))[0]
    assert warnings_about(built_in.limited(contexts=400, vocabulary=104)) == []
