"""Counting compared with scripts that a user would write: Polars, pandas, Python's Counter and nltk.lm.

Contexts have 4 tokens, the vocabulary is GPT-2's (50,257 tokens), and tokengeom's memory limit is 2 GB everywhere; the
others have none. There are two kinds of token files. ``text`` repeats itself as text does: documents are drawn from
3,000 with Zipf-distributed ids (200 on average), and 5% of the ids are replaced by others. ``zipf`` never does: ids are
drawn independently, so nearly every window is a new context, which is the hardest case for any program.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Benchmark, Job, Measured, data_folder, finish, measure_processes, side, stopwatch

V, CONTEXT, MEMORY, SEPARATOR = 50_257, 4, "2GB", 50_256
TOKENS, SMALL = 50_000_000, 2_000_000
SCALES = (5_000_000, 50_000_000, 500_000_000)
KEPT_CONTEXTS = 100_000
MEDIAN = "median of 3"
_CHUNK = 5_000_000
_BASE_DOCUMENTS, _BASE_LENGTH, _REPLACED = 3_000, 200, 0.05


def token_file(kind: str, tokens: int) -> Path:
    """Flat file of ids with a separator between documents; made once and kept."""
    path = data_folder() / f"{kind}-{tokens}.bin"
    if not path.exists():
        chunks = _text_chunks if kind == "text" else _zipf_chunks
        with path.open("wb") as file:
            for ids in chunks(np.random.default_rng(0), tokens):
                ids.tofile(file)
    return path


def _zipf(rng: np.random.Generator, size: int) -> np.ndarray:
    upper = np.cumsum(1 / np.arange(1, SEPARATOR + 1))
    return np.searchsorted(upper, rng.random(size) * upper[-1]).astype(np.uint16)


def _zipf_chunks(rng: np.random.Generator, tokens: int) -> Iterator[np.ndarray]:
    for begin in range(0, tokens, _CHUNK):
        size = min(_CHUNK, tokens - begin)
        ids = _zipf(rng, size)
        ids[rng.random(size) < 1 / 450] = SEPARATOR
        yield ids


def _text_chunks(rng: np.random.Generator, tokens: int) -> Iterator[np.ndarray]:
    lengths = rng.geometric(1 / _BASE_LENGTH, _BASE_DOCUMENTS)
    documents = [np.append(_zipf(rng, int(length)), np.uint16(SEPARATOR)) for length in lengths]
    written = 0
    while written < tokens:
        drawn = rng.integers(0, _BASE_DOCUMENTS, _CHUNK // _BASE_LENGTH)
        ids = np.concatenate([documents[number] for number in drawn])[: tokens - written]
        replaced = (rng.random(ids.size) < _REPLACED) & (ids != SEPARATOR)
        ids[replaced] = _zipf(rng, int(replaced.sum()))
        yield ids
        written += ids.size


def ours_pairs(path: str) -> None:
    """Token file to counted pairs in Parquet."""
    from tokengeom import count
    from tokengeom.statistics.count import count_pairs

    with tempfile.TemporaryDirectory(dir=data_folder()) as work:
        # On every side, libraries are loaded before the clock starts.
        count([range(2 * CONTEXT)], context=CONTEXT)
        with stopwatch() as seconds:
            count_pairs(path, Path(work) / "pairs", **_settings(work))  # type: ignore[arg-type]
            took = seconds()
        finish(took, _answer(f"{work}/pairs/pairs/*.parquet", "context_0", "next"))


def ours_saved(path: str, contexts: str = "0") -> None:
    """Token file to saved statistics, of all contexts or of so many of the most frequent."""
    from tokengeom import count

    cut = {"top_contexts": int(contexts)} if int(contexts) else {}
    with tempfile.TemporaryDirectory(dir=data_folder()) as work:
        with stopwatch() as seconds:
            statistics = count(path, **cut, **_settings(work))  # type: ignore[arg-type]
            statistics.save(Path(work) / "statistics")
            took = seconds()
        finish(took, [statistics.m, statistics.n])


def _settings(work: str) -> dict[str, object]:
    return {
        "context": CONTEXT,
        "separator_id": SEPARATOR,
        "vocabulary_size": V,
        "memory": MEMORY,
        "temp": work,
    }


def _windows(path: str) -> dict[str, np.ndarray]:
    """Every window as one row of five columns: slices of the file, without those that cross a separator."""
    ids = np.fromfile(path, np.uint16)
    ends = np.flatnonzero(ids == SEPARATOR)
    inside = np.ones(ids.size - CONTEXT, np.bool_)
    for back in range(CONTEXT + 1):
        places = ends - back
        inside[places[(places >= 0) & (places < inside.size)]] = False
    return {f"t{k}": ids[k : ids.size - CONTEXT + k][inside] for k in range(CONTEXT + 1)}


def polars_pairs(path: str) -> None:
    """The same in Polars: slices of the file as columns, grouped, counted and written to Parquet."""
    import polars as pl

    with tempfile.TemporaryDirectory(dir=data_folder()) as work:
        target = Path(work) / "pairs.parquet"
        with stopwatch() as seconds:
            frame = pl.DataFrame(_windows(path))
            frame.group_by(frame.columns).agg(count=pl.len().cast(pl.Int64)).write_parquet(target)
            took = seconds()
        key = "0"
        for k in range(CONTEXT):
            key = f"(({key}) * {V + 2} + t{k} + 2)::BIGINT"
        finish(took, _answer(str(target), key, f"t{CONTEXT}"))


def _answer(source: str, key: str, token: str) -> list[int]:
    import duckdb

    sums = f"count(*), sum(count), sum({key} % 1000003 * count), sum({token} * count)"
    (found,) = duckdb.sql(f"SELECT {sums} FROM '{source}'").fetchall()
    return [int(value) for value in found]


def pandas_small(path: str) -> None:
    """pandas: slices of the file as columns, grouped and counted."""
    import pandas as pd

    with stopwatch() as seconds:
        counted = pd.DataFrame(_windows(path)).groupby([f"t{k}" for k in range(CONTEXT + 1)], sort=False).size()
        took = seconds()
    finish(took, [len(counted), int(counted.sum())])


def _documents(path: str) -> list[list[int]]:
    ids = np.fromfile(path, np.uint16)
    documents = np.split(ids, np.flatnonzero(ids == SEPARATOR))
    return [part[part != SEPARATOR].tolist() for part in documents]


def counter_small(path: str) -> None:
    """Python's Counter over zipped slices of each document, the fastest way to count windows with it."""
    with stopwatch() as seconds:
        counter: Counter[tuple[int, ...]] = Counter()
        for document in _documents(path):
            counter.update(zip(*(document[k:] for k in range(CONTEXT + 1)), strict=False))
        took = seconds()
    finish(took, [len(counter), counter.total()])


