"""Cuts: rules that make statistics smaller by dropping contexts, next tokens or rare pairs.

Each cut is implemented twice, and a test compares the two: as a relational expression on counted pairs, which may be
on a cluster, and on arrays in memory, for statistics that exist already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
from scipy import sparse

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Bool, Int, rounded_percent
from tokengeom.core.settings import option, whole_number
from tokengeom.results.convert import Within
from tokengeom.statistics.supports import canonical

if TYPE_CHECKING:
    import ibis

    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.statistics.pairs import PairTable

OTHER = "(other tokens)"
"""Text of the token that stands for all tokens that a cut merged."""
Rest = Literal["drop", "merge"]
PANEL = "Cuts, made in this order"
WINDOWS = "windows"
"""Column of counted pairs: how many windows the pair's context had before a cut left some of them out."""


@dataclass(frozen=True)
class Totals:
    """Sizes of statistics.

    ``n``, ``m``, ``V``
        Numbers of windows, of contexts and of next tokens.
    ``entropy``
        Entropy floor H in nats.
    """

    n: Annotated[int, Within(1)]
    m: Annotated[int, Within(1)]
    V: Annotated[int, Within(1)]
    entropy: Annotated[float, Within(0)]

    def to_dict(self) -> dict[str, Any]:
        """The sizes under the names that every result has for them."""
        return {"windows": self.n, "contexts": self.m, "vocabulary": self.V, "entropy_nats": self.entropy}


@dataclass(frozen=True)
class Effect:
    """What a cut did.

    ``cut``
        What was kept, as a phrase.
    ``before``, ``after``
        Sizes of the statistics before and after it.
    """

    cut: str
    before: Totals
    after: Totals

    def __post_init__(self) -> None:
        if self.after.n > self.before.n or self.after.m > self.before.m:
            raise ValueError(f"the cut {self.cut!r} leaves more windows or contexts than there were before it")

    @property
    def sentence(self) -> str:
        """What was kept, and how many of the windows."""
        kept, all_windows = self.after.n, self.before.n
        return (
            f"Kept: {self.cut}; {kept:,} of {all_windows:,} windows remain ({rounded_percent(kept / all_windows, 1)})."
        )


@dataclass(frozen=True)
class PairArrays:
    """Counted pairs in memory, sorted by context and then by next token.

    ``context``  Number of each pair's context.
    ``token``    Row of each pair's next token.
    ``count``    How often each pair occurred.
    ``rows``     The rows that exist.
    """

    context: Int
    token: Int
    count: Int
    rows: Int

    def keep(self, mask: Bool) -> PairArrays:
        """The pairs where the mask is true."""
        return replace(self, context=self.context[mask], token=self.token[mask], count=self.count[mask])

    def context_totals(self) -> Int:
        """Number of windows of each context."""
        return _sums(self.context, self.count)


def _sums(keys: Int, count: Int) -> Int:
    totals = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, keys, count)
    return totals


class AbstractCut(ABC):
    """A rule that makes statistics smaller."""

    @property
    def leaves_windows_out(self) -> bool:
        """Whether a context that is kept may lose some of its windows."""
        return False

    @abstractmethod
    def describe(self) -> str:
        """The rule, as a phrase that follows "kept:"."""

    @abstractmethod
    def in_memory(self, pairs: PairArrays) -> PairArrays:
        """The pairs that are kept."""

    @abstractmethod
    def relational(self, pairs: PairTable, answer: Sequence[int]) -> ibis.Table:
        """The table that is kept; ``answer`` are the tokens that `query` selected, where the cut has a query."""

    def query(self, pairs: PairTable) -> ibis.Table | None:
        """A small query whose answer (column ``next``) `relational` and `rows` need; None for most cuts."""
        return None

    def rows(self, pairs: PairTable, answer: Sequence[int]) -> Int:
        """Ids of the next tokens that exist after the cut."""
        return pairs.rows


_LARGEST = 1 << 63
"""Numbers from here on do not fit into a column of an engine."""


