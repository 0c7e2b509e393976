"""Groups of equal supports, and sentences about supports that leave little to predict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokengeom import NextTokenStatistics, count
from tokengeom.statistics import next_token, supports
from tokengeom.statistics.supports import degenerate_support_warnings, group_supports, warnings_about


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_groups_agree_with_comparing_every_pair_of_columns(seed: int, V: int) -> None:
    rng = np.random.default_rng(seed)
    S = rng.random((V, 12)) < 0.5
    S[rng.integers(0, V, 12), np.arange(12)] = True
    groups = group_supports(NextTokenStatistics.from_counts(S.astype(int)).S)
    same = (S[:, :, None] == S[:, None, :]).all(axis=0)
    assert (same == (groups.label[:, None] == groups.label[None, :])).all()
    assert groups.count == len(np.unique(S, axis=1).T)


@pytest.mark.parametrize("columns", [1, 7, 40])
def test_working_on_some_contexts_at_a_time_changes_nothing(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, (6, 40)) * (rng.random((6, 40)) < 0.3)
    counts[rng.integers(0, 6, 40), np.arange(40)] += 1
    expected = NextTokenStatistics.from_counts(counts)
    groups = expected.groups
    found = NextTokenStatistics.from_counts(counts)
    assert expected.hash
    for module in (supports, next_token):
        monkeypatch.setattr(module, "COLUMNS_AT_ONCE", columns)
    np.testing.assert_array_equal(found.groups.label, groups.label)
    np.testing.assert_array_equal(found.groups.multiplicity, groups.multiplicity)
    np.testing.assert_array_equal(found.groups.S.toarray(), groups.S.toarray())
    np.testing.assert_array_equal(
        found.groups.S.toarray(), counts[:, np.unique(groups.label, return_index=True)[1]] > 0
    )
    np.testing.assert_array_equal(found.context_counts, counts.sum(axis=0))
    assert found.hash == expected.hash
    assert found.entropy == pytest.approx(expected.entropy, rel=1e-14)
    np.testing.assert_array_equal(found.most_frequent(9), np.argsort(-counts.sum(axis=0), kind="stable")[:9])
    assert found.completeness is not None
    np.testing.assert_allclose(found.completeness.missing, (counts == 1).sum(axis=0) / counts.sum(axis=0))
    assert found.completeness.growing_share == np.mean((counts == 1).any(axis=0))


@pytest.mark.parametrize(
    ("sizes", "V", "groups", "expected"),
    [
        ([1, 1], 1, 1, ["single token"]),
        ([1, 1, 1], 4, 3, ["neural collapse when all tokens have equally many contexts, and SELI geometry otherwise"]),
        ([4, 4], 4, 1, ["Every context can be followed by every token"]),
        ([1] * 19 + [2], 4, 5, ["95% of the contexts have a support of one token"]),
        ([1] * 999 + [2], 4, 5, ["99% of the contexts"]),
        ([2, 4, 3], 4, 3, ["1 of 3 contexts has the whole vocabulary as support: it gets no direction"]),
        ([2, 4, 4], 4, 2, ["2 of 3 contexts have the whole vocabulary as support: they get no direction"]),
        ([2, 2], 4, 1, ["All contexts have the same support: there is one direction to predict, of rank 1"]),
        ([1, 1], 4, 1, ["one-hot classification", "same support"]),
        ([1] * 19 + [4], 4, 5, ["95% of the contexts", "1 of 20 contexts has the whole vocabulary"]),
        ([1] * 9 + [2], 4, 5, []),
        ([2, 3, 1], 4, 3, []),
    ],
)
def test_degenerate_supports_are_named(sizes: list[int], V: int, groups: int, expected: list[str]) -> None:
    found = degenerate_support_warnings(np.array(sizes), V, groups)
    assert len(found) == len(expected)
    for sentence, part in zip(found, expected, strict=True):
        assert part in sentence


def test_statistics_with_informative_supports_have_no_warning(built_in: NextTokenStatistics) -> None:
    assert warnings_about(built_in.limited(top_contexts=400, vocabulary=104)) == []
    assert "neural collapse" in warnings_about(NextTokenStatistics.from_counts(np.eye(3, dtype=int)))[0]


def test_a_separator_that_never_occurs_is_worth_a_warning(tmp_path: Path) -> None:
    np.array([1, 2, 3, 4], "uint16").tofile(tmp_path / "a.bin")
    (tmp_path / "b.txt").write_text("one two three")
    assert "was not found" in warnings_about(count(tmp_path / "a.bin", context=1, separator_id=9))[-1]
    assert "was not found" in warnings_about(count(tmp_path / "b.txt", context=1, separator="<end>"))[-1]


def test_a_token_file_with_a_likely_separator_is_worth_a_warning(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    documents = [np.append(rng.integers(0, 400, 40), 499) for _ in range(20)]
    np.concatenate(documents).astype("uint16").tofile(tmp_path / "a.bin")
    joined = count(tmp_path / "a.bin", context=2)
    assert joined.corpus["likely_separators"] == [499]
    (sentence,) = [one for one in warnings_about(joined) if "separator" in one]
    assert "Token id 499 looks like a separator" in sentence
    assert "separator_id=499" in sentence
    assert sentence in joined.summary()
    apart = count(tmp_path / "a.bin", context=2, separator_id=499)
    assert apart.corpus["likely_separators"] == []
    assert not [one for one in warnings_about(apart) if "looks like" in one]


def test_documents_that_are_too_short_and_bytes_that_were_replaced_are_worth_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one two three\n\nfour \xff")
    sentences = warnings_about(count(tmp_path / "a.txt", context=2, errors="replace"))
    assert "1 of 2 documents is shorter than a window and was not counted." in " ".join(sentences)
    assert "1 bytes were not valid UTF-8" in " ".join(sentences)
