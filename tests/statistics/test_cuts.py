"""Cuts in an engine and in memory agree, effects are recorded, and each rule keeps what it says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counting_oracle import cut_by_engine
from tokengeom import NextTokenStatistics, count
from tokengeom.core.errors import InputError, StatisticsError
from tokengeom.statistics.cuts import (
    OTHER,
    AbstractCut,
    CommonestTokens,
    CutSettings,
    MinimumCount,
    MostFrequentContexts,
    SupportByCount,
    SupportByMass,
    support_policy,
)
from tokengeom.verification.sources import lead_to

CUTS = st.one_of(
    st.builds(MostFrequentContexts, st.integers(1, 12)),
    st.builds(MinimumCount, st.integers(1, 4)),
    st.builds(CommonestTokens, st.integers(1, 6), st.sampled_from(["drop", "merge"])),
    st.builds(SupportByCount, st.integers(1, 3)),
    st.builds(SupportByMass, st.sampled_from([0.1, 0.3, 0.5, 0.75, 0.9, 1.0])),
)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), cuts=st.lists(CUTS, min_size=1, max_size=3))
def test_cuts_in_an_engine_and_in_memory_agree(seed: int, cuts: list[AbstractCut]) -> None:
    documents = [np.random.default_rng(seed).integers(0, 6, 40)]
    whole = count(documents, context=1, vocabulary_size=6)
    try:
        in_memory = whole.cut(*cuts)
    except StatisticsError as error:
        with pytest.raises(StatisticsError, match="leaves nothing"):
            cut_by_engine(documents, cuts, context=1, vocabulary_size=6)
        assert "leaves nothing" in str(error)  # noqa: PT017 - both must fail in the same way
        return
    relational = cut_by_engine(documents, cuts, context=1, vocabulary_size=6)
    assert relational.equals(in_memory)
    assert (relational.text_counts is None) == (in_memory.text_counts is None)
    np.testing.assert_allclose(relational.left_out, in_memory.left_out)
    assert len(relational.effects) == len(cuts)
    for mine, theirs in zip(relational.effects, in_memory.effects, strict=True):
        assert mine.cut == theirs.cut
        for a, b in ((mine.before, theirs.before), (mine.after, theirs.after)):
            assert (a.n, a.m, a.V) == (b.n, b.m, b.V)
            assert a.entropy == pytest.approx(b.entropy, abs=1e-12)


@pytest.fixture
def small() -> NextTokenStatistics:
    return NextTokenStatistics.from_counts(
        [[5, 0, 1, 2], [3, 1, 0, 2], [1, 0, 0, 0], [1, 4, 0, 1]], vocabulary=["a", "b", "c", "d"]
    )


def test_the_most_frequent_contexts_are_kept_and_ties_go_to_the_first(small: NextTokenStatistics) -> None:
    kept = small.cut(MostFrequentContexts(2))
    assert kept.context_counts.tolist() == [10, 5]
    assert kept.counts.toarray()[:, 1].tolist() == [0, 1, 0, 4]


def test_dropping_loses_windows_and_merging_loses_none(small: NextTokenStatistics) -> None:
    dropped = small.limited(vocabulary=2)
    assert dropped.vocabulary == ("a", "b")
    assert dropped.n == 14
    merged = small.limited(vocabulary=2, rest="merge")
    assert merged.vocabulary == ("a", "b", OTHER)
    assert merged.n == small.n
    assert merged.counts.toarray()[2].tolist() == [2, 4, 0, 1]


def test_the_share_that_a_cut_leaves_out_of_a_context_is_known(small: NextTokenStatistics) -> None:
    assert small.text_counts is None
    assert small.left_out.tolist() == [0, 0, 0, 0]
    dropped = small.limited(top_contexts=3, vocabulary=2)
    assert dropped.text_counts is not None
    assert dropped.text_counts.tolist() == [10, 5, 5]
    np.testing.assert_allclose(dropped.left_out, [2 / 10, 4 / 5, 1 / 5])
    # The most frequent context is followed by a in 5 of its 10 windows, whatever the cut keeps of them.
    assert "a 50%, b 30% (left out: 20%)" in dropped._repr_html_()
    twice = dropped.limited(support="count:2")
    np.testing.assert_allclose(twice.left_out[0], 2 / 10)
    assert small.limited(vocabulary=2, rest="merge").text_counts is None


def test_merging_twice_gives_one_merged_token(small: NextTokenStatistics) -> None:
    once = small.limited(vocabulary=3, rest="merge")
    twice = once.limited(vocabulary=2, rest="merge")
    assert twice.vocabulary.count(OTHER) == 1
    assert (twice.n, twice.other) == (small.n, twice.V - 1)
    again = small.limited(vocabulary=1, rest="merge").limited(vocabulary=1, rest="merge")
    assert again.vocabulary.count(OTHER) == 1
    assert again.n == small.n


def test_top_p_keeps_the_fewest_commonest_tokens(small: NextTokenStatistics) -> None:
    kept = small.limited(support="top-p:0.8")
    assert kept.counts.toarray().tolist() == [[5, 0, 1, 2], [3, 0, 0, 2], [0, 0, 0, 0], [0, 4, 0, 0]]


def test_an_effect_has_the_sizes_before_and_after(small: NextTokenStatistics) -> None:
    cut = small.limited(min_count=5, support="count:2")
    assert [effect.cut for effect in cut.effects] == [
        "contexts seen at least 5 times",
        "supports of tokens that followed at least 2 times",
    ]
    assert cut.effects[0].before == small.totals
    assert cut.effects[1].after == cut.totals
    assert cut.effects[0].sentence == ("Kept: contexts seen at least 5 times; 20 of 21 windows remain (95.2%).")


def test_a_cut_that_leaves_nothing_says_so(small: NextTokenStatistics) -> None:
    with pytest.raises(StatisticsError, match="leaves nothing"):
        small.limited(min_count=1000)


@pytest.mark.parametrize("policy", ["", "raw:1", "count", "count:x", "count:0", "top-p:0", "top-p:1.5", "best"])
def test_an_unknown_policy_is_refused(policy: str) -> None:
    with pytest.raises(StatisticsError):
        support_policy(policy)
    with pytest.raises(StatisticsError):
        CutSettings(support=policy)


@pytest.mark.parametrize(
    "make", [MostFrequentContexts, MinimumCount, partial(CommonestTokens, rest="drop"), SupportByCount]
)
def test_a_cut_to_nothing_is_refused(make: Callable[[int], AbstractCut]) -> None:
    with pytest.raises(StatisticsError, match="1 or more; got 0"):
        make(0)


def test_settings_name_cuts_in_a_fixed_order() -> None:
    settings = CutSettings(top_contexts=400, vocabulary=104, rest="merge", min_count=3, support="count:2")
    assert [type(cut) for cut in settings.cuts()] == [
        MinimumCount,
        MostFrequentContexts,
        CommonestTokens,
        SupportByCount,
    ]
    assert CutSettings().cuts() == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rest": "keep"}, "rest must be one of drop, merge; got 'keep'"),
        ({"top_contexts": 2.5}, "contexts to keep must be a whole number"),
        ({"min_count": 0}, "1 or more; got 0"),
        ({"contexts": 5}, "no setting 'contexts'. Did you mean 'top_contexts'"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_read(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NextTokenStatistics.from_counts([[1]]).limited(**settings)
    if "contexts" not in settings:
        with pytest.raises(InputError, match=message):
            count("a text that does not exist", **settings)


def test_cuts_that_do_not_lead_to_the_sizes_are_noticed(small: NextTokenStatistics) -> None:
    cut = small.limited(top_contexts=3, vocabulary=2)
    assert lead_to(cut.effects, cut.totals)
    assert lead_to((), small.totals)
    assert not lead_to(cut.effects, small.totals)
    assert not lead_to(cut.effects[::-1], cut.totals)
