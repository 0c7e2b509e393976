"""`count`: exact next-token statistics of a corpus of any size.

The corpus is read and tokenized into a token table (`reading`), an engine counts its windows into pairs (`engines`,
`windows`), and the pairs are cut and put into a sparse matrix (`pairs`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from tokengeom.core.errors import InputError, StatisticsError
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.settings import option, share, takes, whole_number
from tokengeom.corpus.files import exists
from tokengeom.corpus.locate import Corpus, ReadingSettings, open_corpus, skipped_files
from tokengeom.corpus.token_files import ParquetTokens
from tokengeom.corpus.tokenizers import SUGGESTED_TOKENIZERS, AbstractTokenizer
from tokengeom.statistics.cuts import CutSettings
from tokengeom.statistics.engines import AbstractEngine, EngineSettings, open_engine, temporary_folder
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.ordered_pairs import build_statistics, write_ordered_shards
from tokengeom.statistics.pairs import CountedPairs, is_saved_pairs, keep_pairs
from tokengeom.statistics.reading import TokenizedCorpus, token_shards, tokenize
from tokengeom.statistics.sorting import SortingPlan, count_by_sorting
from tokengeom.statistics.windows import ContextPacking, WindowKind, Windows, count_windows

if TYPE_CHECKING:
    from tokengeom.keywords import CountKeywords, PairKeywords

_ADDRESS = re.compile(r"(hdfs|s3[an]?|gs|abfss?|wasbs?|dbfs|file)://\S+")


@dataclass(frozen=True)
class CountSettings:
    """What to count."""

    context: int = option(4, "Number of tokens in a context.", short="c")
    tokenizer: str | Path | AbstractTokenizer | Any | None = option(
        None,
        "Tokenizer of text: word, whitespace, code, character, byte, bpe, bpe:SIZE, or the path of a saved one, which "
        "also supplies the text of token ids. By default word, or whitespace where the text is split into tokens "
        "already.",
        short="t",
        suggestions=lambda: SUGGESTED_TOKENIZERS,
    )
    windows: WindowKind = option(
        "sliding", "Count contexts of exactly that length (sliding), or of every length up to it, pooled (prefixes)."
    )
    pad: bool = option(False, "Predict the first tokens of a document too, from contexts with start markers.")
    vocabulary_size: int | None = option(
        None,
        "Vocabulary size V; every id must be smaller; by default that of the tokenizer, else the largest id plus one.",
    )

    def __post_init__(self) -> None:
        for name in ("context", "vocabulary_size"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, whole_number(name, value))
        _ = self.window  # Refuses a context or a kind of windows that cannot be counted.

    @property
    def window(self) -> Windows:
        """The windows that are counted."""
        return Windows(self.context, self.windows, self.pad)


@takes(CountSettings, ReadingSettings, CutSettings, EngineSettings)
def count(
    corpus: Corpus | None = None,
    *,
    pairs: str | Path | None = None,
    progress: AbstractProgress | None = None,
    **settings: Unpack[CountKeywords],
) -> NextTokenStatistics:
    """Count which tokens follow which contexts, exactly.

    Parameters
    ----------
    corpus
        A path, glob, folder or ``-`` (standard input), or several of them; an iterable of strings or of id arrays; a
        Hugging Face data set; folders of saved pairs, which are merged. None is the built-in corpus of stories.
    pairs
        A folder to keep the uncut pairs in, as Parquet shards that can be merged later.
    progress
        Shows progress; by default nothing is shown.
    """
    kinds = (CountSettings, ReadingSettings, CutSettings, EngineSettings)
    counting, reading, cuts, machine = share(settings, *kinds, verb="count")
    with _opened(counting, reading, machine, progress) as job:
        counted = job.pairs(corpus, None if pairs is None else Path(pairs))
        return job.statistics(counted, cuts, job.work)


@takes(CountSettings, ReadingSettings, EngineSettings)
def count_pairs(
    corpus: Corpus | None,
    pairs: str | Path,
    *,
    progress: AbstractProgress | None = None,
    **settings: Unpack[PairKeywords],
) -> CountedPairs:
    """Count a part of a corpus into the folder ``pairs``, to be merged later, without gathering it in memory."""
    kinds = (CountSettings, ReadingSettings, EngineSettings)
    counting, reading, machine = share(settings, *kinds, verb="count_pairs")
    with _opened(counting, reading, machine, progress) as job:
        return job.pairs(corpus, Path(pairs))


def count_lengths(
    corpus: Corpus | None,
    lengths: Iterable[int],
    *,
    progress: AbstractProgress | None = None,
    **settings: Unpack[CountKeywords],
) -> dict[int, NextTokenStatistics]:
    """Statistics for several context lengths, from reading and tokenizing the corpus once.

    The settings are those of `count`, except ``context``. Lengths for which no document is long enough are left out; it
    is an error if none is left.
    """
    wanted = sorted({whole_number("A context length", length) for length in lengths})
    if not wanted or "context" in settings:
        raise InputError("count_lengths needs at least one context length in lengths, and no setting 'context'.")
    if _saved_pairs(corpus):
        raise InputError("Saved pairs have one context length; count_lengths needs the corpus itself.")
    kinds = (CountSettings, ReadingSettings, CutSettings, EngineSettings)
    counting, reading, cuts, machine = share({**settings, "context": wanted[-1]}, *kinds, verb="count_lengths")
    windows = {length: replace(counting, context=length).window for length in wanted}
    with _opened(counting, reading, machine, progress) as job:
        read = job.read(corpus)
        read.require(windows[wanted[0]])
        return {length: job.count_one_length(read, kind, cuts) for length, kind in windows.items() if read.has(kind)}


@contextmanager
def _opened(
    counting: CountSettings, reading: ReadingSettings, machine: EngineSettings, progress: AbstractProgress | None
) -> Iterator[_Job]:
    """Open an engine and a folder for temporary files, for as long as they are needed."""
    with temporary_folder(machine.temp) as work, open_engine(work, machine) as engine:
        yield _Job(counting, reading, engine, work, machine.memory_bytes, progress or SilentProgress())


@dataclass(frozen=True)
class _Job:
    """Everything that reading, counting and building statistics share."""

    counting: CountSettings
    reading: ReadingSettings
    engine: AbstractEngine
    work: Path
    memory: int
    progress: AbstractProgress

    def pairs(self, corpus: Corpus | None, keep: Path | None) -> CountedPairs:
        """Count a corpus, or merge the saved pairs that were named instead of one; ``keep`` is a folder to save in."""
        saved = _saved_pairs(corpus)
        if len(saved) == 1 and keep is None:
            return saved[0]

        def count_into(folder: Path) -> CountedPairs:
            if saved:
                return saved[0].merge(*saved[1:], engine=self.engine, folder=folder)
            read = self.read(corpus)
            read.require(self.counting.window)
            return self.count(read, self.counting.window, folder)

        if keep is None:
            return count_into(self.work / "pairs")
        return keep_pairs(keep, lambda folder: self._with_totals(count_into(folder)))

    def _with_totals(self, counted: CountedPairs) -> CountedPairs:
        with self.progress.stage("Adding up", None):
            return counted.with_totals(self.engine)

    def read(self, corpus: Corpus | None) -> TokenizedCorpus:
        """The token table of a corpus; an engine on a cluster uses Parquet shards of ids as they are."""
        remote = _remote_paths(corpus)
        if remote:
            return self._shards(remote)
        sources = open_corpus(corpus, self.reading)
        shards = [source.name for source in sources if isinstance(source, ParquetTokens)]
        if len(shards) == len(sources) and self.engine.sorting is None:
            return self._shards(shards)
        folder = self.work / "tokens"
        folder.mkdir()
        counting = self.counting
        read = tokenize(
            sources, counting.tokenizer, counting.vocabulary_size, counting.context, folder, self.progress, self.memory
        )
        skipped = [str(path) for path in skipped_files(corpus)]
        return replace(read, described={**read.described, "skipped_files": skipped}) if skipped else read

    def _shards(self, paths: list[str]) -> TokenizedCorpus:
        counting = self.counting
        return token_shards(
            paths, self.reading.column, counting.tokenizer, counting.vocabulary_size, self.engine, self.memory
        )

    def count(self, read: TokenizedCorpus, windows: Windows, folder: Path) -> CountedPairs:
        """Count the windows of a token table into a new folder."""
        packing = ContextPacking(read.vocabulary, windows.context)
        limits = self.engine.sorting
        if limits is None:
            query = count_windows(read.table(self.engine), windows, packing)
            self.engine.write(query, folder, "Counting", self.progress)
        else:
            plan = SortingPlan.within(limits.memory, limits.threads, windows, packing, read.totals.tokens)
            with self.progress.stage("Counting", read.totals.tokens) as stage:
                counted = count_by_sorting(read.rows(self.engine), plan, self.work, stage.advance)
                write_ordered_shards(counted, [*packing.columns, "next", "count"], folder)
        rows = np.arange(read.vocabulary, dtype=np.int64)
        return CountedPairs(
            (str(folder),),
            windows,
            read.vocabulary,
            rows,
            read.tokenizer,
            corpus=read.describe(windows),
            ordered=limits is not None,
        )

    def statistics(self, counted: CountedPairs, cuts: CutSettings, folder: Path) -> NextTokenStatistics:
        """Cut the pairs, with temporary files in a folder, and build statistics of them."""
        cut = counted.cut(cuts.cuts(), self.engine, folder, self.progress)
        with self.progress.stage("Building statistics", None):
            return build_statistics(cut, self.engine)

    def count_one_length(self, read: TokenizedCorpus, windows: Windows, cuts: CutSettings) -> NextTokenStatistics:
        """Statistics of some windows of a token table; their temporary files are deleted at once."""
        with temporary_folder(self.work) as folder:
            return self.statistics(self.count(read, windows, folder / "pairs"), cuts, folder)


def _remote_paths(corpus: Corpus | None) -> list[str]:
    """Addresses such as ``hdfs://...`` of Parquet shards of ids, which only the engine can read."""
    named = [corpus] if isinstance(corpus, str) else corpus
    if not isinstance(named, Sequence) or not named:
        return []
    addresses = [name for name in named if isinstance(name, str) and _ADDRESS.fullmatch(name)]
    return addresses if len(addresses) == len(named) else []


def _saved_pairs(corpus: Corpus | None) -> list[CountedPairs]:
    """The saved pairs that were named instead of a corpus; empty if a corpus was named."""
    named = [corpus] if isinstance(corpus, str | Path) else corpus
    if not isinstance(named, Sequence) or not all(isinstance(item, str | Path) for item in named):
        return []
    saved = [Path(item) for item in named if exists(item) and is_saved_pairs(Path(item))]
    if saved and len(saved) < len(named):
        raise StatisticsError("Saved pairs can be merged only with saved pairs; some of the inputs are something else.")
    return [CountedPairs.load(folder) for folder in saved]
