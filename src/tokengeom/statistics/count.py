"""The verb `count`: from a corpus of any size to exact next-token statistics."""

from __future__ import annotations

import operator
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.corpus.documents import exists
from tokengeom.corpus.locate import ReadingOptions, open_corpus
from tokengeom.corpus.stories import BuiltInStories
from tokengeom.corpus.token_files import ParquetTokens
from tokengeom.corpus.tokenizers import AbstractTokenizer
from tokengeom.errors import ResourceError, StatisticsError
from tokengeom.folders import written_beside
from tokengeom.progress import AbstractProgress, SilentProgress
from tokengeom.statistics.cuts import AbstractCut, Totals
from tokengeom.statistics.engines import AbstractEngine, open_engine
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.pairs import FORMAT, CountedPairs, freeze, is_saved_pairs
from tokengeom.statistics.reading import TokenizedCorpus, token_shards, tokenize
from tokengeom.statistics.windows import ContextPacking, WindowKind, Windows, count_windows

Corpus = str | Path | Sequence[str | Path] | Iterable[Any]

DEFAULT_MEMORY = "2GB"
_ADDRESS = re.compile(r"(hdfs|s3[an]?|gs|abfss?|wasbs?|dbfs|file)://\S+")


def count(
    corpus: Corpus | None = None,
    *,
    context: int = 4,
    tokenizer: str | Path | AbstractTokenizer | None = "word",
    windows: WindowKind = "sliding",
    pad: bool = False,
    cuts: Sequence[AbstractCut] = (),
    reading: ReadingOptions | None = None,
    vocabulary_size: int | None = None,
    engine: str = "duckdb",
    memory: str = DEFAULT_MEMORY,
    threads: int | None = None,
    master: str | None = None,
    temp: str | Path | None = None,
    pairs: str | Path | None = None,
    progress: AbstractProgress | None = None,
    **options: Any,
) -> NextTokenStatistics:
    """Count which tokens follow which contexts, exactly.

    Parameters
    ----------
    corpus
        A path, glob, folder, ``-`` or several of them; an iterable of strings or of id arrays; a Hugging Face data
        set; folders of saved pairs, which are merged. None is the built-in corpus of stories.
    context
        Number of tokens L in a context.
    tokenizer
        ``word``, ``character``, ``byte``, ``bpe``, ``bpe:SIZE``, or the path of a saved one.
    windows
        ``sliding``: contexts of exactly L tokens; ``prefixes``: of every length from 1 to L, pooled.
    pad
        Whether documents are preceded by start markers, so that their first tokens are predicted too.
    cuts
        Rules that make the statistics smaller, made in this order before anything is gathered.
    reading, **options
        How to read files, as `ReadingOptions` or as its fields by name (``separator=``, ``column=``, ...).
    vocabulary_size
        Number of tokens V of id input; by default the tokenizer's, else the largest id plus one.
    engine, memory, threads, master, temp
        Where and within which limits to count: see `open_engine`; ``temp`` is the folder for spilling.
    pairs
        A folder to keep the uncut pairs in, as Parquet shards that can be merged later.
    """
    shown = progress or SilentProgress()
    context, vocabulary_size, threads = _whole(context=context, vocabulary_size=vocabulary_size, threads=threads)
    reading = replace(reading or ReadingOptions(), **options)
    with (
        _workspace(temp) as work,
        open_engine(engine, spill=work, memory=memory, threads=threads, master=master) as running,
    ):
        job = _Job(Windows(context, windows, pad), tokenizer, reading, vocabulary_size, running, work, shown)
        counted = job.pairs(corpus, None if pairs is None else Path(pairs)).cut(cuts, running, work, shown)
        with shown.stage("Freezing", None):
            return freeze(counted, running)


def count_pairs(
    corpus: Corpus | None,
    pairs: str | Path,
    *,
    context: int = 4,
    tokenizer: str | Path | AbstractTokenizer | None = "word",
    windows: WindowKind = "sliding",
    pad: bool = False,
    reading: ReadingOptions | None = None,
    vocabulary_size: int | None = None,
    engine: str = "duckdb",
    memory: str = DEFAULT_MEMORY,
    threads: int | None = None,
    master: str | None = None,
    temp: str | Path | None = None,
    progress: AbstractProgress | None = None,
) -> tuple[CountedPairs, Totals]:
    """Count a shard of a corpus into the folder ``pairs``, to be merged later, without gathering it in memory.

    The parameters are those of `count`. Beside the pairs come their totals, added up by the engine.
    """
    shown = progress or SilentProgress()
    context, vocabulary_size, threads = _whole(context=context, vocabulary_size=vocabulary_size, threads=threads)
    with (
        _workspace(temp) as work,
        open_engine(engine, spill=work, memory=memory, threads=threads, master=master) as running,
    ):
        kind = Windows(context, windows, pad)
        job = _Job(kind, tokenizer, reading or ReadingOptions(), vocabulary_size, running, work, shown)
        counted = job.pairs(corpus, Path(pairs))
        with shown.stage("Adding up", None):
            return counted, counted.totals(running)


