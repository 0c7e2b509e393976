"""`Neighbours` of a token or context, and `SimilarPairs` of all, with cosines and the supports that they share.

``cos(x, y) = <x, y> / (||x|| ||y||)``

where
    x, y   of contexts: columns of H. Of tokens: rows of W less the mean over the tokens that follow some context, as
           everywhere in a comparison; tokens that follow none are not listed

Two contexts share the tokens that may follow both, two tokens the contexts that both may follow. The token that stands
for merged ones may be another one after each context: it is not counted among those that contexts have or share. One
product of a matrix and a vector is made per question; pairs are compared in blocks. There is never a matrix of all
cosines.
"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.ask.item_search import Item, names_of, quoted, shown
from tokengeom.ask.named_vectors import Items, frequency_of, require_same_items, support_sizes
from tokengeom.core.errors import InputError
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import SAME_COSINE, Bool, Float, Int, closest_pairs, seen_tokens
from tokengeom.core.settings import whole_number
from tokengeom.results.contract import data_frame, html_table

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.statistics.next_token import NextTokenStatistics

NO_DIRECTION = 1e-9
"""Vectors shorter than this share of the longest are rounding."""
MERGED = "Merged tokens are not counted: they may be other ones after each context."
SHARED: dict[Items, Items] = {"tokens": "contexts", "contexts": "tokens"}
"""What two items share."""


@dataclass(frozen=True)
class Neighbour:
    """One neighbour of a token or a context.

    ``name``, ``index``
        Its name, and its number among the tokens or contexts.
    ``cosine``
        Cosine of the angle between the two embeddings.
    ``shared``, ``size``
        How many supports (of a token) or next tokens (of a context) the two share, and how many the neighbour has; a
        context that was not counted shares an unknown number, None.
    """

    name: str
    index: int
    cosine: float
    shared: int | None
    size: int


@dataclass(frozen=True, eq=False, repr=False)
class Neighbours:
    """The nearest tokens of a token, or contexts of a context.

    ``item``
        What was asked for.
    ``rows``
        Its neighbours, nearest first; of equal cosines the more frequent one first.
    ``total``
        Number of tokens or contexts that were compared with it.
    ``size``
        Contexts that the token follows, or tokens that follow the context.
    ``notes``
        Sentences about the item, such as why it has no neighbours.
    ``source``
        Which geometry was asked, after a comma.
    ``merged``
        Whether numbers of next tokens leave out one that stands for merged ones.
    """

    item: Item
    rows: tuple[Neighbour, ...]
    total: int
    size: int
    notes: tuple[str, ...] = ()
    source: str = ""
    merged: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The item and its neighbours as plain data."""
        return {
            "item": self.item.name,
            "items": self.item.items,
            "source": self.source,
            "neighbours": [asdict(row) for row in self.rows],
            "total": self.total,
            "support_size": self.size,
            "notes": list(self.notes),
            **self.item.how_seen,
        }

    def to_frame(self) -> DataFrame:
        """Data frame with one row per neighbour, indexed by name: cosine, supports shared, and supports of it."""
        rows = [(row.cosine, row.shared, row.size) for row in self.rows]
        frame = data_frame(rows, columns=["cosine", "shared", "size"], index=[row.name for row in self.rows])
        return frame.rename_axis(self.item.kind)

    @property
    def title(self) -> str:
        """What is listed."""
        source = f", {self.source}" if self.source else ""
        return f"Nearest {self.item.items} to the {self.item.kind} {quoted(self.item.name)}{source}"

    @property
    def caption(self) -> str:
        """What the numbers of the table mean."""
        what, kind, counted = SHARED[self.item.items], self.item.kind, f"{self.total:,} {self.item.items}"
        if self.item.items == "tokens":
            own, other = f"{what} that this token follows ({self.size:,})", "the neighbour follows"
        else:
            own, other = f"{what} that may follow this context ({self.size:,})", "may follow the neighbour"
        merged = f" {MERGED}" if self.merged else ""
        of = f"Of: all {what} of that {kind}.{merged}"
        if self.item.placed is not None:
            return f"Nearest of {counted}. What follows this context is not known, so nothing is shared. {of}"
        return f"Nearest of {counted}. Shared: of the {own}, those that {other} too. {of}"

    def table(self) -> list[tuple[str, str, str, str]]:
        """Name, cosine, supports shared and supports of each neighbour, as text."""
        return [
            (shown(row.name), f"{row.cosine:.3f}", "-" if row.shared is None else f"{row.shared:,}", f"{row.size:,}")
            for row in self.rows
        ]

    def summary(self) -> str:
        """One line per neighbour, after a sentence about the item."""
        lines = [f"{cosine:>6}  {name} (shared {shared} of {size})" for name, cosine, shared, size in self.table()]
        return "\n".join([f"{self.title}:", *lines, self.caption, *self.notes])

    def __repr__(self) -> str:
        nearest = ", ".join(f"{shown(row.name)} {row.cosine:.2f}" for row in self.rows[:3])
        note = f". {self.item.note}" if self.item.note else ""
        return f"Neighbours({self.item.kind} {shown(self.item.name)}: {nearest or 'none'}{note})"

    def _repr_html_(self) -> str:
        columns, sentences = (self.item.kind, "cosine", "shared", "of"), [self.caption, *self.notes]
        return html_table(self.title, self.table(), sentences, columns)


