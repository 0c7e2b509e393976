"""Counting compared with Polars' streaming engine, Python's Counter and nltk.lm.

The data are Zipf-distributed ids (exponent 1, GPT-2's vocabulary of 50,257) in documents of 450 tokens on average;
contexts have 4 tokens. tokengeom's memory limit is 2 GB in every comparison; Polars has none.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness import Measured, data_folder, finish, measure_processes, print_machine, row, side, stopwatch

V, CONTEXT, MEMORY, SEPARATOR = 50_257, 4, "2GB", 50_256
TOKENS, SMALL = 50_000_000, 2_000_000
SCALES = (5_000_000, 50_000_000, 500_000_000)
_CHUNK = 5_000_000


def token_file(tokens: int) -> Path:
    """Flat file of ids with a separator between documents; made once and kept."""
    path = data_folder() / f"zipf-{tokens}.bin"
    if not path.exists():
        rng = np.random.default_rng(0)
        upper = np.cumsum(1 / np.arange(1, SEPARATOR + 1))
        with path.open("wb") as file:
            for begin in range(0, tokens, _CHUNK):
                size = min(_CHUNK, tokens - begin)
                ids = np.searchsorted(upper, rng.random(size) * upper[-1]).astype(np.uint16)
                ids[rng.random(size) < 1 / 450] = SEPARATOR
                ids.tofile(file)
    return path


def token_table(tokens: int) -> Path:
    """The same ids as a token table; made once and kept."""
    from tokengeom.corpus.token_files import TokenFile
    from tokengeom.statistics.token_table import TokenTableWriter

    folder = data_folder() / f"zipf-{tokens}"
    if not folder.exists():
        folder.mkdir()
        with TokenTableWriter(folder, CONTEXT, V) as writer:
            for batch in TokenFile(token_file(tokens), "uint16", SEPARATOR).batches():
                writer.add(batch, "")
    return folder


def ours_pairs(table: str) -> None:
    """Token table to counted pairs in Parquet."""
    from tokengeom import count
    from tokengeom.progress import SilentProgress
    from tokengeom.statistics.engines import EngineSettings, open_engine
    from tokengeom.statistics.windows import ContextPacking, Windows, count_windows

    with (
        tempfile.TemporaryDirectory(dir=data_folder()) as work,
        open_engine(Path(work), EngineSettings(memory=MEMORY)) as engine,
    ):
        pairs = Path(work) / "pairs"
        # On every side, libraries are loaded before the clock starts.
        count([range(2 * CONTEXT)], context=CONTEXT)
        with stopwatch() as seconds:
            plan = count_windows(engine.read([table]), Windows(CONTEXT), ContextPacking(V, CONTEXT))
            engine.write(plan, pairs, "", SilentProgress())
            took = seconds()
        finish(took, _answer(pairs))


def polars_pairs(table: str) -> None:
    """The same in Polars' streaming engine: windows as slices of lists, contexts packed into the same keys."""
    import polars as pl

    with tempfile.TemporaryDirectory(dir=data_folder()) as work:
        path = Path(work) / "pairs.parquet"
        with stopwatch() as seconds:
            length = pl.col("tokens").list.len().cast(pl.Int64)
            places = range(CONTEXT + 1)
            windows = (
                pl.scan_parquet(f"{table}/*.parquet")
                .filter(length > CONTEXT)
                .select([pl.col("tokens").list.slice(k, length - CONTEXT).alias(f"t{k}") for k in places])
                .explode([f"t{k}" for k in places])
            )
            key = pl.lit(0, pl.Int64)
            for k in range(CONTEXT):
                key = key * (V + 2) + pl.col(f"t{k}").cast(pl.Int64) + 2
            counted = windows.select(context_0=key, next=pl.col(f"t{CONTEXT}")).group_by("context_0", "next")
            counted.agg(count=pl.len().cast(pl.Int64)).sink_parquet(path)
            took = seconds()
        finish(took, _answer(path))


def _answer(pairs: Path) -> list[int]:
    import duckdb

    source = f"{pairs}/*.parquet" if pairs.is_dir() else str(pairs)
    sums = "count(*), sum(count), sum(context_0 % 1000003 * count), sum(next * count)"
    (found,) = duckdb.sql(f"SELECT {sums} FROM '{source}'").fetchall()
    return [int(value) for value in found]


def ours_saved(path: str) -> None:
    """Token file to saved statistics."""
    from tokengeom import count

    with tempfile.TemporaryDirectory(dir=data_folder()) as work:
        with stopwatch() as seconds:
            statistics = count(
                path, context=CONTEXT, separator_id=SEPARATOR, vocabulary_size=V, memory=MEMORY, temp=work
            )
            statistics.save(Path(work) / "statistics")
            took = seconds()
        finish(took, [statistics.m, statistics.n])


def _small_documents() -> list[list[int]]:
    ids = np.fromfile(token_file(SMALL), np.uint16)
    documents = np.split(ids, np.flatnonzero(ids == SEPARATOR))
    return [part[part != SEPARATOR].tolist() for part in documents]


