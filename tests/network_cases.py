"""Small statistics with tokens in their contexts, for networks."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Literal

from tokengeom.corpus.stories import stories
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics


@cache
def small_stories(
    windows: Literal["sliding", "prefixes"] = "sliding", contexts: int = 40, vocabulary: int = 24
) -> NextTokenStatistics:
    """The most frequent contexts of three tokens in a hundred stories."""
    counted = count(list(islice(stories(0), 100)), context=3, windows=windows)
    return counted.limited(top_contexts=contexts, vocabulary=vocabulary)
