"""Statistics as a notebook shows them: sizes, floor, supports, and the most frequent contexts with what follows."""

from __future__ import annotations

from tokengeom.html_table import html_table
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.supports import warnings_about

_CONTEXTS, _TOKENS = 3, 5


def statistics_html(statistics: NextTokenStatistics) -> str:
    """The same facts as on a terminal, in short."""
    rows = [
        *([("windows n", f"{statistics.n:,}")] if statistics.has_counts else []),
        ("contexts m", f"{statistics.m:,}"),
        ("vocabulary V", f"{statistics.V:,}"),
        ("entropy floor H", f"{statistics.entropy:.4f} nats"),
        ("distinct supports", f"{statistics.groups.count:,}"),
        ("support size", f"{statistics.support_sizes.mean():.2f} on average"),
        ("one-hot contexts", f"{statistics.one_hot_share:.1%}"),
        *(_followed(statistics, int(j)) for j in statistics.most_frequent(_CONTEXTS)),
    ]
    return html_table("Next-token statistics", rows, warnings_about(statistics))


def _followed(statistics: NextTokenStatistics, j: int) -> tuple[str, str]:
    tokens = ", ".join(f"{token} {p:.0%}" for token, p in statistics.next_tokens(j, _TOKENS))
    more = int(statistics.support_sizes[j]) - _TOKENS
    return f"after \u201c{statistics.context_text(j)}\u201d", tokens + (f", and {more:,} more" if more > 0 else "")
