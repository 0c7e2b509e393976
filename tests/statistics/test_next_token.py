"""Statistics from counts or probabilities: entropy, supports, hash, text, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import entropy

from tokengeom import NextTokenStatistics, count
from tokengeom.core.errors import StatisticsError
from tokengeom.statistics.count import count_pairs
from tokengeom.statistics.next_token import statistics_of


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
    assert "windows" not in repr(statistics)
    assert statistics.to_dict()["windows"] is None


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
        NextTokenStatistics.from_counts(counts)


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
    with pytest.raises(StatisticsError, match="vocabulary must have 1 entries; got 2"):
        NextTokenStatistics.from_counts([[1]], vocabulary=["a", "b"])
    with pytest.raises(StatisticsError, match="context labels must have 1"):
        NextTokenStatistics.from_counts([[1]], contexts=["x", "y"])
    with pytest.raises(StatisticsError, match=r"m x L array of token ids; got an array of shape \(2,\)"):
        NextTokenStatistics.from_counts([[1, 1]], contexts=np.array([3, 4]))


def test_contexts_have_text_on_demand(built_in: NextTokenStatistics) -> None:
    j = int(built_in.most_frequent(1)[0])
    assert built_in.context_text(j) == "once upon a time"
    assert built_in.next_tokens(j) == [("there", 1.0)]
    assert NextTokenStatistics.from_counts([[1]], contexts=["here"]).context_text(0) == "here"
    assert NextTokenStatistics.from_counts([[1]]).context_text(0) == "context 0"
    ids = np.array([[-2, -1, 3]], np.int32)
    assert NextTokenStatistics.from_counts([[1]], contexts=ids).context_text(0) == "<start> 3"


def test_equal_statistics_have_equal_hashes_and_any_change_changes_the_hash() -> None:
    counts = random_counts(3)
    statistics = NextTokenStatistics.from_counts(counts)
    assert NextTokenStatistics.from_counts(sparse.csr_array(counts.astype(np.int16))).hash == statistics.hash
    wide = sparse.csc_array(counts)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert NextTokenStatistics(wide.astype(np.int64), None, statistics.vocabulary).hash == statistics.hash
    m = counts.shape[1]
    ids = np.arange(m, dtype=np.int32)[:, None]
    other = counts.copy()
    other[np.argmax(other[:, 0]), 0] += 1
    changed = [
        NextTokenStatistics.from_counts(other),
        NextTokenStatistics.from_counts(counts[:, ::-1]),
        NextTokenStatistics.from_counts(counts, contexts=ids),
        NextTokenStatistics.from_counts(counts, contexts=ids.reshape(m, 1) + 1),
        NextTokenStatistics.from_counts(counts, contexts=[str(j) for j in range(m)]),
        NextTokenStatistics.from_counts(counts, vocabulary=[f"t{z}" for z in range(counts.shape[0])]),
        NextTokenStatistics.from_probabilities(statistics.P, statistics.pi),
        NextTokenStatistics.from_probabilities(statistics.P),
    ]
    hashes = {one.hash for one in (statistics, *changed)}
    assert len(hashes) == len(changed) + 1
    assert all(len(one) == 64 for one in hashes)


def test_a_hash_does_not_depend_on_where_statistics_come_from(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b a c a b")
    assert count(tmp_path / "a.txt", context=1).hash == count(["a b a c a b"], context=1, threads=1).hash


def test_a_verb_takes_statistics_or_the_path_of_saved_ones(tmp_path: Path) -> None:
    statistics = NextTokenStatistics.from_counts([[1, 2]])
    statistics.save(tmp_path / "s")
    assert statistics_of(statistics, "predict") is statistics
    assert statistics_of(tmp_path / "s", "predict").equals(statistics)
    assert statistics_of(str(tmp_path / "s"), "predict").equals(statistics)


def test_a_verb_refuses_anything_else_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a b")
    count_pairs([[0, 1]], tmp_path / "pairs", context=1)
    for given_, message in (
        (tmp_path / "x.txt", r"x\.txt' is not a folder of them.* count it first: tokengeom count '.*txt' --out"),
        (tmp_path / "x.txt", r".* or stats = tg\.count\('.*x\.txt'\) in Python"),
        (tmp_path / "missing", "does not exist"),
        (tmp_path / "pairs", r"holds 'tokengeom-pairs'.* count it first"),
        (np.ones((2, 2)), r"got an array.*from_counts\(counts\) or \.from_probabilities"),
        (sparse.csc_array(np.ones((2, 2))), "got an array"),
        (["a b"], r"got list.*tg\.count\(documents\)"),
        (None, "got NoneType"),
    ):
        with pytest.raises(StatisticsError, match=f"^train needs next-token statistics.*{message}"):
            statistics_of(given_, "train")


def test_coverage_is_the_share_of_the_text_that_is_kept(built_in: NextTokenStatistics) -> None:
    assert built_in.coverage == 1.0
    cut = built_in.limited(top_contexts=100).limited(vocabulary=50)
    assert cut.coverage == cut.n / built_in.n < 1
    merged = built_in.limited(top_contexts=100, vocabulary=50, rest="merge")
    assert merged.coverage == built_in.limited(top_contexts=100).coverage
    assert merged.to_dict()["coverage"] == merged.coverage
    assert NextTokenStatistics.from_counts([[1, 2]]).coverage is None
    assert NextTokenStatistics.from_probabilities([[1.0]]).coverage is None


def test_windows_in_the_text_are_at_least_those_counted() -> None:
    table = NextTokenStatistics.from_counts([[2, 3]]).table
    for wrong in ([1, 3], [2], [2, 3, 4]):
        with pytest.raises(StatisticsError, match="text_counts must give"):
            NextTokenStatistics(table, None, ("a",), text_counts=np.array(wrong))
    assert NextTokenStatistics(table, None, ("a",), text_counts=np.array([4, 3])).left_out.tolist() == [0.5, 0.0]