def _whole(**numbers: Any) -> Iterator[Any]:
    """Whole numbers of any library as Python's, which never wrap around; None stays None."""
    for name, value in numbers.items():
        try:
            yield None if value is None else operator.index(value)
        except TypeError:
            raise StatisticsError(f"{name} must be a whole number; got {value!r}.") from None


@dataclass(frozen=True)
class _Job:
    """All that stays the same from reading to counted pairs."""

    windows: Windows
    tokenizer: str | Path | AbstractTokenizer | None
    reading: ReadingOptions
    vocabulary_size: int | None
    engine: AbstractEngine
    work: Path
    progress: AbstractProgress

    def pairs(self, corpus: Corpus | None, keep: Path | None) -> CountedPairs:
        """Count a corpus, or merge the saved pairs that were named instead of one."""
        saved = _saved_pairs(corpus)
        if saved:
            return _merge(saved, self.engine, self.work, keep)
        return self.count(corpus) if keep is None else self.count_and_keep(corpus, keep)

    def count(self, corpus: Corpus | None, folder: Path | None = None) -> CountedPairs:
        """Count into a folder, by default one that goes when the work is done."""
        folder = self.work / "pairs" if folder is None else folder
        read = self._read(corpus)
        plan = count_windows(read.table, self.windows, ContextPacking(read.vocabulary, self.windows.context))
        self.engine.write(plan, folder, "Counting", self.progress)
        rows = np.arange(read.vocabulary, dtype=np.int64)
        return CountedPairs((str(folder),), self.windows, read.vocabulary, rows, read.tokenizer, corpus=read.corpus)

    def count_and_keep(self, corpus: Corpus | None, target: Path) -> CountedPairs:
        """Count into a folder that stays, and that appears only once it is whole."""
        with written_beside(target, FORMAT) as beside:
            self.count(corpus, beside / "pairs").save(beside)
        return CountedPairs.load(target)

    def _read(self, corpus: Corpus | None) -> TokenizedCorpus:
        """Sharded ids are counted where they lie; anything else is first written as a token table."""
        remote = _remote_paths(corpus)
        if remote:
            return self._shards(remote)
        sources = [BuiltInStories()] if corpus is None else open_corpus(corpus, self.reading)
        shards = [source.name for source in sources if isinstance(source, ParquetTokens)]
        if len(shards) == len(sources):
            return self._shards(shards)
        folder = self.work / "tokens"
        folder.mkdir()
        return tokenize(sources, self.tokenizer, self.vocabulary_size, self.windows, folder, self.engine, self.progress)

    def _shards(self, paths: list[str]) -> TokenizedCorpus:
        return token_shards(paths, self.reading.column, self.tokenizer, self.vocabulary_size, self.windows, self.engine)


def _remote_paths(corpus: Corpus | None) -> list[str]:
    """Addresses such as ``hdfs://...`` of Parquet shards of ids, which only the engine itself can reach."""
    named = [corpus] if isinstance(corpus, str) else corpus
    if not isinstance(named, Sequence) or not named:
        return []
    addresses = [name for name in named if isinstance(name, str) and _ADDRESS.fullmatch(name)]
    return addresses if len(addresses) == len(named) else []


def _saved_pairs(corpus: Corpus | None) -> list[CountedPairs]:
    """The saved pairs that were named instead of a corpus; empty if a corpus was named."""
    if isinstance(corpus, str | Path):
        corpus = [corpus]
    if not isinstance(corpus, Sequence) or not all(isinstance(item, str | Path) for item in corpus):
        return []
    saved = [Path(item) for item in corpus if exists(item) and is_saved_pairs(Path(item))]
    if saved and len(saved) < len(corpus):
        raise StatisticsError("Saved pairs can be merged with saved pairs only; some of the inputs are something else.")
    return [CountedPairs.load(folder) for folder in saved]


def _merge(saved: list[CountedPairs], engine: AbstractEngine, work: Path, keep: Path | None) -> CountedPairs:
    first, *others = saved
    if keep is None:
        return first.merge(*others, engine=engine, folder=work / "merged") if others else first
    with written_beside(keep, FORMAT) as beside:
        first.merge(*others, engine=engine, folder=beside / "pairs").save(beside)
    return CountedPairs.load(keep)


@contextmanager
def _workspace(temp: str | Path | None) -> Iterator[Path]:
    """A folder for everything that must not outlive the counting, whatever ends it."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="tokengeom-", dir=temp, ignore_cleanup_errors=True)
    except OSError as error:
        raise ResourceError(f"Cannot make a temporary folder in {temp or 'the system folder'}: {error}.") from error
    with folder as name:
        yield Path(name)