def counter_small() -> None:
    """Python's Counter over zipped shifts of each document, the fastest way to count windows with it."""
    documents = _small_documents()
    with stopwatch() as seconds:
        counter: Counter[tuple[int, ...]] = Counter()
        for document in documents:
            counter.update(zip(*(document[k:] for k in range(CONTEXT + 1)), strict=False))
        took = seconds()
    finish(took, [len(counter), counter.total()])


def counters_small() -> None:
    """One Counter per context: the content of statistics, still unsorted."""
    documents = _small_documents()
    with stopwatch() as seconds:
        contexts: dict[tuple[int, ...], Counter[int]] = {}
        for document in documents:
            for place in range(CONTEXT, len(document)):
                context = tuple(document[place - CONTEXT : place])
                contexts.setdefault(context, Counter())[document[place]] += 1
        took = seconds()
    finish(took, [len(contexts), sum(counter.total() for counter in contexts.values())])


def nltk_small() -> None:
    """nltk.lm's NgramCounter on the same windows."""
    from nltk.lm.counter import NgramCounter
    from nltk.util import ngrams

    documents = _small_documents()
    with stopwatch() as seconds:
        counter = NgramCounter(list(ngrams(document, CONTEXT + 1)) for document in documents)
        took = seconds()
    table = counter[CONTEXT + 1]
    finish(took, [len(table), sum(one.N() for one in table.values())])


def ours_small() -> None:
    """Ids in memory to frozen statistics."""
    from tokengeom import count

    documents = [np.array(document) for document in _small_documents()]
    count(documents[:2], context=CONTEXT, vocabulary_size=V)
    with stopwatch() as seconds:
        statistics = count(documents, context=CONTEXT, vocabulary_size=V, memory=MEMORY)
        took = seconds()
    finish(took, [statistics.m, statistics.n])


def _side(*arguments: object) -> Callable[[], Measured]:
    return side("benchmarks.counting", *arguments)


def _rate(tokens: int, measured: Measured) -> str:
    return f"{tokens / measured.seconds / 1e6:.2f} million tokens per second"


def main() -> None:
    """Print every ratio of the README's table."""
    print_machine("tokengeom", "duckdb", "ibis-framework", "polars", "nltk", "numpy")
    table = token_table(TOKENS)
    print(f"{TOKENS:,} Zipf tokens, V={V:,}, contexts of {CONTEXT}, token table to counted pairs in Parquet; 5 repeats")
    found = measure_processes({"ours": _side("ours_pairs", table), "polars": _side("polars_pairs", table)}, 5)
    ours, polars = found["ours"], found["polars"]
    assert ours.answer == polars.answer, "both sides must count the same pairs"
    row(f"tokengeom, {MEMORY} limit", ours, ours, _rate(TOKENS, ours))
    row("polars streaming, no limit", polars, ours, _rate(TOKENS, polars))

    print(f"{TOKENS:,} tokens, token file to saved statistics; 3 repeats")
    saved = measure_processes({"ours": _side("ours_saved", token_file(TOKENS))}, 3)["ours"]
    row(
        f"tokengeom, {MEMORY} engine limit",
        saved,
        saved,
        _rate(TOKENS, saved),
    )

    print(f"{SMALL:,} tokens; 5 repeats; ratios of times to those of tokengeom")
    small = token_table(SMALL)
    sides = {
        "pairs": _side("ours_pairs", small),
        "counter": _side("counter_small"),
        "statistics": _side("ours_small"),
        "counters": _side("counters_small"),
        "nltk": _side("nltk_small"),
    }
    found = measure_processes(sides, 5)
    assert found["pairs"].answer[:2] == found["counter"].answer
    assert found["statistics"].answer == found["counters"].answer == found["nltk"].answer
    row("tokengeom, ids to counted pairs", found["pairs"], found["pairs"])
    row("Counter of 5-tuples", found["counter"], found["pairs"])
    row("tokengeom, ids to statistics", found["statistics"], found["statistics"])
    row("dictionary of Counters", found["counters"], found["statistics"])
    row("nltk.lm NgramCounter", found["nltk"], found["statistics"])

    print(f"Scaling: token table to counted pairs, {MEMORY} limit at every size")
    before = None
    for tokens in SCALES:
        free = shutil.disk_usage(data_folder()).free
        if free < 80 * tokens:
            print(f"  {tokens:,} tokens: skipped, only {free / 1e9:.0f} GB of disk space are free")
            continue
        repeats = 1 if tokens > 10**8 else 3
        measured = measure_processes({"ours": _side("ours_pairs", token_table(tokens))}, repeats)["ours"]
        grown = "" if before is None else f"{measured.seconds / before:.1f} times the time of the size before"
        numbers = f"{measured.seconds:9.2f} s  {measured.peak_gigabytes:5.2f} GB  {_rate(tokens, measured)}"
        print(f"  {tokens:>11,} tokens {numbers}  {grown}", flush=True)
        before = measured.seconds


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
