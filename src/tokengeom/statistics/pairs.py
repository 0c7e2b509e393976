"""Counted pairs: what counting makes, before it is frozen.

Pairs live in Parquet shards, on this machine or on a cluster. They can be merged with the pairs of other shards of a
corpus, in any order and any grouping, and cut, without ever passing through one process.

From counted pairs to frozen statistics, in one ordered pass.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tokengeom.corpus.tokenizers import AbstractTokenizer, load_tokenizer
from tokengeom.errors import InputError, ResourceError, StatisticsError
from tokengeom.folders import MANIFEST, read_kind, read_manifest, write_manifest
from tokengeom.progress import AbstractProgress, SilentProgress
from tokengeom.statistics.cuts import AbstractCut, Effect, PairTable, Totals
from tokengeom.statistics.engines import AbstractEngine
from tokengeom.statistics.next_token import OTHER, NextTokenStatistics
from tokengeom.statistics.windows import ContextPacking, Windows

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa


FORMAT, FORMAT_VERSION = "tokengeom-pairs", 1


@dataclass(frozen=True)
class CountedPairs:
    """Distinct pairs of context and next token with their counts.

    ``paths``
        Parquet files or folders with the columns ``context_0 .. context_k, next, count``.
    ``rows``
        The next tokens that exist, by id; an id of V or more stands for tokens that a cut merged.
    """

    paths: tuple[str, ...]
    windows: Windows
    vocabulary: int
    rows: NDArray[np.int64]
    tokenizer: AbstractTokenizer | None = None
    effects: tuple[Effect, ...] = ()
    corpus: dict[str, Any] = field(default_factory=dict)

    @property
    def packing(self) -> ContextPacking:
        """How contexts are written as integers."""
        return ContextPacking(self.vocabulary, self.windows.context)

    def table(self, engine: AbstractEngine) -> ibis.Table:
        """The pairs as a table of an engine."""
        return engine.read(self.paths)

    def totals(self, engine: AbstractEngine) -> Totals:
        """Windows, contexts, vocabulary and entropy floor, by one aggregation."""
        return _totals(engine, self.table(engine), self.packing.columns, self.rows.size)

    def cut(
        self,
        cuts: Sequence[AbstractCut],
        engine: AbstractEngine,
        folder: Path,
        progress: AbstractProgress | None = None,
    ) -> CountedPairs:
        """Make the cuts one after the other, each into its own subfolder of ``folder``, and record their effects."""
        if not cuts:
            return self
        pairs, shown = self, progress or SilentProgress()
        with shown.stage("Adding up", None):
            before = self.totals(engine)
        for number, one in enumerate(cuts, start=len(self.effects)):
            target = folder / f"cut-{number}"
            rows = pairs._make(one, engine, target, shown)
            pairs = replace(pairs, paths=(str(target),), rows=rows)
            after = pairs.totals(engine)
            if after.n == 0:
                raise StatisticsError(f"The cut '{one.describe()}' leaves nothing: every window is lost. Cut less.")
            pairs = replace(pairs, effects=(*pairs.effects, Effect(one.describe(), before, after)))
            before = after
        return pairs

    def _make(
        self, cut: AbstractCut, engine: AbstractEngine, target: Path, progress: AbstractProgress
    ) -> NDArray[np.int64]:
        other = max(self.vocabulary, int(self.rows[-1]) + 1)
        table = PairTable(self.table(engine), self.packing.columns, self.rows, other)
        question = cut.question(table)
        answers = [] if question is None else engine.batches(question)
        asked = [int(value) for batch in answers for value in batch.column(0).to_pylist()]
        engine.write(cut.relational(table, asked), target, "Cutting", progress)
        return cut.rows(table, asked)

    def merge(self, *others: CountedPairs, engine: AbstractEngine, folder: Path) -> CountedPairs:
        """Add up the pairs of several shards of one corpus; the order and grouping do not matter."""
        for other in others:
            self._check_same(other)
        tables = [pairs.table(engine) for pairs in (self, *others)]
        everything = tables[0]
        for table in tables[1:]:
            everything = everything.union(table, distinct=False)
        keys = [*self.packing.columns, "next"]
        summed = everything.group_by(keys).aggregate(count=everything["count"].sum())
        engine.write(summed, folder, "Merging shards", SilentProgress())
        corpus = _merged_corpus([pairs.corpus for pairs in (self, *others)])
        return replace(self, paths=(str(folder),), corpus=corpus)

    def _check_same(self, other: CountedPairs) -> None:
        mine, theirs = _identity(self), _identity(other)
        for name in mine:
            if mine[name] != theirs[name]:
                raise StatisticsError(
                    f"Only pairs that were counted alike can be merged; their {name} differs: "
                    f"{mine[name]} and {theirs[name]}. Count both with the same settings and tokenizer."
                )
        if self.effects or other.effects:
            raise StatisticsError("Pairs are merged before they are cut: a cut of the parts is not a cut of the whole.")

    def save(self, folder: Path) -> None:
        """Write the manifest and tokenizer beside the shards, which must lie in ``folder/pairs``."""
        if self.tokenizer is not None:
            (folder / "tokenizer.json").write_text(self.tokenizer.to_json(), encoding="utf-8")
        content = {
            "windows": vars(self.windows),
            "vocabulary": self.vocabulary,
            "tokenizer": self.tokenizer.content_hash if self.tokenizer else None,
            "corpus": self.corpus,
        }
        write_manifest(folder, FORMAT, FORMAT_VERSION, content)

    @staticmethod
    def load(folder: str | Path) -> CountedPairs:
        """Open saved pairs; the shards are read only when they are needed."""
        folder = Path(folder)
        content = read_manifest(folder, FORMAT, FORMAT_VERSION)
        try:
            vocabulary, corpus = content["vocabulary"], content["corpus"]
            if type(vocabulary) is not int or vocabulary < 1 or not isinstance(corpus, dict):
                raise ValueError(f"vocabulary {vocabulary!r}, corpus {corpus!r}")
            if not any((folder / "pairs").glob("*.parquet")):
                raise ValueError("there are no shards in pairs/")
            return CountedPairs(
                paths=(str(folder / "pairs"),),
                windows=Windows(**content["windows"]),
                vocabulary=vocabulary,
                rows=np.arange(vocabulary, dtype=np.int64),
                tokenizer=load_tokenizer(folder / "tokenizer.json") if content["tokenizer"] else None,
                corpus=corpus,
            )
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error).rstrip(".") if isinstance(error, InputError) else repr(error)
            raise StatisticsError(f"{folder} is damaged: {reason}. Count these pairs again.") from error


def is_saved_pairs(path: Path) -> bool:
    """Whether a folder holds saved pairs; one that has their form and a manifest beyond reading is refused."""
    if not (path / MANIFEST).is_file():
        return False
    try:
        return read_kind(path) == FORMAT
    except InputError:
        if (path / "pairs").is_dir():
            raise
        return False


def _identity(pairs: CountedPairs) -> dict[str, Any]:
    return {
        "windows": pairs.windows,
        "vocabulary size": pairs.vocabulary,
        "tokenizer": pairs.tokenizer.content_hash if pairs.tokenizer else None,
    }


def _merged_corpus(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    numbers = ("documents", "tokens", "short_documents", "replaced_bytes")
    merged: dict[str, Any] = {name: sum(part.get(name, 0) for part in parts) for name in numbers}
    merged["sources"] = [source for part in parts for source in part.get("sources", [])]
    return merged


def _totals(engine: AbstractEngine, table: ibis.Table, keys: Sequence[str], vocabulary: int) -> Totals:
    """``H = (sum_j n_j log n_j - sum_jz c_jz log c_jz) / n`` with n_j the windows of context j."""
    count = table["count"].cast("float64")
    contexts = table.group_by(list(keys)).aggregate(windows=table["count"].sum(), inner=(count * count.ln()).sum())
    outer = contexts.windows.cast("float64")
    row = engine.numbers(
        contexts.aggregate(
            n=contexts.windows.sum(),
            m=contexts.count(),
            outer=(outer * outer.ln()).sum(),
            inner=contexts.inner.sum(),
        )
    )
    n = int(row["n"])
    entropy = (row["outer"] - row["inner"]) / n if n else 0.0
    return Totals(n, int(row["m"]), vocabulary, max(entropy, 0.0))


def freeze(pairs: CountedPairs, engine: AbstractEngine) -> NextTokenStatistics:
    """Sort the pairs by context and next token, and lay them out as a sparse matrix.

    Contexts come in the order of their packed words: shorter ones first, then by ids, oldest token first.
    """
    table = pairs.table(engine)
    number = int(engine.numbers(table.aggregate(pairs=table.count()))["pairs"])
    _refuse_what_does_not_fit(number, pairs.packing.length)
    ordered = table.order_by([*pairs.packing.columns, "next"])
    layout = _Layout(number, pairs.packing)
    for batch in engine.batches(ordered):
        layout.add(batch)
    rows, indptr = _row_numbers(layout.next, pairs.rows), layout.indptr
    return NextTokenStatistics(
        table=sparse.csc_array((layout.count, rows, indptr), shape=(pairs.rows.size, indptr.size - 1)),
        context_share=None,
        vocabulary=_names(pairs),
        contexts=layout.contexts,
        tokenizer=pairs.tokenizer,
        windows=pairs.windows,
        effects=pairs.effects,
        corpus=pairs.corpus,
    )


class _Layout:
    """Gathers ordered pairs into the arrays of a sparse matrix.

    There are at most as many contexts as pairs. Arrays of that length are reserved at once: the operating system
    gives them memory only where they are written.
    """

    def __init__(self, number: int, packing: ContextPacking) -> None:
        self.count = np.empty(number, np.int64)
        self.next = np.empty(number, np.int32)
        self._contexts = np.empty((number, packing.length), np.int32)
        self._starts = np.empty(number + 1, np.int64)
        self._packing = packing
        self._pairs = self._seen = 0
        self._last: list[int] = []

    @property
    def contexts(self) -> NDArray[np.int32]:
        """The contexts so far, a row each."""
        return self._contexts[: self._seen]

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where the pairs of each context start, and where the last ones end."""
        self._starts[self._seen] = self._pairs
        return self._starts[: self._seen + 1]

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows."""
        if not batch.num_rows:
            return
        *words, tokens, count = (_numpy(column) for column in batch.columns)
        begin, end = self._pairs, self._pairs + batch.num_rows
        self.count[begin:end], self.next[begin:end] = count, tokens
        fresh = np.zeros(batch.num_rows, np.bool_)
        fresh[0] = self._last != [int(word[0]) for word in words]
        for word in words:
            fresh[1:] |= word[1:] != word[:-1]
        places = np.flatnonzero(fresh)
        first, after = self._seen, self._seen + places.size
        self._contexts[first:after] = self._packing.unpack([word[places] for word in words])
        self._starts[first:after] = places + begin
        self._last = [int(word[-1]) for word in words]
        self._pairs, self._seen = end, after


def _numpy(column: Any) -> NDArray[Any]:
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _row_numbers(tokens: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    if rows.size == int(rows[-1]) + 1:
        return tokens
    return np.searchsorted(rows, tokens).astype(np.int32)


def _names(pairs: CountedPairs) -> tuple[str, ...]:
    known = [row for row in pairs.rows.tolist() if row < pairs.vocabulary]
    names = [_name(row, pairs.tokenizer) for row in known]
    return (*names, *[OTHER] * (pairs.rows.size - len(known)))


def _name(row: int, tokenizer: AbstractTokenizer | None) -> str:
    return f"token {row}" if tokenizer is None or row >= tokenizer.size else tokenizer.token(row)


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _refuse_what_does_not_fit(number: int, length: int) -> None:
    """Counts, rows and at worst one context a pair (words, ids and start) must fit into the machine."""
    needed = number * (8 + 4 + 8 + 4 * length + 8)
    memory = _physical_memory()
    if memory is not None and needed > 0.8 * memory:
        raise ResourceError(
            f"{number:,} distinct pairs need up to {needed / 1e9:.1f} GB as frozen statistics; this machine has "
            f"{memory / 1e9:.1f} GB. Cut first (--top-contexts, --min-count), or keep the pairs with --pairs."
        )
