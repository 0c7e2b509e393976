"""`NextTokenStatistics`: all that the theory needs to know of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from tokengeom.corpus.tokenizers import AbstractTokenizer
from tokengeom.errors import StatisticsError
from tokengeom.numerics import x_log_x
from tokengeom.statistics.cuts import (
    AbstractCut,
    CommonestTokens,
    Effect,
    MinimumCount,
    MostFrequentContexts,
    PairArrays,
    Rest,
    Totals,
    support_policy,
)
from tokengeom.statistics.supports import SupportGroups, group_supports
from tokengeom.statistics.windows import ABSENT, START, Windows

OTHER = "<other>"
START_TEXT = "<start>"
_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class NextTokenStatistics:
    """Distinct contexts, which tokens follow each, and how often: sparse soft labels.

    Make it with `tokengeom.count`, `from_counts` or `from_probabilities`; it is frozen from then on.

    ``table``
        V x m: int64 counts, or float64 probabilities where no counts exist. Columns are contexts.
    ``context_share``
        Shares of the contexts where no counts exist; else None.
    ``contexts``
        m x L ids of each context's tokens, oldest first; `START` (-1) is the start of a document and `ABSENT` (-2)
        fills up a shorter context. None where contexts have no tokens.
    ``vocabulary``
        The V next tokens as a person reads them.
    ``labels``
        Names of the contexts where they have no tokens.
    ``tokenizer``, ``windows``, ``effects``, ``corpus``
        Where the statistics come from: tokenizer, kind of windows, cuts with their effects, what was read.
    """

    table: sparse.csc_array
    context_share: NDArray[np.float64] | None
    vocabulary: tuple[str, ...]
    contexts: NDArray[np.int32] | None = None
    labels: tuple[str, ...] | None = None
    tokenizer: AbstractTokenizer | None = None
    windows: Windows | None = None
    effects: tuple[Effect, ...] = ()
    corpus: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)
        for array in (self.table.data, self.table.indices, self.table.indptr, self.contexts, self.context_share):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def from_counts(
        cls,
        counts: ArrayLike | sparse.sparray | sparse.spmatrix,
        contexts: Sequence[str] | NDArray[np.int32] | None = None,
        vocabulary: Sequence[str] | None = None,
    ) -> NextTokenStatistics:
        """From a V x m matrix of whole numbers: how often each token followed each context.

        ``contexts`` are m names or an m x L array of ids; ``vocabulary`` are V names.
        """
        given = _matrix(counts)
        # As int64 before equal entries are added up, which a narrow type would do with a wrap-around.
        whole = given.data.astype(np.int64)
        table = sparse.coo_array((whole, given.coords), shape=given.shape)
        if (whole != given.data).any():
            raise StatisticsError("Counts must be whole numbers; for probabilities use from_probabilities.")
        return cls(_canonical(table), None, **_names(table.shape, contexts, vocabulary))

    @classmethod
    def from_probabilities(
        cls,
        P: ArrayLike | sparse.sparray | sparse.spmatrix,
        pi: ArrayLike | None = None,
        contexts: Sequence[str] | NDArray[np.int32] | None = None,
        vocabulary: Sequence[str] | None = None,
    ) -> NextTokenStatistics:
        """From conditional probabilities: ``P`` is V x m with columns that sum to 1, ``pi`` the contexts' shares.

        Without ``pi`` all contexts have the same share.
        """
        table = _matrix(P).astype(np.float64)
        m = table.shape[1]
        share = np.full(m, 1 / max(m, 1)) if pi is None else np.array(pi, np.float64)
        return cls(_canonical(table), share, **_names(table.shape, contexts, vocabulary))

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
        """Whether these were counted, rather than given as probabilities."""
        return self.context_share is None

    @property
    def counts(self) -> sparse.csc_array:
        """How often each token followed each context, V x m of int64."""
        if not self.has_counts:
            raise StatisticsError("These statistics were given as probabilities: they have no counts.")
        return self.table

    @cached_property
    def context_counts(self) -> NDArray[np.int64]:
        """Number of windows of each context, shape m."""
        # Differences of a running sum: exact, and much faster than adding up millions of short stretches.
        sums = np.concatenate(([0], np.cumsum(self.counts.data)))
        return _frozen(np.diff(sums[self.counts.indptr]))

    @cached_property
    def n(self) -> int:
        """Number of windows."""
        return int(self.context_counts.sum())

    @cached_property
    def pi(self) -> NDArray[np.float64]:
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
    def support_sizes(self) -> NDArray[np.int64]:
        """Number of tokens that may follow each context, shape m."""
        return _frozen(np.diff(self.table.indptr).astype(np.int64))

    @cached_property
    def context_entropies(self) -> NDArray[np.float64]:
        """Entropy of what follows each context, in nats, shape m."""
        return 0.0 - np.asarray(np.add.reduceat(x_log_x(self.P.data), self.table.indptr[:-1]))

    @cached_property
    def entropy(self) -> float:
        """The entropy floor ``H = -sum_j pi_j sum_z p_jz log p_jz`` in nats: no model's loss is lower."""
        weight = np.repeat(self.pi, self.support_sizes)
        return max(0.0, -float(weight @ x_log_x(self.P.data)))

    @property
    def one_hot_share(self) -> float:
        """Share of the contexts that one token alone follows."""
        return float(np.mean(self.support_sizes == 1))

    @cached_property
    def groups(self) -> SupportGroups:
        """Contexts with equal supports, and how many there are of each."""
        return group_supports(self.S)

    @property
    def totals(self) -> Totals:
        """n, m, V and H in one value."""
        return Totals(self.n, self.m, self.V, self.entropy)

    def context_text(self, j: int) -> str:
        """Context j as a person reads it."""
        if self.contexts is None:
            return self.labels[j] if self.labels is not None else f"context {j}"
        ids = [int(identifier) for identifier in self.contexts[j] if identifier != ABSENT]
        starts, tokens = ids.count(START), [identifier for identifier in ids if identifier != START]
        if self.tokenizer is not None:
            text = self.tokenizer.decode(tokens) if tokens else ""
        else:
            text = " ".join(map(str, tokens))
        return " ".join([START_TEXT] * starts + ([text] if text else []))

    def next_tokens(self, j: int, k: int | None = None) -> list[tuple[str, float]]:
        """The ``k`` commonest tokens after context j with their probabilities, commonest first."""
        entries = slice(self.P.indptr[j], self.P.indptr[j + 1])
        tokens, p = self.P.indices[entries], self.P.data[entries]
        order = np.argsort(-p, kind="stable")[:k]
        return [(self.vocabulary[tokens[i]], float(p[i])) for i in order]

    def most_frequent(self, k: int) -> NDArray[np.int64]:
        """The ``k`` contexts with the largest shares, largest first; ties in the order of contexts."""
        return np.argsort(-self.pi, kind="stable")[:k].astype(np.int64)

    def cut(self, *cuts: AbstractCut) -> NextTokenStatistics:
        """Make cuts one after the other and record what each did."""
        statistics = self
        for one in cuts:
            statistics = _cut(statistics, one)
        return statistics

    def limited(
        self,
        contexts: int | None = None,
        vocabulary: int | None = None,
        rest: Rest = "drop",
        min_count: int | None = None,
        support: str = "raw",
    ) -> NextTokenStatistics:
        """The usual cuts by name, in the order of `standard_cuts`."""
        return self.cut(*standard_cuts(contexts, vocabulary, rest, min_count, support))

    def save(self, folder: str | Path) -> None:
        """Write to a folder, readable without this package: safetensors, Parquet and a JSON manifest."""
        from tokengeom.statistics.storage import save_statistics

        save_statistics(self, Path(folder))

    @staticmethod
    def load(folder: str | Path) -> NextTokenStatistics:
        """Read what `save` wrote."""
        from tokengeom.statistics.storage import load_statistics

        return load_statistics(Path(folder))

    def equals(self, other: NextTokenStatistics) -> bool:
        """Whether tables, contexts and vocabulary are equal to the last bit."""
        return (
            self.table.shape == other.table.shape
            and self.table.dtype == other.table.dtype
            and np.array_equal(self.table.indptr, other.table.indptr)
            and np.array_equal(self.table.indices, other.table.indices)
            and np.array_equal(self.table.data, other.table.data)
            and np.array_equal(self.pi, other.pi)
            and _same(self.contexts, other.contexts)
            and (self.vocabulary, self.labels) == (other.vocabulary, other.labels)
        )

    def _repr_html_(self) -> str:
        from tokengeom.statistics.notebook import statistics_html

        return statistics_html(self)

    def __repr__(self) -> str:
        windows = f"n={self.n:,}, " if self.has_counts else ""
        return f"NextTokenStatistics({windows}m={self.m:,}, V={self.V:,}, entropy={self.entropy:.4f} nats)"


