"""`CountedPairs`: pairs of context and next token that an engine counted, in Parquet shards, and statistics of them.

Shards may be on this machine or on a cluster. Pairs of several parts of a corpus can be merged, in any order and any
grouping, and cut, without being gathered in memory. `build_statistics` gathers them in one ordered pass.

Saved pairs are a folder::

    manifest.json         what `CountedPairs.to_dict` says, the size of the vocabulary, and a hash per file
    pairs/*.parquet       one row per distinct pair: context_0 .. context_k (integer keys), next, count
    tokenizer.json        the tokenizer, where there is one
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import xlogy

from tokengeom.corpus.tokenizers import AbstractTokenizer, load_tokenizer
from tokengeom.errors import InputError, StatisticsError
from tokengeom.folders import MANIFEST, atomic_folder, read_kind, write_manifest
from tokengeom.memory import require_memory
from tokengeom.numerics import Int
from tokengeom.progress import AbstractProgress, SilentProgress
from tokengeom.results import AbstractResult, close
from tokengeom.statistics.cuts import WINDOWS, AbstractCut, Effect, PairTable, Totals, nothing_left
from tokengeom.statistics.engines import AbstractEngine, open_engine, temporary_folder
from tokengeom.statistics.layout import PairLayout
from tokengeom.statistics.next_token import OTHER, NextTokenStatistics
from tokengeom.statistics.ordered_shards import number_of_pairs, pair_rows, read_ordered_shards
from tokengeom.statistics.sorting import PairRows
from tokengeom.statistics.windows import ContextPacking, Windows

if TYPE_CHECKING:
    import ibis
    from pandas import DataFrame

SHARDS = "pairs"
_TOKENIZER = "tokenizer.json"


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
        Whether the shards are in order (`ordered_shards`), which saves sorting them.
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
        return self.known_totals or self._add_up()

    def _add_up(self) -> Totals:
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
        for number, one in enumerate(cuts, start=len(self.effects)):
            before = pairs.totals
            target = folder / f"cut-{number}"
            rows = pairs._make(one, engine, target, shown)
            pairs = replace(pairs, paths=(str(target),), rows=rows, ordered=False).with_totals(engine)
            if pairs.totals.n == 0:
                raise nothing_left(one)
            pairs = replace(pairs, effects=(*pairs.effects, Effect(one.describe(), before, pairs.totals)))
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
            (folder / _TOKENIZER).write_text(self.tokenizer.to_json(), encoding="utf-8")
        rows = None if np.array_equal(self.rows, np.arange(self.vocabulary)) else self.rows.tolist()
        return {**self.to_dict(), "vocabulary_size": self.vocabulary, "rows": rows, "ordered": self.ordered}

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        vocabulary, corpus = manifest["vocabulary_size"], manifest["corpus"]
        if type(vocabulary) is not int or vocabulary < 1 or not isinstance(corpus, dict):
            raise ValueError(f"vocabulary {vocabulary!r}, corpus {corpus!r}")
        if not any((folder / SHARDS).glob("*.parquet")):
            raise ValueError(f"there are no shards in {SHARDS}/")
        tokenizer = load_tokenizer(folder / _TOKENIZER) if manifest["tokenizer"] else None
        if tokenizer is not None and tokenizer.to_dict() != manifest["tokenizer"]:
            raise ValueError(f"{_TOKENIZER} is not the tokenizer that the manifest names")
        rows = np.arange(vocabulary) if manifest["rows"] is None else np.asarray(manifest["rows"])
        return cls(
            paths=(str(folder / SHARDS),),
            windows=_windows(manifest["window"]),
            vocabulary=vocabulary,
            rows=rows.astype(np.int64, casting="safe"),
            tokenizer=tokenizer,
            effects=tuple(map(Effect.from_dict, manifest["cuts"])),
            corpus=corpus,
            known_totals=Totals(
                int(manifest["windows"]),
                int(manifest["contexts"]),
                int(manifest["vocabulary"]),
                float(manifest["entropy_nats"]),
            ),
            ordered=manifest.get("ordered") is True,
        )

    def checks(self) -> dict[str, bool]:
        """Whether the sizes and the entropy floor are those that the manifest states."""
        if self.known_totals is None:
            return {}
        found, claimed = self._add_up(), self.known_totals
        return {
            "the sizes are the ones claimed": replace(found, entropy=0.0) == replace(claimed, entropy=0.0),
            "the entropy floor is the one claimed": close(found.entropy, claimed.entropy),
        }


def keep_pairs(target: Path, count_into: Callable[[Path], CountedPairs]) -> CountedPairs:
    """Count pairs directly into a folder that is kept, and that appears complete or not at all.

    ``count_into``
        Writes the shards into the folder that it is given, and returns the pairs.
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