@dataclass(frozen=True)
class Pair:
    """Two tokens or two contexts.

    ``shared``, ``first_size``, ``second_size``
        How many supports or next tokens the two share, and how many each has.
    """

    first: str
    second: str
    cosine: float
    shared: int
    first_size: int
    second_size: int


@dataclass(frozen=True, eq=False, repr=False)
class SimilarPairs:
    """The pairs of tokens or of contexts with the largest cosines, among those with different supports.

    ``rows``
        The pairs, most similar first; of equal cosines first the pair whose rarer item is more frequent.
    ``total``, ``same_support``
        Number of pairs that were compared, and of those that were left out because their supports are the same.
    ``source``, ``merged``
        As in `Neighbours`.
    """

    items: Items
    rows: tuple[Pair, ...]
    total: int
    same_support: int
    source: str = ""
    merged: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The pairs as plain data."""
        return {name: value for name, value in asdict(self).items() if name != "merged"}

    def to_frame(self) -> DataFrame:
        """Data frame with one row per pair."""
        return data_frame([asdict(row) for row in self.rows])

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of the table."""
        return f"{self.items[:-1]}", f"and {self.items[:-1]}", "cosine", "shared", "of", "and of"

    @property
    def title(self) -> str:
        """What is listed."""
        return f"Most similar {self.items} with different supports" + (f", {self.source}" if self.source else "")

    @property
    def caption(self) -> str:
        """What was compared, and what the numbers mean."""
        what = "tokens that may follow both" if self.items == "contexts" else "contexts that both may follow"
        same, pairs = self.same_support, ("pair", "is") if self.same_support == 1 else ("pairs", "are")
        left_out = f"; {same:,} {pairs[0]} with the same support {pairs[1]} left out" if same else ""
        merged = f" {MERGED}" if self.merged else ""
        of = f"Of, and of: those of the first and of the second.{merged}"
        return f"Of {self.total:,} pairs{left_out}. Shared: {what}. {of}"

    def table(self) -> list[tuple[str, ...]]:
        """Names, cosine, and supports, as text."""
        return [
            (shown(row.first), shown(row.second), f"{row.cosine:.3f}", *map(str, astuple(row)[3:])) for row in self.rows
        ]

    def summary(self) -> str:
        """One line per pair."""
        lines = [f"{row[2]:>6}  {row[0]} | {row[1]} (shared {row[3]} of {row[4]} and {row[5]})" for row in self.table()]
        return "\n".join([f"{self.title}:", *lines, self.caption])

    __repr__ = summary

    def _repr_html_(self) -> str:
        return html_table(self.title, self.table(), [self.caption], self.columns)


