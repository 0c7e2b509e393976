"""``tokengeom count``: a text of any size to exact next-token statistics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tokengeom.cli.app import Json, Quiet, app, guarded
from tokengeom.cli.options import starting_with
from tokengeom.cli.output import give, progress_shown
from tokengeom.cli.reading import PANEL as READING
from tokengeom.cli.reading import Reading
from tokengeom.cli.show_statistics import show_statistics
from tokengeom.statistics.cuts import AbstractCut, Rest, Totals
from tokengeom.statistics.engines import EngineName
from tokengeom.statistics.next_token import NextTokenStatistics, standard_cuts
from tokengeom.statistics.pairs import CountedPairs
from tokengeom.statistics.windows import WindowKind

CUTS, ENGINE, OUTPUT = "Cuts, made in this order", "Engine", "Output"


@dataclass(frozen=True)
class Cuts:
    """Options of cuts."""

    min_count: Annotated[int | None, typer.Option(help="Drop contexts that are rarer.", rich_help_panel=CUTS)] = None
    top_contexts: Annotated[int | None, typer.Option(help="Keep the most frequent contexts.", rich_help_panel=CUTS)] = (
        None
    )
    vocabulary: Annotated[int | None, typer.Option(help="Keep the commonest next tokens.", rich_help_panel=CUTS)] = None
    rest: Annotated[
        Rest, typer.Option(help="Other next tokens: drop them or merge them into one.", rich_help_panel=CUTS)
    ] = "drop"
    support: Annotated[str, typer.Option(help="Support policy: raw, count:TAU or top-p:P.", rich_help_panel=CUTS)] = (
        "raw"
    )

    def cuts(self) -> list[AbstractCut]:
        """As statistics take them."""
        return standard_cuts(self.top_contexts, self.vocabulary, self.rest, self.min_count, self.support)


@dataclass(frozen=True)
class Engine:
    """Options of the counting engine."""

    engine: Annotated[EngineName, typer.Option(help="In this process, or on a cluster.", rich_help_panel=ENGINE)] = (
        "duckdb"
    )
    memory: Annotated[
        str, typer.Option(help="Memory limit of counting; beyond it, it spills.", rich_help_panel=ENGINE)
    ] = "2GB"
    threads: Annotated[
        int | None, typer.Option(help="Threads of DuckDB; by default one a core.", rich_help_panel=ENGINE)
    ] = None
    master: Annotated[
        str | None, typer.Option(help="Spark's master, such as local[4] or spark://host:7077.", rich_help_panel=ENGINE)
    ] = None
    temp: Annotated[
        Path | None, typer.Option(help="Folder for spilling; the system's by default.", rich_help_panel=ENGINE)
    ] = None


@app.command("count")
@guarded
def count_command(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Text, .jsonl, .parquet or .bin files (also compressed), folders, globs, '-' for standard input, "
            "or folders of saved pairs to merge. Without any: the built-in stories.",
            show_default=False,
        ),
    ] = None,
    context: Annotated[int, typer.Option("--context", "-c", help="Tokens in a context.")] = 4,
    tokenizer: Annotated[
        str,
        typer.Option(
            "--tokenizer",
            "-t",
            help="word, character, byte, bpe, bpe:SIZE, or a saved tokenizer's path.",
            autocompletion=starting_with(lambda: ["word", "character", "byte", "bpe", "bpe:4096"]),
        ),
    ] = "word",
    windows: Annotated[
        WindowKind, typer.Option(help="Contexts of exactly that length, or of every length up to it, pooled.")
    ] = "sliding",
    pad: Annotated[bool, typer.Option("--pad", help="Predict a document's first tokens too.")] = False,
    *,
    reading: Reading,
    keep_separator: Annotated[
        bool, typer.Option("--keep-separator", help="Count that id as a token.", rich_help_panel=READING)
    ] = False,
    vocabulary_size: Annotated[
        int | None, typer.Option(help="V of id input; larger ids are an error.", rich_help_panel=READING)
    ] = None,
    limits: Cuts,
    machine: Engine,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to save the statistics in.", rich_help_panel=OUTPUT)
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Folder to keep the uncut pairs in, to be merged later.", rich_help_panel=OUTPUT),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count which tokens follow which contexts, exactly.

    For example:

    * `tokengeom count stories.txt --context 4 --tokenizer word --out stats`
    * `tokengeom count 'shards/*.jsonl.gz' --column text --tokenizer bpe:4096 --memory 4GB --out stats`
    * `tokengeom count train.bin --dtype uint16 --separator-id 50256 --tokenizer gpt2/ --top-contexts 10000`
    * `tokengeom count ids.parquet --column tokens --engine spark --master spark://host:7077 --min-count 10`
    """
    from tokengeom.statistics.count import count, count_pairs

    began = time.monotonic()
    _check_targets(out, pairs)
    cuts = limits.cuts()
    named = [name if "://" in name else Path(name) for name in corpus] if corpus else None
    options: dict[str, Any] = {
        "context": context,
        "tokenizer": tokenizer,
        "windows": windows,
        "pad": pad,
        "reading": reading.options(keep_separator=keep_separator),
        "vocabulary_size": vocabulary_size,
        **vars(machine),
    }
    if pairs is not None and out is None and not cuts:
        with progress_shown(quiet) as progress:
            counted, totals = count_pairs(named, pairs, progress=progress, **options)
        _give_pairs(counted, totals, pairs, time.monotonic() - began, as_json, quiet)
        return
    with progress_shown(quiet) as progress:
        statistics = count(named, cuts=cuts, pairs=pairs, progress=progress, **options)
        if out is not None:
            with progress.stage(f"Saving {out}", None):
                statistics.save(out)
    seconds = time.monotonic() - began
    data = _as_data(statistics, out, seconds)
    give(data, lambda console: show_statistics(statistics, console, out, seconds), as_json, quiet)