def _windows(data: dict[str, Any]) -> Windows:
    try:
        return Windows(**data)
    except StatisticsError as error:
        raise ValueError(str(error)) from error


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
        merged[name] = sorted({one for part in parts for one in part.get(name, [])})
    return merged


def _totals(pairs: CountedPairs, engine: AbstractEngine) -> Totals:
    """``H = (sum_j n_j log n_j - sum_jz c_jz log c_jz) / n`` with n_j the windows of context j."""
    if pairs.ordered:
        row = _added_up(map(pair_rows, read_ordered_shards(pairs.paths, pairs.columns)))
    else:
        row = _added_up_by_engine(pairs, engine)
    n = int(row["n"])
    entropy = (row["outer"] - row["inner"]) / n if n else 0.0
    return Totals(n, int(row["m"]), pairs.rows.size, max(entropy, 0.0))


def _added_up(parts: Iterable[PairRows]) -> dict[str, float]:
    """Windows, contexts, and both sums of the entropy, from parts that never end inside a context."""
    row = {"n": 0.0, "m": 0.0, "outer": 0.0, "inner": 0.0}
    for part in parts:
        windows = np.add.reduceat(part.count, part.context_starts())
        row["n"] += int(windows.sum())
        row["m"] += windows.size
        row["outer"] += float(xlogy(windows, windows).sum())
        row["inner"] += float(xlogy(part.count, part.count).sum())
    return row


def _added_up_by_engine(pairs: CountedPairs, engine: AbstractEngine) -> dict[str, float]:
    table = pairs.table(engine)
    count = table["count"].cast("float64")
    contexts = table.group_by(pairs.packing.columns).aggregate(
        windows=table["count"].sum(), inner=(count * count.ln()).sum()
    )
    outer = contexts.windows.cast("float64")
    return engine.numbers(
        contexts.aggregate(
            n=contexts.windows.sum(),
            m=contexts.count(),
            outer=(outer * outer.ln()).sum(),
            inner=contexts.inner.sum(),
        )
    )


def build_statistics(pairs: CountedPairs, engine: AbstractEngine) -> NextTokenStatistics:
    """Statistics from counted pairs: sorted by context and next token, and put into a sparse matrix.

    Contexts are in the order of their keys: shorter ones first, then by token ids, oldest token first.
    """
    layout = _layout_of_shards(pairs) if pairs.ordered else _layout_by_engine(pairs, engine)
    rows, indptr = _row_numbers(layout.next, pairs.rows), layout.indptr
    return NextTokenStatistics(
        table=sparse.csc_array((layout.count, rows, indptr), shape=(pairs.rows.size, indptr.size - 1)),
        context_share=None,
        vocabulary=_names(pairs),
        contexts=layout.contexts,
        text_counts=layout.text_counts,
        tokenizer=pairs.tokenizer,
        windows=pairs.windows,
        effects=pairs.effects,
        corpus=pairs.corpus,
    )


def _layout_of_shards(pairs: CountedPairs) -> PairLayout:
    number = number_of_pairs(pairs.paths)
    _require_room(number, pairs.packing.length)
    layout = PairLayout(number, pairs.packing, has_windows=False)
    for table in read_ordered_shards(pairs.paths, pairs.columns):
        layout.add(table)
    return layout


def _layout_by_engine(pairs: CountedPairs, engine: AbstractEngine) -> PairLayout:
    table = pairs.table(engine)
    number = int(engine.numbers(table.aggregate(pairs=table.count()))["pairs"])
    _require_room(number, pairs.packing.length)
    kept = [WINDOWS] if WINDOWS in table.columns else []
    ordered = table.select(*pairs.columns, *kept).order_by(pairs.columns[:-1])
    layout = PairLayout(number, pairs.packing, bool(kept))
    for batch in engine.batches(ordered):
        layout.add(batch)
    return layout


def _row_numbers(tokens: NDArray[np.int32], rows: Int) -> NDArray[np.int32]:
    if rows.size == int(rows[-1]) + 1:
        return tokens
    return np.searchsorted(rows, tokens).astype(np.int32)


def _names(pairs: CountedPairs) -> tuple[str, ...]:
    tokenizer, known = pairs.tokenizer, pairs.rows[pairs.rows < pairs.vocabulary].tolist()
    size = 0 if tokenizer is None else tokenizer.size
    names = [tokenizer.token(row) if tokenizer is not None and row < size else f"token {row}" for row in known]
    return (*names, *[OTHER] * (pairs.rows.size - len(known)))


def _require_room(number: int, length: int) -> None:
    """Refuse more pairs than memory holds: counts, rows, and for as many contexts ids, keys and starts."""
    require_memory(
        number * (8 + 4 + 8 + 4 * length + 8),
        f"Statistics of {number:,} distinct pairs",
        "Cut first (--top-contexts, --min-count), or keep the pairs with --pairs.",
    )
