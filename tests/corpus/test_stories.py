"""The built-in stories: varied overlapping supports, seeds, and files of any length."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tokengeom import NextTokenStatistics, count
from tokengeom.core.errors import CorpusError
from tokengeom.corpus.stories import BuiltInStories, grammar, stories, write_stories


def test_the_commonest_contexts_have_varied_overlapping_supports(built_in: NextTokenStatistics) -> None:
    cut = built_in.limited(top_contexts=400, vocabulary=104)
    sizes = cut.support_sizes
    assert cut.V == 104
    assert cut.m > 350
    assert set(range(1, 11)) <= set(sizes.tolist())
    assert sizes.max() >= 12
    assert 0.2 < cut.one_hot_share < 0.6
    assert cut.groups.count > 80
    overlap = (cut.S.T.astype(np.int64) @ cut.S.astype(np.int64)).toarray()
    proper = (overlap > 0) & (overlap < np.minimum.outer(sizes, sizes))
    assert proper.mean() > 0.02


def test_the_same_seed_gives_the_same_stories() -> None:
    assert list(islice(stories(3), 5)) == list(islice(stories(3), 5))
    assert list(islice(stories(3), 5)) != list(islice(stories(4), 5))


def test_a_file_has_at_least_the_words_asked_for(tmp_path: Path) -> None:
    written = write_stories(tmp_path / "a.txt", words=5000, seed=1)
    assert 5000 <= written < 5300
    statistics = count(tmp_path / "a.txt")
    assert statistics.corpus["separators"] == ["blank"]
    # Punctuation that is attached to a word is a token of its own.
    assert statistics.corpus["tokens"] > written
    with pytest.raises(CorpusError, match="at least one word"):
        write_stories(tmp_path / "a.txt", words=0)


def test_every_rule_is_used() -> None:
    text = " ".join(islice(stories(0), 3000))
    plain = [option for options in grammar()["rules"].values() for option in options if "{" not in option]
    assert [option for option in plain if option not in text] == []
    assert "{" not in text


def test_a_corpus_without_stories_is_refused() -> None:
    with pytest.raises(CorpusError, match="at least one story"):
        BuiltInStories(0)
