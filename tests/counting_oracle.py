"""What counting is compared with: a dictionary of pairs, and cuts made by an engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tokengeom.corpus.locate import Corpus
from tokengeom.statistics.count import count_pairs
from tokengeom.statistics.cuts import AbstractCut
from tokengeom.statistics.engines import EngineSettings, open_engine, temporary_folder
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.ordered_pairs import build_statistics
from tokengeom.statistics.windows import ABSENT, START

Pairs = dict[tuple[tuple[int, ...], int], int]


def dictionary_count(documents: Sequence[Sequence[int]], context: int, kind: str, pad: bool) -> Pairs:
    """Counts of pairs by the most direct loop: the oracle of every engine."""
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
    """Statistics in the form of the oracle."""
    assert statistics.contexts is not None
    counts = statistics.counts.tocoo()
    contexts = [tuple(int(t) for t in row if t != ABSENT) for row in statistics.contexts]
    return {(contexts[j], int(z)): int(c) for z, j, c in zip(counts.row, counts.col, counts.data, strict=True)}


def cut_by_engine(
    corpus: Corpus, cuts: Sequence[AbstractCut], machine: EngineSettings | None = None, **settings: object
) -> NextTokenStatistics:
    """Statistics whose cuts were made in the engine, before anything was gathered in memory."""
    chosen = machine or EngineSettings()
    with temporary_folder() as work, open_engine(work, chosen) as engine:
        pairs = count_pairs(corpus, Path(work) / "all", **vars(chosen), **settings)  # type: ignore[arg-type]
        return build_statistics(pairs.cut(cuts, engine, work), engine)
