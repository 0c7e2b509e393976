"""`CountedPairs`: pairs of context and next token that an engine counted, in Parquet shards.

Shards may be on this machine or on a cluster. Pairs of several parts of a corpus can be merged, in any order and any
grouping, and cut, without being gathered in memory. `ordered_pairs` gathers them in one ordered pass.

Saved pairs are a folder::

    manifest.json         what `CountedPairs.to_dict` says, the size of the vocabulary, and a hash per file
    pairs/*.parquet       one row per distinct pair: context_0 .. context_k (integer keys), next, count
    tokenizer.json        the tokenizer, where there is one
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np

from tokengeom.core.errors import InputError, StatisticsError
from tokengeom.core.numerics import Int
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.corpus.tokenizers import LARGEST_VOCABULARY, AbstractTokenizer, load_tokenizer
from tokengeom.results.contract import AbstractResult
from tokengeom.results.convert import Within, damaged, from_entries
from tokengeom.results.folders import atomic_folder
from tokengeom.results.manifests import MANIFEST, read_kind, write_manifest
from tokengeom.statistics.cuts import WINDOWS, AbstractCut, Effect, Totals, nothing_left
from tokengeom.statistics.engines import AbstractEngine, open_engine, temporary_folder
from tokengeom.statistics.ordered_pairs import build_statistics, pair_rows, read_ordered_shards, shards_fault
from tokengeom.statistics.saved_statistics import TOKENIZER, Origin
from tokengeom.statistics.sorting import PairRows
from tokengeom.statistics.windows import ContextPacking, Windows

if TYPE_CHECKING:
    import ibis
    from pandas import DataFrame

SHARDS = "pairs"
_NO_COUNT = "The counted pairs cannot be those of a text: a count is below 1 or missing. Count the text again."
_FEW = 1 << 16
"""Whole numbers below this are tallied in an array; there are few above it."""


@dataclass(frozen=True)
class PairTable:
    """Counted pairs as a relational table ``keys..., next, count``, and `WINDOWS` where windows were left out.

    ``rows``   Ids of the next tokens that exist.
    ``other``  Id of the token that others are merged into: one that no token has, except what an earlier cut merged.
    """

    table: ibis.Table
    keys: Sequence[str]
    rows: Int
    other: int

    @property
    def kept_columns(self) -> list[str]:
        """The columns that a cut must not change, where there are any: how many windows each context had."""
        return [WINDOWS] if WINDOWS in self.table.columns else []

    def with_windows(self) -> PairTable:
        """The same pairs, with the number of windows that each context has now in the column `WINDOWS`."""
        import ibis

        if self.kept_columns:
            return self
        total = self.table["count"].sum().over(ibis.window(group_by=list(self.keys)))
        return replace(self, table=self.table.mutate(**{WINDOWS: total.cast("int64")}))


@dataclass(frozen=True, eq=False, repr=False)
class CountedPairs(AbstractResult):
    """Distinct pairs of context and next token with their counts.

    ``paths``
        Parquet files or folders with the columns ``context_0 .. context_k, next, count``.
    ``windows``
        Which windows were counted.
    ``vocabulary``
        Number of tokens V, of which contexts are made.
    ``rows``
        Ids of the next tokens; an id of V or more stands for tokens that a cut merged.
    ``tokenizer``, ``effects``, ``corpus``
        Where the pairs come from: tokenizer, cuts with their effects, what was read.
    ``known_totals``
        Their sizes, where these were added up before.
    ``ordered``
        Whether the shards are in order (`ordered_pairs`), which saves sorting them.
    """

    kind: ClassVar[str] = "tokengeom-pairs"
    title: ClassVar[str] = "Counted pairs"

    paths: tuple[str, ...]
    windows: Windows
    vocabulary: int
    rows: Int
    tokenizer: AbstractTokenizer | None = None
    effects: tuple[Effect, ...] = ()
    corpus: dict[str, Any] = field(default_factory=dict)
    known_totals: Totals | None = None
    ordered: bool = False

    @property
    def packing(self) -> ContextPacking:
        """The integer keys of contexts."""
        return ContextPacking(self.vocabulary, self.windows.context)

    @property
    def columns(self) -> list[str]:
        """Names of the columns: the keys of contexts, the next token and the count."""
        return [*self.packing.columns, "next", "count"]

    def table(self, engine: AbstractEngine) -> ibis.Table:
        """The pairs as a table of an engine."""
        return engine.read(self.paths)

    @cached_property
    def totals(self) -> Totals:
        """Windows, contexts, vocabulary and entropy floor; added up by DuckDB unless they are known."""
        if self.known_totals is not None:
            return self.known_totals
        with temporary_folder() as spill, open_engine(spill) as engine:
            return _totals(self, engine)

    def with_totals(self, engine: AbstractEngine) -> CountedPairs:
        """The same pairs with their totals, which the engine adds up."""
        return replace(self, known_totals=_totals(self, engine))

    def cut(
        self,
        cuts: Sequence[AbstractCut],
        engine: AbstractEngine,
        folder: Path,
        progress: AbstractProgress | None = None,
    ) -> CountedPairs:
        """Fewer pairs, by cuts made one after the other, each into its own subfolder; `effects` records them."""
        if not cuts:
            return self
        shown = progress or SilentProgress()
        pairs = self
        if pairs.known_totals is None:
            with shown.stage("Adding up", None):
                pairs = pairs.with_totals(engine)
        for number, cut in enumerate(cuts, start=len(self.effects)):
            before = pairs.totals
            target = folder / f"cut-{number}"
            rows = pairs._make(cut, engine, target, shown)
            pairs = replace(pairs, paths=(str(target),), rows=rows, ordered=False).with_totals(engine)
            if pairs.totals.n == 0:
                raise nothing_left(cut)
            pairs = replace(pairs, effects=(*pairs.effects, Effect(cut.describe(), before, pairs.totals)))
        return pairs

    def _make(self, cut: AbstractCut, engine: AbstractEngine, target: Path, progress: AbstractProgress) -> Int:
        """Write the pairs that a cut keeps, and return the next tokens that are left."""
        # Tokens that an earlier cut merged are one token with those that this one merges.
        other = max(self.vocabulary, int(self.rows[-1]))
        table = PairTable(self.table(engine), self.packing.columns, self.rows, other)
        if cut.leaves_windows_out:
            table = table.with_windows()
        query = cut.query(table)
        batches = [] if query is None else engine.batches(query)
        answer = [int(value) for batch in batches for value in batch.column(0).to_pylist()]
        engine.write(cut.relational(table, answer), target, "Cutting", progress)
        return cut.rows(table, answer)

    def merge(self, *others: CountedPairs, engine: AbstractEngine, folder: Path) -> CountedPairs:
        """Add up the pairs of several parts of one corpus; order and grouping do not matter."""
        for other in others:
            self._require_same_settings(other)
        tables = [pairs.table(engine) for pairs in (self, *others)]
        everything = tables[0]
        for table in tables[1:]:
            everything = everything.union(table, distinct=False)
        keys = [*self.packing.columns, "next"]
        summed = everything.group_by(keys).aggregate(count=everything["count"].sum())
        engine.write(summed, folder, "Merging shards", SilentProgress())
        corpus = _merged_corpus([pairs.corpus for pairs in (self, *others)])
        return replace(self, paths=(str(folder),), corpus=corpus, known_totals=None, ordered=False)

    def _require_same_settings(self, other: CountedPairs) -> None:
        mine, theirs = _settings(self), _settings(other)
        for name in mine:
            if mine[name] != theirs[name]:
                raise StatisticsError(
                    f"Only pairs that were counted with the same settings can be merged; the {name} differs: "
                    f"{mine[name]} and {theirs[name]}. Count both with the same settings and tokenizer."
                )
        if self.effects or other.effects:
            raise StatisticsError("Pairs that were cut cannot be merged: merge them first, then cut.")

    def to_dict(self) -> dict[str, Any]:
        """Sizes, entropy floor, and where the pairs come from."""
        return {
            **self.totals.to_dict(),
            "window": asdict(self.windows),
            "tokenizer": None if self.tokenizer is None else self.tokenizer.to_dict(),
            "cuts": [asdict(effect) for effect in self.effects],
            "corpus": self.corpus,
        }

    def to_frame(self) -> DataFrame:
        """Data frame of the statistics of these pairs, which it gathers in memory: one row per pair."""
        with temporary_folder() as spill, open_engine(spill) as engine:
            return build_statistics(self, engine).to_frame()

    def summary(self) -> str:
        """Sizes, entropy floor and what to do next, one sentence per line."""
        totals = self.totals
        return "\n".join(
            [
                f"{totals.n:,} windows, {totals.m:,} distinct contexts, {totals.V:,} next tokens "
                f"(tokenizer: {'token ids' if self.tokenizer is None else self.tokenizer.kind}).",
                f"The entropy floor is {totals.entropy:.4f} nats.",
                *(effect.sentence for effect in self.effects),
                "Count their folder to get statistics, or several such folders to merge them.",
            ]
        )

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("windows", f"{self.totals.n:,}"),
            ("contexts", f"{self.totals.m:,}"),
            ("vocabulary", f"{self.totals.V:,}"),
            ("entropy floor", f"{self.totals.entropy:.4f} nats"),
            ("tokenizer", "token ids" if self.tokenizer is None else self.tokenizer.kind),
        ]

    def _write(self, folder: Path) -> dict[str, Any]:
        shards = folder / SHARDS
        if self.paths != (str(shards),):
            _copy_shards(self.paths, shards)
        if self.tokenizer is not None:
            (folder / TOKENIZER).write_text(self.tokenizer.to_json(), encoding="utf-8")
        rows = None if np.array_equal(self.rows, np.arange(self.vocabulary)) else self.rows.tolist()
        return {**self.to_dict(), "vocabulary_size": self.vocabulary, "rows": rows, "ordered": self.ordered}

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        stated = from_entries(_Stated, manifest, folder)
        tokenizer = load_tokenizer(folder / TOKENIZER) if stated.tokenizer is not None else None
        if tokenizer is not None and tokenizer.to_dict() != stated.tokenizer:
            raise damaged(folder, f"{TOKENIZER} is not the tokenizer that the manifest names")
        assert stated.window is not None, "it was refused"
        ids = range(stated.vocabulary_size) if stated.rows is None else stated.rows
        pairs = cls(
            paths=(str(folder / SHARDS),),
            windows=stated.window,
            vocabulary=stated.vocabulary_size,
            rows=np.array(ids, np.int64),
            tokenizer=tokenizer,
            effects=stated.cuts,
            corpus=dict(stated.corpus),
            known_totals=Totals(stated.windows, stated.contexts, stated.vocabulary, stated.entropy_nats),
            ordered=stated.ordered,
        )
        fault = shards_fault(pairs.paths, pairs.columns)
        if fault is not None:
            raise damaged(folder, fault)
        return pairs


@dataclass(frozen=True)
class _Stated(Origin):
    """What the manifest of saved pairs states: where they come from, and their sizes.

    ``vocabulary_size``, ``rows``
        Number of tokens V, and ids of the next tokens, null for all of them; an id of V stands for merged tokens.
    """

    windows: Annotated[int, Within(1)]
    contexts: Annotated[int, Within(1)]
    vocabulary: Annotated[int, Within(1)]
    entropy_nats: Annotated[float, Within(0)]
    vocabulary_size: Annotated[int, Within(1, LARGEST_VOCABULARY)]
    rows: tuple[Annotated[int, Within(0)], ...] | None
    ordered: bool

    def __post_init__(self) -> None:
        if self.window is None:
            raise ValueError("window must say which windows were counted; got null")
        rows = (0,) if self.rows is None else self.rows
        if not rows or any(a >= b for a, b in pairwise(rows)) or rows[-1] > self.vocabulary_size:
            raise ValueError("rows must have ids of next tokens that rise, none of them above the vocabulary size")


def keep_pairs(target: Path, count_into: Callable[[Path], CountedPairs]) -> CountedPairs:
    """Count pairs directly into a folder that is kept, and that appears complete or not at all.

    ``count_into``  Writes the shards into the folder that it is given, and returns the pairs.
    """
    with atomic_folder(target, CountedPairs.kind) as work:
        counted = count_into(work / SHARDS)
        write_manifest(work, CountedPairs.kind, CountedPairs.format_version, counted._write(work))
    return replace(counted, paths=(str(target / SHARDS),))


def is_saved_pairs(path: Path) -> bool:
    """Whether a folder holds saved pairs; one that does, but whose manifest cannot be read, is refused."""
    if not (path / MANIFEST).is_file():
        return False
    try:
        return read_kind(path) == CountedPairs.kind
    except InputError:
        if (path / SHARDS).is_dir():
            raise
        return False


def _copy_shards(paths: Sequence[str], target: Path) -> None:
    target.mkdir()
    for number, path in enumerate(map(Path, paths)):
        for shard in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
            shutil.copyfile(shard, target / f"{number}-{shard.name}")


def _settings(pairs: CountedPairs) -> dict[str, object]:
    return {
        "kind of windows": pairs.windows,
        "vocabulary size": pairs.vocabulary,
        "tokenizer": pairs.tokenizer.content_hash if pairs.tokenizer else None,
    }


def _merged_corpus(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    sums = ("documents", "tokens", "short_documents", "replaced_bytes")
    merged: dict[str, Any] = {name: sum(part.get(name, 0) for part in parts) for name in sums}
    merged["sources"] = [source for part in parts for source in part.get("sources", [])]
    for name in ("separators", "likely_separators"):
        merged[name] = sorted({separator for part in parts for separator in part.get(name, [])})
    return merged


def _totals(pairs: CountedPairs, engine: AbstractEngine) -> Totals:
    """``H = (sum_j n_j log n_j - sum_jz c_jz log c_jz) / n`` with n_j the windows of context j.

    Added up from how often each whole number occurs among c_jz and n_j, with one rounding at the end: the number of
    threads and the order of rows change no digit.
    """
    if pairs.ordered:
        counts, windows = _occurrences(map(pair_rows, read_ordered_shards(pairs.paths, pairs.columns)))
    else:
        counts, windows = _occurrences_by_engine(pairs, engine)
    n = sum(value * times for value, times in windows.items())
    terms = [
        sign * times * value * math.log(value)
        for sign, occurrences in ((1, windows), (-1, counts))
        for value, times in occurrences.items()
    ]
    entropy = math.fsum(terms) / n if n else 0.0
    return Totals(n, windows.total(), pairs.rows.size, max(entropy, 0.0))


def _occurrences(parts: Iterable[PairRows]) -> tuple[Counter[int], Counter[int]]:
    """How often each count of a pair and each number of windows of a context occurs.

    No part may end inside a context.
    """
    counts, windows = Counter[int](), Counter[int]()
    for part in parts:
        if part.size and int(part.count.min()) < 1:
            raise StatisticsError(_NO_COUNT)
        of_contexts = np.add.reduceat(part.count, part.context_starts())
        for occurrences, values in ((counts, part.count), (windows, of_contexts)):
            small = values[values < _FEW]
            times = np.bincount(small)
            present = np.flatnonzero(times)
            occurrences.update(dict(zip(present.tolist(), times[present].tolist(), strict=True)))
            occurrences.update(values[values >= _FEW].tolist())
    return counts, windows


def _occurrences_by_engine(pairs: CountedPairs, engine: AbstractEngine) -> tuple[Counter[int], Counter[int]]:
    table = pairs.table(engine)
    contexts = table.group_by(pairs.packing.columns).aggregate(value=table["count"].sum())
    single = table.select(value=table["count"])
    both = [
        numbers.group_by("value").aggregate(times=numbers.count()).mutate(of_contexts=of_contexts)
        for of_contexts, numbers in ((False, single), (True, contexts))
    ]
    counts, windows = Counter[int](), Counter[int]()
    for batch in engine.batches(both[0].union(both[1])):
        for row in batch.to_pylist():
            if row["value"] is None or row["value"] < 1:
                raise StatisticsError(_NO_COUNT)
            (windows if row["of_contexts"] else counts)[int(row["value"])] += int(row["times"])
    return counts, windows
