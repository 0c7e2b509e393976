"""Statistics as a person reads them on a terminal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.supports import warnings_about

_CONTEXTS, _TOKENS, _BAR = 8, 6, 32
_BINS = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 9), (10, 14), (15, 24), (25, 49), (50, 99), (100, None)]


def show_statistics(statistics: NextTokenStatistics, console: Console, out: Path | None, seconds: float) -> None:
    """Sizes, cuts, the most frequent contexts with what follows them, support sizes, warnings."""
    console.print(_numbers(statistics))
    if statistics.effects:
        console.print(_cuts(statistics))
    console.print(_contexts(statistics))
    console.print(_support_sizes(statistics))
    for sentence in warnings_about(statistics):
        console.print(Text.assemble(("Note: ", "bold yellow"), sentence))
    rate = statistics.corpus.get("tokens", 0) / max(seconds, 1e-9)
    saved = "not saved (give --out FOLDER)" if out is None else f"saved in {out}"
    console.print(f"{seconds:.1f} s, {rate:,.0f} tokens a second; {saved}.", highlight=False)


def _table(title: str, *columns: str, numbers: int = 0) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index >= len(columns) - numbers else "left")
    return table


def _numbers(statistics: NextTokenStatistics) -> Table:
    corpus, sizes = statistics.corpus, statistics.support_sizes
    table = _table("Next-token statistics", "", "", "")
    table.show_header = False
    separators = ", ".join(map(repr, corpus.get("separators", [])))
    between = f"separated by {separators}" if separators else ""
    rows = [
        ("documents", f"{corpus.get('documents', 0):,}", between),
        ("tokens", f"{corpus.get('tokens', 0):,}", ""),
        ("windows n", f"{statistics.n:,}", ""),
        ("distinct contexts m", f"{statistics.m:,}", f"{statistics.n / statistics.m:.1f} windows each"),
        ("vocabulary V", f"{statistics.V:,}", _tokenizer(statistics)),
        ("entropy floor H", f"{statistics.entropy:.4f}", "nats: no model's loss on these windows is lower"),
        ("distinct supports", f"{statistics.groups.count:,}", ""),
        ("support size", f"{sizes.mean():.2f}", f"on average; median {np.median(sizes):.0f}, largest {sizes.max():,}"),
        ("one-hot contexts", f"{statistics.one_hot_share:.1%}", "followed by one token alone"),
    ]
    for name, value, note in rows:
        table.add_row(name, Text(value, justify="right"), Text(note, style="dim"))
    return table


def _tokenizer(statistics: NextTokenStatistics) -> str:
    tokenizer = statistics.tokenizer
    return "ids" if tokenizer is None else f"{tokenizer.kind} tokenizer {tokenizer.content_hash[:12]}"


def _cuts(statistics: NextTokenStatistics) -> Table:
    table = _table("Cuts", "kept", "windows n", "contexts m", "vocabulary V", "floor H", numbers=4)
    first = statistics.effects[0].before
    rows = [("everything", first), *((effect.cut, effect.after) for effect in statistics.effects)]
    for name, totals in rows:
        table.add_row(name, f"{totals.n:,}", f"{totals.m:,}", f"{totals.V:,}", f"{totals.entropy:.4f}")
    return table


def _contexts(statistics: NextTokenStatistics) -> Table:
    table = _table("Most frequent contexts", "windows", "context", "followed by")
    for j in statistics.most_frequent(_CONTEXTS):
        tokens = statistics.next_tokens(int(j), _TOKENS)
        more = int(statistics.support_sizes[j]) - len(tokens)
        followers = ", ".join(f"{_visible(token)} {p:.0%}" for token, p in tokens)
        rest = f", and {more:,} more" if more > 0 else ""
        table.add_row(
            f"{statistics.context_counts[j]:,}", Text(_visible(statistics.context_text(int(j)))), Text(followers + rest)
        )
    return table


def _visible(text: str) -> str:
    """White space and control characters as escapes, where a text is nothing else or has line breaks."""
    return text if text.strip() == text and text.isprintable() and text else repr(text)


def _support_sizes(statistics: NextTokenStatistics) -> Table:
    table = _table("Support sizes", "tokens", "contexts", "", numbers=0)
    sizes = statistics.support_sizes
    counts = [np.count_nonzero((sizes >= low) & (sizes <= (high or sizes.max()))) for low, high in _BINS]
    top = max(counts)
    for (low, high), count in zip(_BINS, counts, strict=True):
        if count:
            label = f"{low}" if low == high else f"{low}-{high}" if high else f"{low} or more"
            table.add_row(label, f"{count:,}", Text("█" * max(1, round(_BAR * count / top)), style="blue"))
    return table