def counters_small(path: str) -> None:
    """One Counter per context: the content of statistics, still unsorted."""
    with stopwatch() as seconds:
        contexts: dict[tuple[int, ...], Counter[int]] = {}
        for document in _documents(path):
            for place in range(CONTEXT, len(document)):
                context = tuple(document[place - CONTEXT : place])
                contexts.setdefault(context, Counter())[document[place]] += 1
        took = seconds()
    finish(took, [len(contexts), sum(counter.total() for counter in contexts.values())])


def nltk_small(path: str) -> None:
    """nltk.lm's NgramCounter on the same windows."""
    from nltk.lm.counter import NgramCounter
    from nltk.util import ngrams

    with stopwatch() as seconds:
        counter = NgramCounter(list(ngrams(document, CONTEXT + 1)) for document in _documents(path))
        took = seconds()
    table = counter[CONTEXT + 1]
    finish(took, [len(table), sum(one.N() for one in table.values())])


def _side(*arguments: object) -> Callable[[], Measured]:
    return side("benchmarks.counting", *arguments)


def _ours(job: Job, measured: Measured, tokens: int) -> None:
    rate = f"{tokens / measured.seconds / 1e6:.2f} million tokens per second"
    job.ours(measured.seconds, gigabytes=measured.peak_gigabytes, note=rate)