def _require_positive(name: str, value: int) -> None:
    if not 1 <= whole_number(name, value) < _LARGEST:
        raise StatisticsError(f"{name} must be {'1 or more' if value < 1 else 'below 2**63'}; got {value}.")


def _require_rest(rest: str) -> None:
    if rest not in get_args(Rest):
        raise StatisticsError(f"The setting rest must be one of {', '.join(get_args(Rest))}; got {rest!r}.")


@dataclass(frozen=True)
class MostFrequentContexts(AbstractCut):
    """Keep the ``k`` contexts with the most windows; ties go to the context that sorts first."""

    k: int

    def __post_init__(self) -> None:
        _require_positive("The number of contexts to keep", self.k)

    def describe(self) -> str:
        return f"the {self.k:,} most frequent contexts"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        totals = pairs.context_totals()
        kept = np.zeros(totals.size, np.bool_)
        kept[np.argsort(-totals, kind="stable")[: self.k]] = True
        return pairs.keep(kept[pairs.context])

    def relational(self, pairs: PairTable, answer: Sequence[int]) -> ibis.Table:
        totals = pairs.table.group_by(pairs.keys).aggregate(windows=pairs.table["count"].sum())
        order = [totals.windows.desc(), *(totals[key] for key in pairs.keys)]
        return pairs.table.semi_join(totals.order_by(order).limit(self.k), list(pairs.keys))


@dataclass(frozen=True)
class MinimumCount(AbstractCut):
    """Keep the contexts with at least ``count`` windows."""

    count: int

    def __post_init__(self) -> None:
        _require_positive("The smallest number of windows per context", self.count)

    def describe(self) -> str:
        return f"contexts seen at least {self.count:,} times"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        return pairs.keep(pairs.context_totals()[pairs.context] >= self.count)

    def relational(self, pairs: PairTable, answer: Sequence[int]) -> ibis.Table:
        totals = pairs.table.group_by(pairs.keys).aggregate(windows=pairs.table["count"].sum())
        return pairs.table.semi_join(totals.filter(totals.windows >= self.count), list(pairs.keys))


@dataclass(frozen=True)
class CommonestTokens(AbstractCut):
    """Limit the vocabulary to the ``size`` most frequent next tokens; ties go to the smaller id.

    ``rest="drop"`` drops the windows that end in any other token. ``rest="merge"`` replaces those tokens by a single
    new one, so no window is lost.
    """

    size: int
    rest: Rest

    def __post_init__(self) -> None:
        _require_positive("The number of next tokens to keep", self.size)
        _require_rest(self.rest)

    @property
    def leaves_windows_out(self) -> bool:
        return self.rest == "drop"

    def describe(self) -> str:
        fate = "dropped" if self.rest == "drop" else "merged into one"
        return f"the {self.size:,} most frequent next tokens, the rest {fate}"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        totals = _sums(pairs.token, pairs.count)
        order = np.argsort(-totals, kind="stable")
        commonest = order[totals[order] > 0][: self.size + 1].tolist()
        other = int(pairs.rows[-1]) + 1
        inside = np.isin(pairs.token, commonest[: self.size])
        rows = self._rows(commonest, other)
        if self.rest == "drop":
            return replace(pairs.keep(inside), rows=rows)
        return _pooled(replace(pairs, token=np.where(inside, pairs.token, other), rows=rows))

    def query(self, pairs: PairTable) -> ibis.Table:
        """The most frequent tokens, one more than are kept: then it is known whether any are left over."""
        totals = pairs.table.group_by("next").aggregate(windows=pairs.table["count"].sum())
        return totals.order_by([totals.windows.desc(), totals["next"]]).limit(self.size + 1).select("next")

    def rows(self, pairs: PairTable, answer: Sequence[int]) -> Int:
        """Ids of the kept tokens, then that of the token that stands for the others."""
        return self._rows(answer, pairs.other)

    def _rows(self, commonest: Sequence[int], other: int) -> Int:
        kept = np.sort(np.asarray(commonest[: self.size], np.int64))
        merges = self.rest == "merge" and len(commonest) > self.size
        return np.unique(np.append(kept, other)) if merges else kept

    def relational(self, pairs: PairTable, answer: Sequence[int]) -> ibis.Table:
        import ibis

        table = pairs.table
        inside = table["next"].isin(list(answer[: self.size]))
        if self.rest == "drop":
            return table.filter(inside)
        other = ibis.literal(pairs.other, "int32")
        merged = table.mutate(next=inside.ifelse(table["next"], other))
        equal = [*pairs.keys, "next", *pairs.kept_columns]
        return merged.group_by(equal).aggregate(count=merged["count"].sum())


