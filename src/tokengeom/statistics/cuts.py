"""Cuts: ways to make statistics smaller, as data.

Each cut knows two ways to be made, which a test holds equal: as a relational expression on counted pairs, wherever
those are, and on arrays in memory, for statistics that are frozen already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import StatisticsError

if TYPE_CHECKING:
    import ibis

Rest = Literal["drop", "merge"]


@dataclass(frozen=True)
class Totals:
    """The size of statistics: windows n, contexts m, vocabulary V, entropy floor H in nats."""

    n: int
    m: int
    V: int
    entropy: float


@dataclass(frozen=True)
class Effect:
    """What one cut did."""

    cut: str
    before: Totals
    after: Totals


@dataclass(frozen=True)
class PairArrays:
    """Counted pairs in memory, sorted by context and then by next token.

    ``context``: number of the pair's context; ``token``: row of its next token; ``count``: how often it was seen;
    ``rows``: the rows that exist.
    """

    context: NDArray[np.int64]
    token: NDArray[np.int64]
    count: NDArray[np.int64]
    rows: NDArray[np.int64]

    def keep(self, mask: NDArray[np.bool_]) -> PairArrays:
        """Only the pairs where the mask is true."""
        return replace(self, context=self.context[mask], token=self.token[mask], count=self.count[mask])

    def context_totals(self) -> NDArray[np.int64]:
        """Windows of each context, exactly."""
        return _sums(self.context, self.count)


def _sums(keys: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    totals = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, keys, count)
    return totals


@dataclass(frozen=True)
class PairTable:
    """Counted pairs as a relational table ``keys..., next, count``.

    ``rows`` are the next tokens that exist; ``other`` is a number that none of them has, for tokens to be merged into.
    """

    table: ibis.Table
    keys: Sequence[str]
    rows: NDArray[np.int64]
    other: int


class AbstractCut(ABC):
    """A rule that makes statistics smaller."""

    @abstractmethod
    def describe(self) -> str:
        """The rule in words."""

    @abstractmethod
    def in_memory(self, pairs: PairArrays) -> PairArrays:
        """The pairs that stay."""

    @abstractmethod
    def relational(self, pairs: PairTable, asked: Sequence[int]) -> ibis.Table:
        """The table that stays; ``asked`` is the answer to `question`, where the cut has one."""

    def question(self, pairs: PairTable) -> ibis.Table | None:
        """A small query whose answer (column ``next``) the cut needs before it can be made."""
        return None

    def rows(self, pairs: PairTable, asked: Sequence[int]) -> NDArray[np.int64]:
        """The next tokens that exist after the cut."""
        return pairs.rows


def _at_least(name: str, value: int) -> None:
    if value < 1:
        raise StatisticsError(f"The {name} must be 1 or more; got {value}.")


@dataclass(frozen=True)
class MostFrequentContexts(AbstractCut):
    """Keep the ``k`` contexts with the most windows; ties go to the context that sorts first."""

    k: int

    def __post_init__(self) -> None:
        _at_least("number of contexts to keep", self.k)

    def describe(self) -> str:
        """The rule in words."""
        return f"the {self.k:,} most frequent contexts"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        """The pairs that stay."""
        totals = pairs.context_totals()
        kept = np.zeros(totals.size, np.bool_)
        kept[np.argsort(-totals, kind="stable")[: self.k]] = True
        return pairs.keep(kept[pairs.context])

    def relational(self, pairs: PairTable, asked: Sequence[int]) -> ibis.Table:
        """The table that stays."""
        totals = pairs.table.group_by(pairs.keys).aggregate(windows=pairs.table["count"].sum())
        order = [totals.windows.desc(), *(totals[key] for key in pairs.keys)]
        return pairs.table.semi_join(totals.order_by(order).limit(self.k), list(pairs.keys))


@dataclass(frozen=True)
class MinimumCount(AbstractCut):
    """Keep the contexts with at least ``count`` windows."""

    count: int

    def __post_init__(self) -> None:
        _at_least("smallest number of windows of a context", self.count)

    def describe(self) -> str:
        """The rule in words."""
        return f"contexts seen at least {self.count:,} times"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        """The pairs that stay."""
        return pairs.keep(pairs.context_totals()[pairs.context] >= self.count)

    def relational(self, pairs: PairTable, asked: Sequence[int]) -> ibis.Table:
        """The table that stays."""
        totals = pairs.table.group_by(pairs.keys).aggregate(windows=pairs.table["count"].sum())
        return pairs.table.semi_join(totals.filter(totals.windows >= self.count), list(pairs.keys))


@dataclass(frozen=True)
class CommonestTokens(AbstractCut):
    """Limit the vocabulary to the ``size`` commonest next tokens; ties go to the smaller id.

    ``rest="drop"`` forgets the windows that end in any other token; ``rest="merge"`` lets them end in one
    new token that stands for all others, so that no window is lost.
    """

    size: int
    rest: Rest = "drop"

    def __post_init__(self) -> None:
        _at_least("vocabulary limit", self.size)
        if self.rest not in ("drop", "merge"):
            raise StatisticsError(f"What happens to the rest must be 'drop' or 'merge'; got '{self.rest}'.")

    def describe(self) -> str:
        """The rule in words."""
        fate = "dropped" if self.rest == "drop" else "merged into one"
        return f"the {self.size:,} commonest next tokens, the rest {fate}"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        """The pairs that stay."""
        totals = _sums(pairs.token, pairs.count)
        order = np.argsort(-totals, kind="stable")
        commonest = order[totals[order] > 0][: self.size + 1].tolist()
        other = int(pairs.rows[-1]) + 1
        inside = np.isin(pairs.token, commonest[: self.size])
        rows = self._rows(commonest, other)
        if self.rest == "drop":
            return replace(pairs.keep(inside), rows=rows)
        return _pooled(replace(pairs, token=np.where(inside, pairs.token, other), rows=rows))

    def question(self, pairs: PairTable) -> ibis.Table:
        """Which tokens are the commonest; one more than are kept, to know whether there is a rest."""
        totals = pairs.table.group_by("next").aggregate(windows=pairs.table["count"].sum())
        return totals.order_by([totals.windows.desc(), totals["next"]]).limit(self.size + 1).select("next")

    def rows(self, pairs: PairTable, asked: Sequence[int]) -> NDArray[np.int64]:
        """The kept tokens by id, and behind them the one that stands for the rest."""
        return self._rows(asked, pairs.other)

    def _rows(self, commonest: Sequence[int], other: int) -> NDArray[np.int64]:
        kept = np.sort(np.asarray(commonest[: self.size], np.int64))
        merges = self.rest == "merge" and len(commonest) > self.size
        return np.append(kept, other) if merges else kept

    def relational(self, pairs: PairTable, asked: Sequence[int]) -> ibis.Table:
        """The table that stays."""
        import ibis

        table = pairs.table
        inside = table["next"].isin(list(asked[: self.size]))
        if self.rest == "drop":
            return table.filter(inside)
        other = ibis.literal(pairs.other, "int32")
        merged = table.mutate(next=inside.ifelse(table["next"], other))
        return merged.group_by([*pairs.keys, "next"]).aggregate(count=merged["count"].sum())


def _pooled(pairs: PairArrays) -> PairArrays:
    """Add up pairs that became equal."""
    order = np.lexsort((pairs.token, pairs.context))
    context, token = pairs.context[order], pairs.token[order]
    fresh = np.ones(order.size, np.bool_)
    fresh[1:] = (np.diff(context) != 0) | (np.diff(token) != 0)
    count = np.add.reduceat(pairs.count[order], np.flatnonzero(fresh))
    return replace(pairs, context=context[fresh], token=token[fresh], count=count)


@dataclass(frozen=True)
class SupportByCount(AbstractCut):
    """A token is in a context's support only if it followed at least ``count`` times."""

    count: int

    def __post_init__(self) -> None:
        _at_least("smallest count in a support", self.count)

    def describe(self) -> str:
        """The rule in words."""
        return f"supports of tokens that followed at least {self.count:,} times"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        """The pairs that stay."""
        return pairs.keep(pairs.count >= self.count)

    def relational(self, pairs: PairTable, asked: Sequence[int]) -> ibis.Table:
        """The table that stays."""
        return pairs.table.filter(pairs.table["count"] >= self.count)


