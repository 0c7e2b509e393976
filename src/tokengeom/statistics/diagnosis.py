"""What a person should know before trusting statistics: plain sentences about degenerate or lossy cases."""

from __future__ import annotations

import numpy as np

from tokengeom.statistics.next_token import NextTokenStatistics

_MOSTLY = 0.9


def warnings_about(statistics: NextTokenStatistics) -> list[str]:
    """Sentences, none if all is well."""
    return [*_supports(statistics), *_reading(statistics)]


def _supports(statistics: NextTokenStatistics) -> list[str]:
    sizes, V = statistics.support_sizes, statistics.V
    share = statistics.one_hot_share
    full = float(np.mean(sizes == V))
    if V == 1:
        return ["The vocabulary has a single token: there is nothing to predict."]
    if share == 1:
        return [
            "Every context is followed by one token alone: this is one-hot classification, and supports carry no "
            "structure beyond the class. Take shorter contexts to see overlapping supports."
        ]
    if full == 1:
        return [
            "Every context can be followed by every token: supports carry no geometry. Take longer contexts, a larger "
            "vocabulary, or a support policy such as top-p:0.9."
        ]
    if share > _MOSTLY:
        return [
            f"{share:.0%} of the contexts are followed by one token alone. Shorter contexts, or the most frequent "
            "contexts only, have richer supports."
        ]
    return []


def _reading(statistics: NextTokenStatistics) -> list[str]:
    sentences = []
    short, documents = statistics.corpus.get("short_documents", 0), statistics.corpus.get("documents", 0)
    if short:
        sentences.append(
            f"Shorter than a window, and so not counted: {short:,} of {documents:,} documents; pad or take a "
            "shorter context to count them."
        )
    separators = [one for one in statistics.corpus.get("separators", []) if one != "file"]
    if separators and documents == len(statistics.corpus.get("sources", [])):
        sentences.append(
            f"The separator between documents ({', '.join(map(repr, separators))}) was not found: each source is one "
            "document, and contexts run through all of it."
        )
    replaced = statistics.corpus.get("replaced_bytes", 0)
    if replaced:
        sentences.append(f"{replaced:,} bytes were not valid UTF-8 and were read as U+FFFD.")
    return sentences