def _pooled(pairs: PairArrays) -> PairArrays:
    """Add up the counts of pairs that became equal."""
    order = np.lexsort((pairs.token, pairs.context))
    context, token = pairs.context[order], pairs.token[order]
    fresh = np.ones(order.size, np.bool_)
    fresh[1:] = (np.diff(context) != 0) | (np.diff(token) != 0)
    count = np.add.reduceat(pairs.count[order], np.flatnonzero(fresh))
    return replace(pairs, context=context[fresh], token=token[fresh], count=count)


@dataclass(frozen=True)
class SupportByCount(AbstractCut):
    """Keep a token in a context's support only if it followed at least ``count`` times."""

    leaves_windows_out = True
    count: int

    def __post_init__(self) -> None:
        _require_positive("The smallest count in a support", self.count)

    def describe(self) -> str:
        return f"supports of tokens that followed at least {self.count:,} times"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        return pairs.keep(pairs.count >= self.count)

    def relational(self, pairs: PairTable, answer: Sequence[int]) -> ibis.Table:
        return pairs.table.filter(pairs.table["count"] >= self.count)


@dataclass(frozen=True)
class SupportByMass(AbstractCut):
    """Keep in each support the smallest set of most frequent tokens with a total share of at least ``p``.

    Ties go to the smaller id.
    """

    leaves_windows_out = True
    p: float

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise StatisticsError(f"The share p of top-p must lie in (0, 1]; got {self.p}.")

    @property
    def _share(self) -> float:
        """``p`` less a rounding error: 55 of 100 is a share of 0.55, although 0.55 x 100 is more than 55 in floats."""
        return self.p * (1 - 1e-12)

    def describe(self) -> str:
        return f"supports of the most frequent tokens with a total share of {self.p:g}"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        order = np.lexsort((pairs.token, -pairs.count, pairs.context))
        context, count = pairs.context[order], pairs.count[order]
        totals = pairs.context_totals()
        before = np.cumsum(count) - count - (np.cumsum(totals) - totals)[context]
        kept = np.zeros(order.size, np.bool_)
        kept[order] = before.astype(np.float64) < self._share * totals[context].astype(np.float64)
        return pairs.keep(kept)

    def relational(self, pairs: PairTable, answer: Sequence[int]) -> ibis.Table:
        import ibis

        table, count = pairs.table, pairs.table["count"]
        whole = ibis.window(group_by=list(pairs.keys))
        sofar = ibis.window(
            group_by=list(pairs.keys), order_by=[count.desc(), table["next"]], preceding=None, following=0
        )
        ranked = table.mutate(
            total=count.sum().over(whole).cast("float64"), before=(count.sum().over(sofar) - count).cast("float64")
        )
        return ranked.filter(ranked.before < self._share * ranked.total).drop("total", "before")


def support_policy(policy: str) -> AbstractCut | None:
    """The cut of a support policy: ``raw`` (None), ``count:TAU`` or ``top-p:P``."""
    name, _, value = policy.partition(":")
    try:
        match name:
            case "raw" if not value:
                return None
            case "count":
                return SupportByCount(int(value))
            case "top-p":
                return SupportByMass(float(value))
    except ValueError as error:
        if isinstance(error, StatisticsError):
            raise
    raise StatisticsError(f"The support policy must be raw, count:TAU or top-p:P; got '{policy}'.")