@dataclass(frozen=True)
class SupportByMass(AbstractCut):
    """A support is the fewest, commonest tokens that hold a share of at least ``p``; ties go to the smaller id."""

    p: float

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise StatisticsError(f"The share p of top-p must lie in (0, 1]; got {self.p}.")

    @property
    def _share(self) -> float:
        """P less a hair: 55 of 100 hold a share of 0.55, although 0.55 x 100 is rounded up."""
        return self.p * (1 - 1e-12)

    def describe(self) -> str:
        """The rule in words."""
        return f"supports of the commonest tokens that hold a share of {self.p:g}"

    def in_memory(self, pairs: PairArrays) -> PairArrays:
        """The pairs that stay."""
        order = np.lexsort((pairs.token, -pairs.count, pairs.context))
        context, count = pairs.context[order], pairs.count[order]
        totals = pairs.context_totals()
        before = np.cumsum(count) - count - (np.cumsum(totals) - totals)[context]
        stays = np.zeros(order.size, np.bool_)
        stays[order] = before.astype(np.float64) < self._share * totals[context].astype(np.float64)
        return pairs.keep(stays)

    def relational(self, pairs: PairTable, asked: Sequence[int]) -> ibis.Table:
        """The table that stays."""
        import ibis

        table, count = pairs.table, pairs.table["count"]
        whole = ibis.window(group_by=list(pairs.keys))
        sofar = ibis.window(
            group_by=list(pairs.keys), order_by=[count.desc(), table["next"]], preceding=None, following=0
        )
        ranked = table.mutate(
            total=count.sum().over(whole).cast("float64"),
            before=(count.sum().over(sofar) - count).cast("float64"),
        )
        return ranked.filter(ranked.before < self._share * ranked.total).drop("total", "before")


def support_policy(policy: str) -> AbstractCut | None:
    """The cut that a policy names: ``raw`` (none), ``count:TAU`` or ``top-p:P``."""
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


def describe_effects(effects: Sequence[Effect]) -> list[dict[str, Any]]:
    """Effects as plain data, for a manifest."""
    return [{"cut": effect.cut, "before": vars(effect.before), "after": vars(effect.after)} for effect in effects]


def read_effects(data: Sequence[dict[str, Any]]) -> tuple[Effect, ...]:
    """The inverse of `describe_effects`."""
    return tuple(Effect(one["cut"], Totals(**one["before"]), Totals(**one["after"])) for one in data)