class EmbeddedItems:
    """The tokens and contexts of statistics with their embeddings: cosines, and the nearest ones."""

    def __init__(self, given: HasFactors | tuple[object, object], stats: NextTokenStatistics) -> None:
        self.factors, self.stats = Factors.of(given), stats
        self._directions = getattr(given, "directions", None)
        require_same_items(given, self.factors, stats)
        self._vectors: dict[Items, tuple[Float, Float]] = {}

    def vectors(self, items: Items) -> Float:
        """One row per token, with the mean removed, or per context."""
        return self._with_norms(items)[0]

    def norms(self, items: Items) -> Float:
        """Lengths of the vectors; 0 for an item without a direction."""
        return self._with_norms(items)[1]

    def _with_norms(self, items: Items) -> tuple[Float, Float]:
        if items not in self._vectors:
            if self._directions is not None:
                rows = self._directions(items, seen_tokens(self.stats.P))
            else:
                rows = self.factors.H.T if items == "contexts" else self.factors.W - self.mean
            norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            floor = NO_DIRECTION * float(norms.max(initial=0.0))
            self._vectors[items] = np.asarray(rows), np.where(norms > floor, norms, 0.0)
        return self._vectors[items]

    @property
    def mean(self) -> Float:
        """Mean of the tokens that follow some context, d."""
        return np.asarray(self.factors.W[seen_tokens(self.stats.P)].mean(axis=0))

    def cosines(self, items: Items, index: int) -> Float:
        """Cosines of one item with all; 0 where one of the two has no direction."""
        rows, norms = self._with_norms(items)
        size = norms * norms[index]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.clip(np.where(size > 0, (rows @ rows[index]) / size, 0.0), -1.0, 1.0)

    def nearest(self, item: Item, k: int = 10, *, other_supports: bool = False) -> Neighbours:
        """The k nearest items of the same kind; with ``other_supports``, those with the same supports are left out."""
        number = checked_number(k)
        shared, sizes = overlaps(self.stats, item)
        listed = self.norms(item.items) > 0
        listed &= sizes > 0
        listed[item.index] = False
        total = int(listed.sum())
        if other_supports:
            listed &= ~same_support(shared, sizes, item.index)
        notes = self._notes(item, int(sizes[item.index]))
        merged = has_merged(self.stats, item.items)
        shared, sizes = shared - (merged & merged[item.index]), sizes - merged
        own, some_merged = int(sizes[item.index]), bool(merged.any())
        if not self.norms(item.items)[item.index] > 0:
            return Neighbours(item, (), total, own, notes, merged=some_merged)
        cosine = self.cosines(item.items, item.index)
        order = _best(cosine, listed, frequency_of(self.stats, item.items), number)
        names = names_of(self.stats, item.items)
        rows = (Neighbour(names[i], int(i), float(cosine[i]), int(shared[i]), int(sizes[i])) for i in order)
        return Neighbours(item, tuple(rows), total, own, notes, merged=some_merged)

    def pairs(self, items: Items, k: int = 10) -> SimilarPairs:
        """The k pairs with the largest cosines, among those with different supports."""
        if whole_number("k", k) < 1:
            raise InputError(f"The number of pairs k must be at least 1; got {k}.")
        # Training imports this module, and needs no scipy.
        from tokengeom.statistics.supports import group_supports

        rows, norms = self._with_norms(items)
        sizes = support_sizes(self.stats, items)
        listed = np.flatnonzero((norms > 0) & (sizes > 0))
        if listed.size < 2:
            return SimilarPairs(items, (), 0, 0)
        S = (self.stats.S if items == "contexts" else self.stats.S.T).tocsc()[:, listed]
        S.sort_indices()
        groups = group_supports(S)
        unit, frequency = rows[listed] / norms[listed, None], frequency_of(self.stats, items)[listed]
        cosines, closest = closest_pairs(unit, groups.label, frequency, k)
        names, chosen = names_of(self.stats, items), listed[closest]
        merged = has_merged(self.stats, items)
        sizes = sizes - merged
        own = [[members(self.stats, Item(items, int(index), "")) for index in pair] for pair in chosen]
        found_pairs = (
            Pair(
                names[a],
                names[b],
                float(cosine),
                int(np.intersect1d(both[0], both[1]).size - (merged[a] & merged[b])),
                int(sizes[a]),
                int(sizes[b]),
            )
            for (a, b), both, cosine in zip(chosen, own, cosines, strict=True)
        )
        same = int((groups.multiplicity * (groups.multiplicity - 1) // 2).sum())
        total = listed.size * (listed.size - 1) // 2 - same
        return SimilarPairs(items, tuple(found_pairs), total, same, merged=bool(merged.any()))

    def _notes(self, item: Item, size: int) -> tuple[str, ...]:
        notes = [item.note] if item.note else []
        if item.items == "tokens" and size == 0:
            notes.append("This token follows no context of the statistics: nothing in them tells it from others.")
        if not self.norms(item.items)[item.index] > 0:
            full = item.items == "contexts" and size == self.stats.V
            why = "every token may follow it" if full else "its vector is 0"
            notes.append(f"This {item.kind} has no direction, because {why}: it has no nearest {item.items}.")
        return tuple(notes)


def checked_number(k: int) -> int:
    """A number of neighbours."""
    number = whole_number("k", k)
    if number < 1:
        raise InputError(f"The number of neighbours k must be at least 1; got {number}.")
    return number


def _best(cosine: Float, listed: Bool, frequency: Float, k: int) -> Int:
    """Indices of the k largest cosines among those listed; of equal ones the more frequent, then the first."""
    some = np.flatnonzero(listed)
    value = np.round(cosine[some], SAME_COSINE)
    if some.size > k:
        least = np.partition(value, some.size - k)[some.size - k]
        some, value = some[value >= least], value[value >= least]
    return np.asarray(some[np.lexsort((some, -frequency[some], -value))][:k])


def members(stats: NextTokenStatistics, item: Item) -> Int:
    """Contexts that a token follows, or tokens that follow a context, in order."""
    P = stats.P
    if item.items == "contexts":
        return np.sort(P.indices[P.indptr[item.index] : P.indptr[item.index + 1]]).astype(np.int64)
    places = np.flatnonzero(P.indices == item.index)
    return np.searchsorted(P.indptr, places, side="right").astype(np.int64) - 1


def has_merged(stats: NextTokenStatistics, items: Items) -> Bool:
    """Which contexts the token that stands for merged ones follows; of tokens, none."""
    has = np.zeros(stats.m if items == "contexts" else stats.V, np.bool_)
    if items == "contexts" and stats.other is not None:
        has[members(stats, Item("tokens", stats.other, ""))] = True
    return has


def overlaps(stats: NextTokenStatistics, item: Item) -> tuple[Int, Int]:
    """Number of supports that each item of the same kind shares with one, and number of its own supports."""
    P = stats.P
    inside = np.zeros(stats.V if item.items == "contexts" else stats.m, np.bool_)
    inside[members(stats, item)] = True
    if item.items == "contexts":
        shared = np.add.reduceat(inside[P.indices].astype(np.int64), P.indptr[:-1])
    else:
        shared = np.bincount(P.indices[np.repeat(inside, np.diff(P.indptr))], minlength=stats.V).astype(np.int64)
    return shared, support_sizes(stats, item.items)


def same_support(shared: Int, sizes: Int, index: int) -> Bool:
    """Which items have exactly the supports of one, itself among them."""
    return np.asarray((shared == sizes[index]) & (sizes == sizes[index]))
