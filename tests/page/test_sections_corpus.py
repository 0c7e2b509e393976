"""What the page says about contexts is true of the whole text, or says what was left out."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from page_cases import story_contents
from tokengeom import NextTokenStatistics, count
from tokengeom.corpus.stories import stories
from tokengeom.corpus.tokenizers import WordTokenizer
from tokengeom.page.formatting import percent
from tokengeom.page.render import render
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page
from tokengeom.page.sections.corpus import corpus, left_out_share, other_sentence
from tokengeom.statistics.next_token import OTHER

DOCUMENTS = list(islice(stories(), 150))


@pytest.fixture(scope="module")
def follows() -> dict[str, Counter[str]]:
    """Next tokens of every context of two tokens, counted without tokengeom's counting."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for document in DOCUMENTS:
        tokens = WordTokenizer.split(document)
        for place in range(2, len(tokens)):
            found[" ".join(tokens[place - 2 : place])][tokens[place]] += 1
    return found


def contents_with(stats: NextTokenStatistics) -> ReportContents:
    """Contents whose corpus section can be made; there is no prediction that belongs to these statistics."""
    return replace(story_contents(), stats=stats, runs={}, comparisons={})


@pytest.mark.parametrize("cut", [{"rest": "merge"}, {"rest": "drop"}, {"rest": "merge", "support": "top-p:0.7"}])
def test_shares_of_next_tokens_are_those_of_the_whole_text(
    follows: dict[str, Counter[str]], cut: dict[str, Any]
) -> None:
    stats = count(DOCUMENTS, context=2, top_contexts=60, vocabulary=20, **cut)
    view = corpus(Page(contents_with(stats))).view
    assert len(view["contexts"]) == 12
    for row in view["contexts"]:
        after = follows[row["text"]]
        total = sum(after.values())
        shown = dict(row["next"])
        known = set(stats.vocabulary)
        for token, share in shown.items():
            times = sum(n for one, n in after.items() if one not in known) if token == OTHER else after[token]
            assert share == percent(times / total)
        j = [stats.context_text(i) for i in range(stats.m)].index(row["text"])
        kept = int(stats.context_counts[j])
        assert row["left_out"] == (percent(1 - kept / total) if kept < total else "")
    assert view["left_out"] or not any(row["left_out"] for row in view["contexts"])
    assert bool(view["other"]) == (stats.other is not None)


def test_the_share_of_the_text_and_of_merged_tokens_are_stated() -> None:
    stats = count(DOCUMENTS, context=2, top_contexts=60, vocabulary=20, rest="merge")
    rows = {label: value for _, value, label, _ in corpus(Page(contents_with(stats))).view["rows"]}
    assert rows["of the text's windows"] == percent(stats.n / count(DOCUMENTS, context=2).n)
    merged = stats.counts.toarray()[-1].sum()
    assert rows[f"of the windows kept end in {OTHER}"] == percent(merged / stats.n)
    assert "further windows outside the supports" in rows
    assert "one of the other 20" in other_sentence(stats)
    assert other_sentence(count(DOCUMENTS, context=2, top_contexts=60)) == ""


def test_a_group_says_what_share_of_its_windows_was_left_out() -> None:
    stats = NextTokenStatistics.from_counts([[3, 1], [1, 0], [4, 9]], vocabulary=["a", "b", "c"])
    assert left_out_share(stats, np.array([0, 1])) == ""
    cut = stats.limited(vocabulary=2)
    assert left_out_share(cut, np.array([0])) == percent(1 / 8)
    assert left_out_share(cut, np.array([1])) == ""


def test_the_page_shows_what_was_left_out_or_merged() -> None:
    made = story_contents()
    stats = made.stats
    assert stats.text_counts is not None
    html = render(made)
    assert "left out" in html
    assert "is the share of them whose next token a cut left out" in html
    names = (*stats.vocabulary[:-1], OTHER)
    assert "stands for every next token" in render(replace(made, stats=replace(stats, vocabulary=names)))
