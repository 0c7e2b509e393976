"""Counted pairs: what counting makes, before it is frozen.

Pairs live in Parquet shards, on this machine or on a cluster. They can be merged with the pairs of other shards of a
corpus, in any order and any grouping, and cut, without ever passing through one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.corpus.make_tokenizer import load_tokenizer
from tokengeom.corpus.tokenizer import AbstractTokenizer
from tokengeom.errors import InputError, StatisticsError
from tokengeom.folders import MANIFEST, read_kind, read_manifest, write_manifest
from tokengeom.progress import AbstractProgress, SilentProgress
from tokengeom.statistics.cuts import AbstractCut, Effect, PairTable, Totals
from tokengeom.statistics.engine import AbstractEngine
from tokengeom.statistics.packing import ContextPacking
from tokengeom.statistics.windows import Windows

if TYPE_CHECKING:
    import ibis

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
