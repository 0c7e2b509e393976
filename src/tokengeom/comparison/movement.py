"""How far tokens and contexts move from the geometry of one text to that of another, and beyond what chance moves them.

**Movement.** How far an item (a token or a context) moved is a number that no rotation changes:

``moved_i = 1 - corr_j(x_ij, y_ij)``,   j over the other items

where ``x_ij`` and ``y_ij`` are the cosines of items i and j in the geometries of the first and of the second text. 0
means that all others lie around the item in the same arrangement, 1 that the two arrangements have nothing in common.
Contexts of the same support in both texts are not paired: their cosine is the same in both. Where the cosines of an
item do not vary, they have no correlation: the number is 0 where they are equal in both texts, and 1 otherwise.

**Halves.** Both texts are split at random into halves of equal size (`tokengeom.statistics.shared.shared_halves`), as
the reference of both numbers: how alike two samples of one text would be. With the geometry of each half

``rho_1, rho_2``  agreement between the two halves of the first text, and of the second
``r``             mean agreement between a half of the first text and a half of the second
``corrected``     ``r / sqrt(rho_1 rho_2)``: agreement without the noise of the sample [spearman1904]. 1 is expected of
                  two samples of one text, and less of two different ones

In an `Agreement` these are ``reproducible`` (rho_1), ``reliability`` (rho_2), ``mean`` (r) and ``corrected``: the
second text is the explanation of the first, random itself. Its value, interval and floors are those of the whole texts.

Windows are split one by one, so 1 means that the texts differ no more than windows drawn at random do. Above 1 it is by
chance, or because the texts have passages in common, whose windows are not drawn independently. A text has with itself
1: then only halves without common windows are compared. Halves of different sizes would not do: predictions from more
windows have less noise and larger supports. With 20,000 and 2,000 windows of one synthetic language (200 contexts) the
corrected agreement of tokens is .99 for halves of equal size and .91 without (mean of 20).

An item that was seen rarely moves far by chance alone. With halves ``A, A'`` and ``B, B'``

``beyond_i = min(moved_i(A, B), moved_i(A, B'), moved_i(A', B), moved_i(A', B')) - max(moved_i(A, A'), moved_i(B, B'))``

is positive for an item that lies elsewhere in every half of the other text than in both halves of its own. It is known
for items with `FEWEST_WINDOWS` windows in every half: with one or two, both halves are often equal by chance. In two
samples of one text it is positive by chance alone: for 1 item in 15 if the six numbers are independent and alike, and
measured for 2 to 4% (a novel, windows drawn at random) and 3 to 6% (synthetic languages).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy import sparse

from tokengeom.ask.named_vectors import Items, item_names
from tokengeom.comparison.agreement import Agreement, Better, ItemKind, Name, about, assess
from tokengeom.comparison.similarity import directed_in_all, row_correlations
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.comparison.text_comparison import FEWEST_WINDOWS, Follower, Halves, MovedItem, Movement, Neighbour
from tokengeom.core.numerics import Float, Int, unit_columns
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.shared import same_support_units

BLOCK_ENTRIES = 2_000_000
"""Cosines held at once (16 MB per array)."""
DIGITS = 6
"""Digits to which numbers are rounded before they are ordered: ties are then decided by names, on every machine."""
LISTED = 8
"""Followers that are listed by name."""
SAME_TEXT = ((0, 1), (2, 3))
"""Places of the halves of the same text."""
ACROSS = ((0, 2), (0, 3), (1, 2), (1, 3))
"""Places of halves of different texts."""
ACROSS_EQUAL = ((0, 3), (1, 2))
"""The same where both texts are equal, and so are their halves: those without common windows."""
FROM_HALVES = (
    *("mean", "reliability", "reproducible", "reproducible_low", "reproducible_high"),
    *("corrected", "corrected_low", "corrected_high"),
)
"""Fields of an `Agreement` that the halves give."""
Sides = Mapping[str, Float]
"""Geometries of one text: "contexts" and "tokens" -> vectors with one item per column."""


@dataclass(frozen=True, eq=False)
class HalfNumbers(SimilarityNumbers):
    """The agreement between halves of different texts, and what is known `about` it from halves of the same text.

    The four halves are its runs: two of the first text, then two of the second.

    where
        across   places of the halves of different texts whose agreements are averaged
    """

    across: Sequence[tuple[int, int]] = ACROSS

    @staticmethod
    def of_halves(
        items: ItemKind, halves: Sequence[Float], across: Sequence[tuple[int, int]] = ACROSS, groups: Int | None = None
    ) -> HalfNumbers:
        """From four geometries, d x n each; of many items some are drawn. ``groups`` (n) are the units of the items."""
        each = SimilarityNumbers.of(items, halves, {}, groups)
        return HalfNumbers(items, each.runs, {}, each.dim, each.groups, across=across)

    @property
    def name(self) -> Name:
        """Name of the number."""
        return "", self.number("agreement")

    @property
    def better(self) -> Mapping[Name, Better]:
        return {self.name: "higher"}

    def resampled(self, draws: Float) -> Mapping[Name, Float]:
        """Mean agreement across texts, agreement within each, and their ratio, on each selection of items."""
        r = dict(zip(combinations(range(4), 2), self.correlations(draws).between, strict=True))
        first, second = (r[pair] for pair in SAME_TEXT)
        mean = np.mean([r[pair] for pair in self.across], axis=0)
        known = np.minimum(first, second) > 0
        corrected = np.where(known, mean / np.sqrt(np.where(known, first * second, 1.0)), np.nan)
        return {
            self.name: mean,
            about(self.name, "mean"): mean,
            about(self.name, "reproducible"): first,
            about(self.name, "reliability"): second,
            about(self.name, "corrected"): corrected,
        }


@dataclass(frozen=True, eq=False)
class PredictedHalves:
    """Statistics and geometries of four halves, two of each text, which have the same tokens and contexts."""

    stats: Sequence[NextTokenStatistics]
    sides: Sequence[Sides]

    @property
    def size(self) -> Halves:
        """What they have in common."""
        return Halves(min(half.n for half in self.stats), self.stats[0].V, self.stats[0].m)

    @property
    def across(self) -> Sequence[tuple[int, int]]:
        """Places of halves of different texts, without common windows."""
        return ACROSS_EQUAL if self.stats[0].hash == self.stats[2].hash else ACROSS

    def _units(self, items: ItemKind) -> Int:
        return same_support_units(self.stats) if items == "contexts" else np.arange(self.stats[0].V, dtype=np.int64)

    def corrected(self, whole: Agreement, items: ItemKind, seed: int) -> Agreement:
        """The agreement of the whole texts with what the halves say about it, over items with a direction in each."""
        halves = [side[items] for side in self.sides]
        kept = directed_in_all(halves)
        groups = self._units(items)[kept] if items == "contexts" else None
        numbers = HalfNumbers.of_halves(items, [half[:, kept] for half in halves], self.across, groups)
        known = assess(numbers, 0, seed).agreements()[numbers.name]
        return replace(whole, **{name: getattr(known, name) for name in FROM_HALVES})

    def beyond_chance(self, items: Items, names: Sequence[str]) -> Float:
        """How far each of the named items moved beyond chance; NaN for those that were seen too rarely to tell."""
        halves, units = [side[items] for side in self.sides], self._units(items)
        across, within = (
            [moved_numbers(halves[a], halves[b], units) for a, b in pairs] for pairs in (self.across, SAME_TEXT)
        )
        axis = 0 if items == "contexts" else 1
        windows = np.min([np.asarray(half.counts.sum(axis=axis)).ravel() for half in self.stats], axis=0)
        beyond = np.where(windows >= FEWEST_WINDOWS, np.min(across, axis=0) - np.max(within, axis=0), np.nan)
        known = dict(zip(item_names(self.stats[0], items), beyond.tolist(), strict=True))
        return np.array([known.get(name, np.nan) for name in names])


def moved_numbers(first: Float, second: Float, units: Int) -> Float:
    """How far each of n items moved, n, from two geometries d x n and e x n with one item per column.

    ``units`` (n) numbers what is not paired: items of the same unit.
    """
    X, Y, n = unit_columns(first), unit_columns(second), units.size
    moved, step = np.zeros(n), max(1, BLOCK_ENTRIES // max(n, 1))
    for begin in range(0, n, step):
        part = slice(begin, min(begin + step, n))
        apart = units[part, None] != units[None, :]
        x, y = X[:, part].T @ X, Y[:, part].T @ Y
        equal = ((x == y) | ~apart).all(axis=1)
        moved[part] = np.where(equal, 0.0, 1.0 - np.nan_to_num(row_correlations(x, y, apart)))
    return moved


def movement_of(
    items: Items,
    sides: Sequence[Sides],
    units: Int,
    shared: Sequence[NextTokenStatistics],
    halves: PredictedHalves | None,
    top: int,
    neighbours: int,
) -> Movement:
    """How far all tokens, or all contexts, moved between two texts, and the ``top`` of them with their reasons."""
    names, pair = item_names(shared[0], items), (sides[0][items], sides[1][items])
    beyond, moved = None if halves is None else halves.beyond_chance(items, names), moved_numbers(*pair, units)
    chosen = _largest(moved if beyond is None else beyond, units)[:top]
    if beyond is not None:
        chosen = chosen[beyond[chosen] > 0]
    near = _neighbours(pair, chosen, names, neighbours)
    alike = np.bincount(units)[units] - 1
    counts = [sparse.csr_array(text.counts) if items == "tokens" else text.counts for text in shared]
    others = item_names(shared[0], "contexts" if items == "tokens" else "tokens")
    listed = []
    for k, i in enumerate(chosen):
        gained, lost = near[k]
        supports = _followers(counts, int(i))
        only = [_only(supports[here], supports[1 - here], others) for here in (0, 1)]
        listed.append(
            MovedItem(
                name=names[i],
                moved=float(moved[i]),
                alike=int(alike[i]),
                gained=gained,
                lost=lost,
                only_first=only[0][:LISTED],
                only_second=only[1][:LISTED],
                in_both=len(supports[0].keys() & supports[1].keys()),
                in_first=len(only[0]),
                in_second=len(only[1]),
                beyond=float("nan") if beyond is None else float(beyond[i]),
            )
        )
    return Movement(names, moved, tuple(listed), items, () if beyond is None else tuple(beyond.tolist()))


def _largest(numbers: Float, units: Int) -> Int:
    """Items in the order of their numbers, largest first and NaN last; of each unit one."""
    order = np.argsort(-np.round(numbers, DIGITS), kind="stable")
    # The other contexts of a unit have the same supports in both texts.
    return order[np.sort(np.unique(units[order], return_index=True)[1])]


def _neighbours(
    pair: tuple[Float, Float], chosen: Int, names: Sequence[str], count: int
) -> list[tuple[tuple[Neighbour, ...], tuple[Neighbour, ...]]]:
    """Neighbours that each of the chosen items gained and lost; equal cosines are neighbours together."""
    units = [unit_columns(vectors) for vectors in pair]
    cosines = [np.round(np.clip(unit[:, chosen].T @ unit, -1.0, 1.0), DIGITS) + 0.0 for unit in units]
    neighbours = []
    for k, i in enumerate(chosen):
        rows = [np.where(np.arange(len(names)) == i, -2.0, cosine[k]) for cosine in cosines]
        nearest = [np.argsort(-row, kind="stable")[:count] for row in rows]
        # An item as near as the last of the nearest is a neighbour too, listed or not.
        near = [(row >= row[best[-1]]) & (row > 0) for row, best in zip(rows, nearest, strict=True)]
        changed = [[j for j in nearest[here] if near[here][j] and not near[1 - here][j]] for here in (1, 0)]
        gained, lost = (
            tuple(Neighbour(names[j], float(cosines[0][k, j]), float(cosines[1][k, j])) for j in some)
            for some in changed
        )
        neighbours.append((gained, lost))
    return neighbours


def _followers(counts: Sequence[sparse.sparray], i: int) -> list[dict[int, int]]:
    """Support of item i in each text, with counts; ``counts`` are compressed along the items."""
    parts = [(table, slice(table.indptr[i], table.indptr[i + 1])) for table in counts]
    return [dict(zip(table.indices[p].tolist(), table.data[p].tolist(), strict=True)) for table, p in parts]


def _only(here: dict[int, int], there: dict[int, int], names: Sequence[str]) -> tuple[Follower, ...]:
    """What is in one support and not in another, most frequent first."""
    followers = [Follower(names[z], count) for z, count in here.items() if z not in there]
    return tuple(sorted(followers, key=lambda follower: (-follower.count, follower.name)))
