"""`NextTokenStatistics`: distinct contexts, the tokens that follow each, and how often.

where
    n     number of windows
    m     number of distinct contexts
    V     number of next tokens
    P     V x m, ``P[z, j]`` the share of the windows of context j whose next token is z
    S     V x m, 1 where P is positive: column j is the support of context j
    pi    m, share of the windows that have context j
    H     entropy floor ``-sum_j pi_j sum_z P[z, j] log P[z, j]`` in nats, below which no model's loss can be

Saved statistics are a folder that any language with Parquet, safetensors and JSON can read::

    manifest.json         what `NextTokenStatistics.to_dict` says, without warnings, and a hash per file
    arrays.safetensors    the V x m matrix in CSC form: data, indices, indptr; contexts, m x L ids, oldest first (-1 the
                          start of a document, -2 before a shorter context); pi, where there are no counts;
                          text_counts, where cuts left out some windows of the contexts
    vocabulary.parquet    one row per next token: its text
    labels.parquet        one row per context: its name, where contexts have no ids
    tokenizer.json        the tokenizer, where there is one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Float, Int, dense, x_log_x
from tokengeom.core.settings import make, takes, whole_number
from tokengeom.corpus.files import exists
from tokengeom.corpus.tokenizers import AbstractTokenizer
from tokengeom.results.contract import AbstractResult, data_frame
from tokengeom.results.manifests import MANIFEST, read_kind
from tokengeom.statistics.completeness import Completeness, estimate_completeness
from tokengeom.statistics.cuts import OTHER as OTHER
from tokengeom.statistics.cuts import AbstractCut, CutSettings, Effect, Totals, cut_statistics
from tokengeom.statistics.cuts import restricted as restricted
from tokengeom.statistics.saved_statistics import (
    content_hash,
    entries,
    facts,
    read_statistics,
    summary,
    write_statistics,
)
from tokengeom.statistics.supports import (
    COLUMNS_AT_ONCE,
    SupportGroups,
    as_matrix,
    canonical,
    check_parts,
    check_table,
    column_sums,
    group_supports,
    refuse_overflow,
)
from tokengeom.statistics.windows import START, Windows

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.keywords import CutKeywords

SHARED = "the next tokens and contexts that the other text has too"
"""Description of the cut that leaves what two texts share, in the order of the first of them."""
START_TEXT = "<start>"


@dataclass(frozen=True, eq=False, repr=False)
class NextTokenStatistics(AbstractResult):
    """Distinct contexts with sparse soft labels: which tokens follow each context, and how often.

    Make statistics with `tokengeom.count`, `from_counts` or `from_probabilities`. They cannot be changed afterwards.

    ``table``
        V x m: int64 counts, or float64 probabilities where there are no counts. Columns are contexts.
    ``context_share``
        Shares pi of the contexts where there are no counts, else None.
    ``vocabulary``
        The V next tokens as text.
    ``contexts``
        m x L token ids of each context, oldest first. `START` (-1) is the start of a document, and `ABSENT` (-2) comes
        before a context with fewer than L tokens. None where contexts have no tokens.
    ``labels``
        Names of the contexts where they have no tokens.
    ``text_counts``
        Number of windows of each context in the text, where cuts left out some of them; None where they did not.
    ``tokenizer``, ``windows``, ``effects``, ``corpus``
        Where the statistics come from: tokenizer, kind of windows, cuts with their effects, what was read.
    ``claimed``
        The manifest of saved statistics, which `verify` compares with the content; None if they were not loaded.
    """

    kind: ClassVar[str] = "tokengeom-statistics"
    title: ClassVar[str] = "Next-token statistics"

    table: sparse.csc_array
    context_share: Float | None
    vocabulary: tuple[str, ...]
    contexts: NDArray[np.int32] | None = None
    labels: tuple[str, ...] | None = None
    text_counts: Int | None = None
    tokenizer: AbstractTokenizer | None = None
    windows: Windows | None = None
    effects: tuple[Effect, ...] = ()
    corpus: dict[str, Any] = field(default_factory=dict)
    claimed: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        check_table(self.table, self.context_share)
        check_parts(self)
        own = (self.table.data, self.table.indices, self.table.indptr, self.contexts, self.context_share)
        for array in (*own, self.text_counts):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def from_counts(
        cls,
        counts: ArrayLike | sparse.sparray | sparse.spmatrix,
        contexts: Sequence[str] | NDArray[np.integer[Any]] | None = None,
        vocabulary: Sequence[str] | None = None,
    ) -> Self:
        """Statistics from a V x m matrix of whole numbers: how often each token followed each context.

        ``contexts`` are m names or an m x L array of token ids; ``vocabulary`` are V names.
        """
        given = as_matrix(counts)
        refuse_overflow(given.data)
        # As int64 before equal entries are added up, which a narrow type would do with a wrap-around.
        whole = given.data.astype(np.int64)
        if (whole != given.data).any():
            raise StatisticsError("Counts must be whole numbers; for probabilities use from_probabilities.")
        table = canonical(sparse.coo_array((whole, given.coords), shape=given.shape))
        return cls(table, None, **_names(table.shape[0], contexts, vocabulary))

    @classmethod
    def from_probabilities(
        cls,
        P: ArrayLike | sparse.sparray | sparse.spmatrix,
        pi: ArrayLike | None = None,
        contexts: Sequence[str] | NDArray[np.integer[Any]] | None = None,
        vocabulary: Sequence[str] | None = None,
    ) -> Self:
        """Statistics from conditional probabilities: ``P`` is V x m with columns that sum to 1, ``pi`` has m shares.

        Without ``pi`` all contexts have the same share. ``contexts`` and ``vocabulary`` are as in `from_counts`.
        """
        table = canonical(as_matrix(P).astype(np.float64))
        m = table.shape[1]
        try:
            share = np.full(m, 1 / max(m, 1)) if pi is None else dense(pi).copy()
        except (TypeError, ValueError) as error:
            raise StatisticsError(f"pi must have {m} numbers, one per context: {error}") from error
        return cls(table, share, **_names(table.shape[0], contexts, vocabulary))

    @property
    def V(self) -> int:
        """Number of next tokens."""
        return int(self.table.shape[0])

    @property
    def m(self) -> int:
        """Number of distinct contexts."""
        return int(self.table.shape[1])

    @property
    def has_counts(self) -> bool:
        """Whether these are counts, rather than probabilities."""
        return self.context_share is None

    @property
    def counts(self) -> sparse.csc_array:
        """How often each token followed each context, V x m of int64."""
        if not self.has_counts:
            raise StatisticsError("These statistics were given as probabilities: they have no counts.")
        return self.table

    @cached_property
    def context_counts(self) -> Int:
        """Number of windows of each context, shape m."""
        return _frozen(column_sums(self.counts.data, self.counts.indptr))

    @cached_property
    def n(self) -> int:
        """Number of windows."""
        return int(self.context_counts.sum())

    @cached_property
    def pi(self) -> Float:
        """Share of the windows that have each context, shape m."""
        return _frozen(self.context_counts / self.n) if self.context_share is None else self.context_share

    @cached_property
    def P(self) -> sparse.csc_array:
        """Conditional probabilities of the next token, V x m; each column sums to 1."""
        if not self.has_counts:
            return self.table
        return self._with_values(self.table.data / np.repeat(self.context_counts, self.support_sizes))

    @cached_property
    def S(self) -> sparse.csc_array:
        """Support matrix, V x m of zeros and ones."""
        return self._with_values(np.ones(self.table.nnz, np.int8))

    def _with_values(self, values: NDArray[Any]) -> sparse.csc_array:
        return sparse.csc_array((_frozen(values), self.table.indices, self.table.indptr), shape=self.table.shape)

    @cached_property
    def support_sizes(self) -> Int:
        """Number of tokens that may follow each context, shape m."""
        return _frozen(np.diff(self.table.indptr).astype(np.int64))

    @cached_property
    def context_entropies(self) -> Float:
        """Entropy of the next token of each context, in nats, shape m."""
        return 0.0 - np.asarray(np.add.reduceat(x_log_x(self.P.data), self.table.indptr[:-1]))

    @cached_property
    def entropy(self) -> float:
        """The entropy floor ``H = -sum_j pi_j sum_z P[z, j] log P[z, j]`` in nats: no model's loss is lower."""
        total = 0.0
        # Some contexts at a time: P of all of them is as large as the table.
        for some, share in self.shares():
            ends = self.table.indptr[some.start : some.stop + 1]
            values, sizes = self.table.data[ends[0] : ends[-1]], np.diff(ends)
            if self.has_counts:
                values = values / np.repeat(self.context_counts[some], sizes)
            # Not a product of BLAS, whose sums depend on the number of threads.
            total += float((np.repeat(share, sizes) * x_log_x(values)).sum())
        return max(0.0, -total)

    def shares(self) -> Iterator[tuple[slice, Float]]:
        """Some contexts at a time, and their shares pi of the windows."""
        for begin in range(0, self.m, COLUMNS_AT_ONCE):
            some = slice(begin, min(begin + COLUMNS_AT_ONCE, self.m))
            yield some, self.context_counts[some] / self.n if self.context_share is None else self.context_share[some]

    @property
    def one_hot_share(self) -> float:
        """Share of the contexts that have a support of one token."""
        return float(np.mean(np.diff(self.table.indptr) == 1))

    @cached_property
    def groups(self) -> SupportGroups:
        """Contexts grouped by equal supports."""
        return group_supports(self.S)

    @cached_property
    def left_out(self) -> Float:
        """Share of each context's windows in the text that cuts left out, shape m; 0 where they left out none."""
        if self.text_counts is None:
            return np.broadcast_to(np.float64(0), self.m)
        return _frozen(1.0 - self.context_counts / self.text_counts)

    @property
    def other(self) -> int | None:
        """Row of the token that stands for merged ones; None where none were merged."""
        return self.V - 1 if self.vocabulary[-1] == OTHER else None

    @cached_property
    def completeness(self) -> Completeness | None:
        """What a longer text would add to the supports; None where there are no counts."""
        return estimate_completeness(self.counts) if self.has_counts else None

    @property
    def coverage(self) -> float | None:
        """Share of the text's windows that the cuts kept: 1 without cuts, None where no text was counted.

        A window whose next token was merged into `OTHER` is kept.
        """
        if self.windows is None or not self.has_counts:
            return None
        return self.n / self.text_windows

    @property
    def merged_share(self) -> float:
        """Share of the windows kept that end in the token that stands for merged ones; 0 where none were merged."""
        return 0.0 if self.other is None else float(self.pi @ self.P.T[:, [self.other]].toarray().ravel())

    @property
    def text_windows(self) -> int:
        """Number of windows that the text had, before any cut."""
        return self.effects[0].before.n if self.effects else self.n

    @property
    def text_vocabulary(self) -> int:
        """Number of tokens that the text could have, before any cut."""
        return self.effects[0].before.V if self.effects else self.V

    @property
    def totals(self) -> Totals:
        """n, m, V and the entropy floor."""
        return Totals(self.n, self.m, self.V, self.entropy)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of table, shares, contexts, vocabulary and labels: equal statistics have equal hashes."""
        return content_hash(self)

    @property
    def tokenizer_name(self) -> str:
        """Kind of the tokenizer; ``token ids`` where ids were counted without one, ``none`` without tokens."""
        if self.tokenizer is not None:
            return self.tokenizer.kind
        return "none" if self.contexts is None else "token ids"

    def context_text(self, j: int) -> str:
        """Text of context j; its label or number where it has no tokens."""
        if self.contexts is None:
            return self.labels[j] if self.labels is not None else f"context {j}"
        return self.text([int(identifier) for identifier in self.contexts[j]])

    def text(self, ids: Sequence[int]) -> str:
        """Text of token ids, among which may be starts of documents and absent tokens; numbers without a tokenizer."""
        starts, tokens = ids.count(START), [identifier for identifier in ids if identifier >= 0]
        if self.tokenizer is not None and max(tokens, default=0) < self.tokenizer.size:
            text = self.tokenizer.decode(tokens) if tokens else ""
        else:
            text = " ".join(map(str, tokens))
        return " ".join([START_TEXT] * starts + ([text] if text else []))

    def next_tokens(self, j: int | str, k: int | None = None) -> list[tuple[str, float]]:
        """The ``k`` most frequent next tokens of context j, a number or its text, with their probabilities in order."""
        if isinstance(j, str):
            words = [self.context_text(i).split() for i in range(self.m)]
            if (wanted := j.split()) not in words:
                unknown = [word for word in wanted if not any(word in known for known in words)]
                why = f", and none has {' or '.join(map(repr, unknown[:3]))}" if unknown else ""
                raise StatisticsError(
                    f"No context of these statistics is '{j}'{why}. tg.place takes contexts of any text."
                )
            j = words.index(wanted)
        if not 0 <= (j := whole_number("The context", j)) < self.m:
            raise StatisticsError(f"The context must be a text or a number from 0 to {self.m - 1}; got {j}.")
        entries = slice(self.table.indptr[j], self.table.indptr[j + 1])
        # Of this context alone: P of all contexts is as large as the table.
        tokens, values = self.table.indices[entries], self.table.data[entries]
        p = values / values.sum() if self.has_counts else values
        order = np.argsort(-p, kind="stable")[: None if k is None else whole_number("k", k)]
        return [(self.vocabulary[tokens[i]], float(p[i])) for i in order]

    def most_frequent(self, k: int) -> Int:
        """The ``k`` contexts with the largest shares, largest first; ties in the order of contexts."""
        weight = self.context_counts if self.context_share is None else self.context_share
        best = np.empty(0, np.int64)
        # Part by part, with the best so far: sorting all contexts would take several arrays of their number.
        step = max(COLUMNS_AT_ONCE, 4 * whole_number("k", k))
        for begin in range(0, self.m, step):
            candidates = np.concatenate((best, np.arange(begin, min(begin + step, self.m))))
            best = candidates[np.argsort(-weight[candidates], kind="stable")[:k]]
        return best

    def cut(self, *cuts: AbstractCut) -> NextTokenStatistics:
        """Smaller statistics, by cuts made one after the other; `effects` records what each did."""
        statistics = self
        for cut in cuts:
            statistics = cut_statistics(statistics, cut)
        return statistics

    @takes(CutSettings)
    def limited(self, **settings: Unpack[CutKeywords]) -> NextTokenStatistics:
        """Smaller statistics, by the cuts that `count` makes too, in the order of the settings below."""
        return self.cut(*make(CutSettings, settings, "limited").cuts())

    def equals(self, other: object) -> bool:
        """Whether tables, contexts and vocabulary are equal to the last bit."""
        return isinstance(other, NextTokenStatistics) and self.hash == other.hash

    def to_dict(self) -> dict[str, Any]:
        """Sizes, entropy floor, supports, and where the statistics come from."""
        return entries(self)

    def to_frame(self) -> DataFrame:
        """Data frame with one row per context and next token: their names, the count where known, the probability."""
        tokens = np.array(self.vocabulary, dtype=object)
        contexts = np.array([self.context_text(j) for j in range(self.m)], dtype=object)
        columns = {
            "context": np.repeat(contexts, self.support_sizes),
            "token": tokens[self.table.indices],
            **({"count": self.counts.data} if self.has_counts else {}),
            "probability": self.P.data,
        }
        return data_frame(columns)

    def summary(self) -> str:
        """Sizes, entropy floor, supports, cuts and warnings, one sentence per line."""
        return summary(self)

    def _facts(self) -> list[tuple[str, str]]:
        return facts(self)

    def _write(self, folder: Path) -> dict[str, Any]:
        return write_statistics(self, folder)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        return read_statistics(cls, folder, manifest)


def statistics_of(given: object, verb: str) -> NextTokenStatistics:
    """Statistics from what a user passed to a verb: statistics, or the path of a folder that holds saved ones."""
    if isinstance(given, NextTokenStatistics):
        return given
    if isinstance(given, str | Path):
        return _load_statistics(Path(given), verb)
    if isinstance(given, np.ndarray) or sparse.issparse(given):
        raise StatisticsError(
            f"{verb} needs next-token statistics; got an array. Make them with "
            "tg.NextTokenStatistics.from_counts(counts) or .from_probabilities(P, pi), both from V x m matrices."
        )
    raise StatisticsError(
        f"{verb} needs next-token statistics, or the path of saved ones; got {type(given).__name__}. "
        "Count the text first: stats = tg.count(documents)."
    )


def _load_statistics(path: Path, verb: str) -> NextTokenStatistics:
    if not exists(path):
        raise StatisticsError(f"{verb} needs next-token statistics, and '{path}' does not exist. Check the path.")
    if exists(path / MANIFEST) and read_kind(path) == NextTokenStatistics.kind:
        return NextTokenStatistics.load(path)
    there = f"'{path}' holds '{read_kind(path)}'" if exists(path / MANIFEST) else f"'{path}' is not a folder of them"
    raise StatisticsError(
        f"{verb} needs next-token statistics, and {there}. If it is a text or holds counted pairs, count it first: "
        f"tokengeom count '{path}' --out stats, or stats = tg.count('{path}') in Python."
    )


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _names(
    V: int, contexts: Sequence[str] | NDArray[np.integer[Any]] | None, vocabulary: Sequence[str] | None
) -> dict[str, Any]:
    tokens = tuple(vocabulary) if vocabulary is not None else tuple(f"token {z}" for z in range(V))
    if isinstance(contexts, np.ndarray) and np.issubdtype(contexts.dtype, np.integer):
        return {"contexts": np.array(contexts, np.int32), "vocabulary": tokens}
    labels = tuple(map(str, contexts)) if contexts is not None else None
    return {"labels": labels, "vocabulary": tokens}
