"""``tokengeom count``: exact next-token statistics of a text of any size."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from tokengeom.ask.item_search import shown
from tokengeom.cli.app import app, guarded
from tokengeom.cli.options import OUTPUT, Out, corpus_of, keywords, optional
from tokengeom.cli.output import make_and_print, plain_table, print_summary, progress_shown
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import rounded_percent
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.statistics.count import CountSettings
from tokengeom.statistics.cuts import CutSettings
from tokengeom.statistics.engines import EngineSettings
from tokengeom.statistics.saved_statistics import followers
from tokengeom.statistics.supports import warnings_about

if TYPE_CHECKING:
    from rich.table import Table

    from tokengeom.statistics.next_token import NextTokenStatistics


@app.command("count")
@guarded
def count_command(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Text, .jsonl, .parquet, .arrow or .bin files (also compressed), folders, globs, '-' for standard "
            "input, or folders of saved pairs to merge. Without any: the built-in stories.",
            show_default=False,
        ),
    ] = None,
    *,
    counting: CountSettings,
    reading: ReadingSettings,
    cuts: CutSettings,
    engine_settings: EngineSettings,
    out: Out = None,
    pairs: Annotated[
        Path | None, optional("Folder to keep the uncut pairs in, to be merged later.", panel=OUTPUT)
    ] = None,
) -> None:
    """Count which tokens follow which contexts, exactly.

    For example:

    * `tokengeom count stories.txt --context 4 --tokenizer word --out stats`
    * `tokengeom count 'shards/*.jsonl.gz' --column text --tokenizer bpe:4096 --memory 4GB --out stats`
    * `tokengeom count train.bin --dtype uint16 --separator-id 50256 --tokenizer gpt2/ --top-contexts 10000`
    * `tokengeom count ids.parquet --column tokens --engine spark --master spark://host:7077 --min-count 10`
    """
    from tokengeom.statistics.count import count, count_pairs
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.statistics.pairs import CountedPairs

    began = time.monotonic()
    if out is not None and pairs is not None and out.resolve() == pairs.resolve():
        raise InputError(f"--out and --pairs must be different folders; both are {out}.")
    if pairs is not None:
        CountedPairs.require_target(pairs)
    named = corpus_of(corpus) if corpus else None
    how = keywords(counting, reading, engine_settings)
    if pairs is not None and out is None and cuts == CutSettings():
        # A shard that is kept to be merged later is not gathered in memory.
        with progress_shown() as progress:
            counted = count_pairs(named, pairs, progress=progress, **how)
        print_summary(counted, began=began, out=pairs, more={"pairs": str(pairs)})
        return
    how |= {"pairs": pairs, **keywords(cuts)}
    make_and_print(
        NextTokenStatistics, lambda progress: count(named, progress=progress, **how), out, print_text=print_statistics
    )


_CONTEXTS, _TOKENS, _BAR = 8, 6, 32
_SEPARATORS = {"blank": "blank lines", "file": "the ends of files"}
"""Separators that are words, as a sentence says them."""
_BINS = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 9), (10, 14), (15, 24), (25, 49), (50, 99), (100, None)]


def print_statistics(statistics: NextTokenStatistics, console: Console) -> None:
    """Print sizes, cuts, the most frequent contexts with their next tokens, support sizes, and warnings."""
    console.print(_numbers(statistics))
    if statistics.effects:
        console.print(_cuts(statistics))
    console.print(_contexts(statistics))
    console.print(_support_sizes(statistics))
    for sentence in warnings_about(statistics):
        console.print(Text.assemble(("Note: ", "bold yellow"), sentence))


def _numbers(statistics: NextTokenStatistics) -> Table:
    corpus, sizes = statistics.corpus, statistics.support_sizes
    table = plain_table("Next-token statistics", ("", "", ""), 3)
    table.show_header = False
    separators = ", ".join(_SEPARATORS.get(one, repr(one)) for one in corpus.get("separators", []))
    between = f"separated by {separators}" if separators else ""
    covered = "" if statistics.coverage is None else f"{rounded_percent(statistics.coverage, 1)} of the text's"
    tokenizer = statistics.tokenizer
    named = "" if tokenizer is None else f"{tokenizer.kind} tokenizer {tokenizer.content_hash[:12]}"
    rows = [
        ("documents", f"{corpus.get('documents', 0):,}", between),
        ("tokens", f"{corpus.get('tokens', 0):,}", ""),
        ("windows n", f"{statistics.n:,}", covered if statistics.effects else ""),
        ("distinct contexts m", f"{statistics.m:,}", f"{statistics.n / statistics.m:.1f} windows each"),
        ("vocabulary V", f"{statistics.V:,}", named or "token ids, without a tokenizer"),
        ("entropy floor H", f"{statistics.entropy:.4f}", "nats: no model's loss on these windows is lower"),
        ("distinct supports", f"{statistics.groups.count:,}", ""),
        ("support size", f"{sizes.mean():.2f}", f"on average; median {np.median(sizes):.0f}, largest {sizes.max():,}"),
        ("one-hot contexts", rounded_percent(statistics.one_hot_share, 1), "with a support of one token"),
    ]
    if (completeness := statistics.completeness) is not None:
        share = rounded_percent(completeness.missing_share, 1)
        rows.append(("outside supports", share, "of further windows of these contexts, by Good-Turing"))
    for name, value, note in rows:
        table.add_row(name, Text(value, justify="right"), Text(note, style="dim"))
    return table


def _cuts(statistics: NextTokenStatistics) -> Table:
    table = plain_table("Cuts", ("kept", "windows n", "contexts m", "vocabulary V", "floor H"), 1)
    first = statistics.effects[0].before
    rows = [("everything", first), *((effect.cut, effect.after) for effect in statistics.effects)]
    for name, totals in rows:
        table.add_row(name, f"{totals.n:,}", f"{totals.m:,}", f"{totals.V:,}", f"{totals.entropy:.4f}")
    return table


def _contexts(statistics: NextTokenStatistics) -> Table:
    table = plain_table("Most frequent contexts", ("windows", "context", "next tokens"), 3)
    for j in statistics.most_frequent(_CONTEXTS).tolist():
        context, tokens = shown(statistics.context_text(j)), followers(statistics, j, _TOKENS, shown)
        table.add_row(f"{statistics.context_counts[j]:,}", Text(context), Text(tokens))
    return table


def _support_sizes(statistics: NextTokenStatistics) -> Table:
    table = plain_table("Support sizes", ("tokens", "contexts", ""), 3)
    sizes = statistics.support_sizes
    counts = [np.count_nonzero((sizes >= low) & (sizes <= (high or sizes.max()))) for low, high in _BINS]
    top = max(counts)
    for (low, high), count in zip(_BINS, counts, strict=True):
        if count:
            label = f"{low}" if low == high else f"{low}-{high}" if high else f"{low} or more"
            table.add_row(label, f"{count:,}", Text("█" * max(1, round(_BAR * count / top)), style="blue"))
    return table