def _peer(job: Job, name: str, measured: Measured) -> None:
    job.peer(name, measured.seconds, gigabytes=measured.peak_gigabytes)


def compare_large(benchmark: Benchmark, kind: str, tokens: int = TOKENS) -> None:
    """A token file of 50 million tokens to counted pairs, and to saved statistics."""
    path = token_file(kind, tokens)
    sides = {
        "pairs": _side("ours_pairs", path),
        "polars": _side("polars_pairs", path),
        "saved": _side("ours_saved", path),
    }
    found = measure_processes(sides, 3)
    ours, polars, saved = found["pairs"], found["polars"], found["saved"]
    assert ours.answer == polars.answer, "both sides must count the same pairs"
    what = {"text": "tokens of text", "zipf": "independent tokens"}[kind]
    name = f"count {_millions(tokens)} {what}, contexts of {CONTEXT}"
    note = f"{ours.answer[0]:,} distinct pairs, limit {MEMORY}"
    job = benchmark.job(name, repeats=MEDIAN, note=note)
    saving = benchmark.job(f"{name}, to saved statistics", repeats=MEDIAN, note=note)
    _ours(job, ours, tokens)
    _peer(job, "Polars group_by", polars)
    _ours(saving, saved, tokens)


def _millions(tokens: int) -> str:
    return f"{tokens / 1e6:g} million"


def compare_small(benchmark: Benchmark, tokens: int = SMALL) -> None:
    """A token file of 2 million tokens, with what takes too long or too much memory for a large one."""
    path = token_file("text", tokens)
    names = ("counter_small", "counters_small", "nltk_small", "pandas_small")
    sides = {"pairs": _side("ours_pairs", path), "saved": _side("ours_saved", path)}
    found = measure_processes(sides | {name: _side(name, path) for name in names}, 3)
    assert found["pairs"].answer[:2] == found["counter_small"].answer == found["pandas_small"].answer
    assert found["saved"].answer == found["counters_small"].answer == found["nltk_small"].answer
    name = f"count {_millions(tokens)} tokens of text, contexts of {CONTEXT}"
    job = benchmark.job(name, repeats=MEDIAN, note=f"{found['pairs'].answer[0]:,} distinct pairs")
    saving = benchmark.job(f"{name}, to saved statistics", repeats=MEDIAN)
    _ours(job, found["pairs"], tokens)
    _peer(job, "pandas groupby", found["pandas_small"])
    _peer(job, "Counter of 5-tuples", found["counter_small"])
    _ours(saving, found["saved"], tokens)
    _peer(saving, "dictionary of Counters", found["counters_small"])
    _peer(saving, "nltk.lm NgramCounter", found["nltk_small"])


def show_scaling(benchmark: Benchmark) -> None:
    """Time and memory of ten and a hundred times the tokens."""
    for tokens in SCALES:
        free = shutil.disk_usage(data_folder()).free
        if free < 30 * tokens:
            print(f"  {tokens:,} tokens: skipped, only {free / 1e9:.0f} GB of disk space are free")
            continue
        measured = _side("ours_saved", token_file("text", tokens), KEPT_CONTEXTS)()
        name = f"count {_millions(tokens)} tokens, to statistics of the {KEPT_CONTEXTS:,} most frequent contexts"
        _ours(benchmark.job(name, repeats="once", note=f"limit {MEMORY}"), measured, tokens)


def main() -> None:
    """Measure."""
    quick = "--quick" in sys.argv
    packages = ("tokengeom", "numba", "duckdb", "polars", "pandas", "nltk", "numpy")
    benchmark = Benchmark("counting", *packages, quick=quick)
    if quick:
        compare_small(benchmark, 200_000)
        compare_large(benchmark, "text", 400_000)
        return
    compare_small(benchmark)
    for kind in ("text", "zipf"):
        compare_large(benchmark, kind)
    show_scaling(benchmark)


if __name__ == "__main__":
    if len(sys.argv) == 1 or sys.argv[1] == "--quick":
        main()
    else:
        globals()[sys.argv[1]](*sys.argv[2:])