def standard_cuts(
    contexts: int | None = None,
    vocabulary: int | None = None,
    rest: Rest = "drop",
    min_count: int | None = None,
    support: str = "raw",
) -> list[AbstractCut]:
    """The usual cuts in the usual order: rare contexts, frequent contexts, vocabulary, supports."""
    wanted = [
        MinimumCount(min_count) if min_count is not None else None,
        MostFrequentContexts(contexts) if contexts is not None else None,
        CommonestTokens(vocabulary, rest) if vocabulary is not None else None,
        support_policy(support),
    ]
    return [cut for cut in wanted if cut is not None]


def _same(mine: NDArray[np.int32] | None, theirs: NDArray[np.int32] | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    return np.array_equal(mine, theirs)


def _matrix(given: Any) -> sparse.coo_array:
    """Any V x m matrix of numbers, dense or sparse, with its entries as they are."""
    try:
        matrix = sparse.coo_array(given)
    except (TypeError, ValueError) as error:
        raise StatisticsError(f"A V x m matrix of numbers is needed: {error}") from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise StatisticsError(
            f"A V x m matrix of real numbers is needed; got {matrix.ndim} dimensions of {matrix.dtype}."
        )
    return matrix


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _canonical(given: sparse.coo_array) -> sparse.csc_array:
    table = sparse.csc_array(given)
    table.sum_duplicates()
    table.eliminate_zeros()
    table.sort_indices()
    return table


def _names(
    shape: tuple[int, ...],
    contexts: Sequence[str] | NDArray[np.int32] | None,
    vocabulary: Sequence[str] | None,
) -> dict[str, Any]:
    V = shape[0]
    words = tuple(vocabulary) if vocabulary is not None else tuple(f"token {z}" for z in range(V))
    if isinstance(contexts, np.ndarray) and np.issubdtype(contexts.dtype, np.integer):
        return {"contexts": np.array(contexts, np.int32), "vocabulary": words}
    labels = tuple(map(str, contexts)) if contexts is not None else None
    return {"labels": labels, "vocabulary": words}


def _check(statistics: NextTokenStatistics) -> None:
    """Refuse what the theory has no meaning for, naming the first offender."""
    table, V, m = statistics.table, statistics.V, statistics.m
    if V < 1 or m < 1:
        raise StatisticsError(f"Statistics need at least one token and one context; got V={V} and m={m}.")
    if not np.isfinite(table.data).all() or (table.data <= 0).any():
        raise StatisticsError("Counts and probabilities must be finite and not negative.")
    empty = np.flatnonzero(np.diff(table.indptr) == 0)
    if empty.size:
        raise StatisticsError(
            f"Every context needs at least one next token; {empty.size:,} of {m:,} have none, "
            f"the first is column {empty[0]}. Leave such columns out."
        )
    for name, length, wanted in (
        ("vocabulary", len(statistics.vocabulary), V),
        ("contexts", m if statistics.contexts is None else len(statistics.contexts), m),
        ("context labels", m if statistics.labels is None else len(statistics.labels), m),
    ):
        if length != wanted:
            raise StatisticsError(f"The {name} must have {wanted:,} entries, one for each; got {length:,}.")
    if statistics.context_share is not None:
        _check_probabilities(statistics, statistics.context_share)


def _check_probabilities(statistics: NextTokenStatistics, pi: NDArray[np.float64]) -> None:
    sums = np.asarray(statistics.table.sum(axis=0)).ravel()
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > _SUM_TOLERANCE:
        raise StatisticsError(f"Each column of P must sum to 1; column {worst} sums to {sums[worst]:.12g}.")
    if pi.shape != (statistics.m,):
        raise StatisticsError(f"pi must have {statistics.m:,} entries, one a context; its shape is {pi.shape}.")
    if not (np.isfinite(pi).all() and (pi > 0).all() and abs(pi.sum() - 1) <= _SUM_TOLERANCE):
        raise StatisticsError(f"pi must be positive and sum to 1; it sums to {pi.sum():.12g}, least {pi.min():.3g}.")


def _cut(statistics: NextTokenStatistics, cut: AbstractCut) -> NextTokenStatistics:
    counts = statistics.counts
    context = np.repeat(np.arange(statistics.m), statistics.support_sizes)
    pairs = cut.in_memory(PairArrays(context, counts.indices.astype(np.int64), counts.data, np.arange(statistics.V)))
    if not pairs.count.size:
        raise StatisticsError(f"The cut '{cut.describe()}' leaves nothing: every window is lost. Cut less.")
    kept, column = np.unique(pairs.context, return_inverse=True)
    row = np.searchsorted(pairs.rows, pairs.token)
    table = sparse.csc_array((pairs.count, (row, column)), shape=(pairs.rows.size, kept.size), dtype=np.int64)
    names = (*statistics.vocabulary, OTHER)
    after = NextTokenStatistics(
        table=_canonical(table),
        context_share=None,
        vocabulary=tuple(names[token] for token in pairs.rows),
        contexts=None if statistics.contexts is None else statistics.contexts[kept],
        labels=None if statistics.labels is None else tuple(statistics.labels[j] for j in kept),
        tokenizer=statistics.tokenizer,
        windows=statistics.windows,
        corpus=statistics.corpus,
    )
    effect = Effect(cut.describe(), statistics.totals, after.totals)
    object.__setattr__(after, "effects", (*statistics.effects, effect))
    return after
