"""Counting as a person would write it: what every engine is held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.windows import ABSENT, START

Pairs = dict[tuple[tuple[int, ...], int], int]


def dictionary_count(documents: Sequence[Sequence[int]], context: int, kind: str, pad: bool) -> Pairs:
    """Counting as a person would write it: the oracle of every engine."""
    pairs: Counter[tuple[tuple[int, ...], int]] = Counter()
    for document in documents:
        lengths = range(1, context + 1) if kind == "prefixes" else [context]
        markers = 0 if not pad else 1 if kind == "prefixes" else context
        text = [START] * markers + list(document)
        for length in lengths:
            for place in range(max(length, markers), len(text)):
                pairs[(tuple(text[place - length : place]), text[place])] += 1
    return dict(pairs)


def as_pairs(statistics: NextTokenStatistics) -> Pairs:
    """Statistics as the oracle writes them."""
    assert statistics.contexts is not None
    counts = statistics.counts.tocoo()
    contexts = [tuple(int(t) for t in row if t != ABSENT) for row in statistics.contexts]
    return {(contexts[j], int(z)): int(c) for z, j, c in zip(counts.row, counts.col, counts.data, strict=True)}