def cut_statistics(statistics: NextTokenStatistics, cut: AbstractCut) -> NextTokenStatistics:
    """Smaller statistics, by one cut."""
    V, m = statistics.counts.shape
    context, token = np.repeat(np.arange(m), statistics.support_sizes), statistics.counts.indices.astype(np.int64)
    pairs = cut.in_memory(PairArrays(context, token, statistics.counts.data, np.arange(V)))
    if not pairs.count.size:
        raise nothing_left(cut)
    # Row V stands for the tokens that were merged.
    before = (*statistics.vocabulary, OTHER)
    names, row = tuple(before[token] for token in pairs.rows), np.searchsorted(pairs.rows, pairs.token)
    if names[-2:] == (OTHER, OTHER):
        # The token of an earlier cut was kept: tokens merged by either are one token.
        names = names[:-1]
        row = np.minimum(row, len(names) - 1)
    kept, column = np.unique(pairs.context, return_inverse=True)
    table = canonical(sparse.coo_array((pairs.count, (row, column)), shape=(len(names), kept.size)))
    text_counts = statistics.text_counts
    if text_counts is None and cut.leaves_windows_out:
        text_counts = statistics.context_counts
    return restricted(
        statistics, cut.describe(), table, names, kept, None if text_counts is None else text_counts[kept]
    )


def restricted(
    statistics: NextTokenStatistics,
    description: str,
    table: sparse.csc_array,
    vocabulary: tuple[str, ...],
    kept: Int,
    text_counts: Int | None,
) -> NextTokenStatistics:
    """Statistics with another table and vocabulary for some of the contexts; `effects` records it."""
    after = replace(
        statistics,
        table=table,
        vocabulary=vocabulary,
        contexts=None if statistics.contexts is None else statistics.contexts[kept],
        labels=None if statistics.labels is None else tuple(statistics.labels[j] for j in kept),
        text_counts=text_counts,
        claimed=None,
    )
    return replace(after, effects=(*statistics.effects, Effect(description, statistics.totals, after.totals)))


def nothing_left(cut: AbstractCut) -> StatisticsError:
    """The error of a cut that drops every window."""
    return StatisticsError(f"The cut '{cut.describe()}' leaves nothing: every window is lost. Cut less.")


@dataclass(frozen=True)
class CutSettings:
    """What to keep of the counted pairs; cuts are made in the order of these settings."""

    min_count: int | None = option(None, "Keep contexts with at least this many windows.", panel=PANEL)
    top_contexts: int | None = option(None, "Keep this many of the most frequent contexts.", panel=PANEL)
    vocabulary: int | None = option(None, "Keep this many of the most frequent next tokens.", panel=PANEL)
    rest: Rest = option(
        "drop",
        "What to do with windows that end in any other token: drop them, as tokengeom count does by default, or merge "
        "those tokens into one, as tokengeom report does.",
        panel=PANEL,
    )
    support: str = option(
        "raw",
        "Support policy, which decides the tokens that may follow a context: raw (all that did), count:TAU (those that "
        "did at least TAU times) or top-p:P (the smallest set of most frequent ones with a total share of at least P).",
        panel=PANEL,
        suggestions=lambda: ["raw", "count:2", "top-p:0.9"],
    )

    def __post_init__(self) -> None:
        # What cannot be used is refused before hours of counting, not after them.
        _require_rest(self.rest)
        self.cuts()

    def cuts(self) -> list[AbstractCut]:
        """The cuts that these settings ask for, in order."""
        wanted = [
            None if self.min_count is None else MinimumCount(self.min_count),
            None if self.top_contexts is None else MostFrequentContexts(self.top_contexts),
            None if self.vocabulary is None else CommonestTokens(self.vocabulary, self.rest),
            support_policy(self.support),
        ]
        return [cut for cut in wanted if cut is not None]
