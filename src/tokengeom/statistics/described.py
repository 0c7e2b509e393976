"""What `NextTokenStatistics` say of themselves: as plain data, in sentences, and in a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tokengeom.core.numerics import rounded_percent
from tokengeom.statistics.restricted import OTHER
from tokengeom.statistics.supports import warnings_about

if TYPE_CHECKING:
    from tokengeom.statistics.next_token import NextTokenStatistics

_CONTEXTS_SHOWN, _TOKENS_SHOWN = 3, 5


def stated(statistics: NextTokenStatistics) -> dict[str, Any]:
    """What a manifest states, and warnings."""
    text = statistics.text_counts
    return {
        "windows": statistics.n if statistics.has_counts else None,
        "coverage": statistics.coverage,
        "left_out": 0.0 if text is None else float(1 - statistics.n / text.sum()),
        "contexts": statistics.m,
        "vocabulary": statistics.V,
        "entropy_nats": statistics.entropy,
        "distinct_supports": statistics.groups.count,
        "one_hot_share": statistics.one_hot_share,
        "completeness": None if statistics.completeness is None else statistics.completeness.to_dict(),
        "hash": statistics.hash,
        "window": None if statistics.windows is None else asdict(statistics.windows),
        "tokenizer": None if statistics.tokenizer is None else statistics.tokenizer.to_dict(),
        "cuts": [asdict(effect) for effect in statistics.effects],
        "corpus": statistics.corpus,
        "warnings": warnings_about(statistics),
    }


def summary(statistics: NextTokenStatistics) -> str:
    """Sizes, entropy floor, supports, cuts and warnings, one sentence per line."""
    windows = f"{_number(statistics.n, 'window')} with " if statistics.has_counts else ""
    supports, merged = _number(statistics.groups.count, "distinct support"), statistics.merged_share
    return "\n".join(
        [
            f"{windows}{_number(statistics.m, 'distinct context')} and {_number(statistics.V, 'next token')} "
            f"(tokenizer: {statistics.tokenizer_name}).",
            f"The entropy floor is {statistics.entropy:.4f} nats: no model's loss on these windows is lower.",
            f"{supports}, with {statistics.table.nnz / statistics.m:.2f} tokens per context on average; "
            f"{rounded_percent(statistics.one_hot_share, 1)} of the contexts have a support of one token.",
            *([f"{rounded_percent(merged, 1)} of the windows end in {OTHER}."] if merged else []),
            *(effect.sentence for effect in statistics.effects),
            *warnings_about(statistics),
        ]
    )


def facts(statistics: NextTokenStatistics) -> list[tuple[str, str]]:
    """Sizes, and what follows the most frequent contexts, as rows of a table."""
    kept = "" if statistics.coverage is None else f" ({statistics.coverage:.1%} of the text's)"
    return [
        *([("windows", f"{statistics.n:,}{kept}")] if statistics.has_counts else []),
        ("contexts", f"{statistics.m:,}"),
        ("vocabulary", f"{statistics.V:,}"),
        ("entropy floor", f"{statistics.entropy:.4f} nats"),
        ("distinct supports", f"{statistics.groups.count:,}"),
        ("support size", f"{statistics.support_sizes.mean():.2f} on average"),
        ("one-hot contexts", f"{statistics.one_hot_share:.1%}"),
        ("tokenizer", statistics.tokenizer_name),
        ("hash", statistics.hash[:8]),
        *(_followed(statistics, int(j)) for j in statistics.most_frequent(_CONTEXTS_SHOWN)),
    ]


def _followed(statistics: NextTokenStatistics, j: int) -> tuple[str, str]:
    more, left_out = int(statistics.support_sizes[j]) - _TOKENS_SHOWN, float(statistics.left_out[j])
    shown = statistics.next_tokens(j, _TOKENS_SHOWN)
    tokens = ", ".join(f"{token} {p * (1 - left_out):.0%}" for token, p in shown)
    rest = (f", and {more:,} more" if more > 0 else "") + (f" (left out: {left_out:.0%})" if left_out else "")
    return f"after \u201c{statistics.context_text(j)}\u201d", tokens + rest


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