def _check_targets(out: Path | None, pairs: Path | None) -> None:
    """Before hours of counting, not after."""
    from tokengeom.errors import InputError
    from tokengeom.folders import check_target
    from tokengeom.statistics.pairs import FORMAT as PAIRS
    from tokengeom.statistics.storage import FORMAT as STATISTICS

    if out is not None and pairs is not None and out.resolve() == pairs.resolve():
        raise InputError(f"--out and --pairs must be different folders; both are {out}.")
    for target, kind in ((out, STATISTICS), (pairs, PAIRS)):
        if target is not None:
            check_target(target, kind)


def _give_pairs(counted: CountedPairs, totals: Totals, pairs: Path, seconds: float, as_json: bool, quiet: bool) -> None:
    """A shard that is kept to be merged is not gathered; its totals are all there is to say of it."""
    data = {
        "windows": totals.n,
        "contexts": totals.m,
        "vocabulary": totals.V,
        "entropy_nats": totals.entropy,
        "corpus": counted.corpus,
        "pairs": str(pairs),
        "seconds": seconds,
    }
    said = (
        f"{totals.n:,} windows, {totals.m:,} contexts, vocabulary {totals.V:,}, "
        f"entropy floor {totals.entropy:.4f} nats. "
        f"Pairs saved in {pairs} in {seconds:.1f} s; merge them with others by `tokengeom count {pairs} ...`."
    )
    give(data, lambda console: console.print(said, markup=False), as_json, quiet)


def _as_data(statistics: NextTokenStatistics, out: Path | None, seconds: float) -> dict[str, Any]:
    from tokengeom.statistics.cuts import describe_effects
    from tokengeom.statistics.supports import warnings_about

    return {
        "windows": statistics.n,
        "contexts": statistics.m,
        "vocabulary": statistics.V,
        "entropy_nats": statistics.entropy,
        "distinct_supports": statistics.groups.count,
        "one_hot_share": statistics.one_hot_share,
        "corpus": statistics.corpus,
        "cuts": describe_effects(statistics.effects),
        "warnings": warnings_about(statistics),
        "out": None if out is None else str(out),
        "seconds": seconds,
    }
