"""How far tokens and contexts move from the geometry of one text to that of another, and beyond what chance moves them.

How far an item (a token or a context) moved is a number that no rotation changes:

``moved_i = 1 - corr_j(x_ij, y_ij)``,   j over the other items

where ``x_ij`` and ``y_ij`` are the cosines of items i and j in the geometries of the first and of the second text. 0
means that all others lie around the item in the same arrangement, 1 that the two arrangements have nothing in common.
Contexts of the same support in both texts are not paired: their cosine is the same in both. Where the cosines of an
item do not vary, they have no correlation: the number is 0 where they are equal in both texts, and 1 otherwise.

An item that was seen rarely moves far by chance alone. With both texts split into halves ``A, A'`` and ``B, B'``
(`tokengeom.comparison.text_halves`),

``beyond_i = min(moved_i(A, B), moved_i(A, B'), moved_i(A', B), moved_i(A', B')) - max(moved_i(A, A'), moved_i(B, B'))``

is positive for an item that lies elsewhere in every half of the other text than in both halves of its own. It is known
for items with `FEWEST_WINDOWS` windows in every half: with one or two, both halves are often equal by chance. In two
samples of one text it is positive by chance alone: for 1 item in 15 if the six numbers are independent and alike, and
measured for 2 to 4% (Moby Dick, windows drawn at random) and 3 to 6% (synthetic languages).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy import sparse

from tokengeom.ask.named_vectors import Items, item_names
from tokengeom.comparison.similarity import NO_VARIATION
from tokengeom.core.numerics import Float, Int, unit_columns
from tokengeom.results.convert import Added, Number, Skipped, Vector, Within
from tokengeom.statistics.next_token import NextTokenStatistics

LARGEST = 2.0
"""Largest number that an item can have: 1 less the smallest correlation."""
BLOCK_ENTRIES = 2_000_000
"""Cosines held at once (16 MB per array)."""
DIGITS = 6
"""Digits to which numbers are rounded before they are ordered: ties are then decided by names, on every machine."""
FEWEST_WINDOWS = 5
"""Windows that an item must have in every half of the texts, for a number beyond chance."""
LISTED = 8
"""Followers that are listed by name."""
Count = Annotated[int, Within(0)]
Cosine = Annotated[float, Within(-1.0, 1.0)]


@dataclass(frozen=True)
class Neighbour:
    """A neighbour of an item: its name, and the cosine with the item in each text."""

    name: str
    first: Cosine
    second: Cosine


@dataclass(frozen=True)
class Follower:
    """A token that follows a context, or a context that a token follows, in one text alone; how often it does there."""

    name: str
    count: Annotated[int, Within(1)]


@dataclass(frozen=True)
class MovedItem:
    """A token or a context that moved, with the reason in the supports.

    ``alike``
        Number of other contexts with the same supports in both texts, which are not listed.
    ``gained``, ``lost``
        Neighbours in the second text that are none in the first, and the other way round; nearest first.
    ``only_first``, ``only_second``
        For a context, tokens that follow it in one text alone; for a token, contexts that it follows in one text alone.
        Most frequent first, the first few of ``in_first`` and ``in_second``.
    ``in_both``, ``in_first``, ``in_second``
        How many there are in both texts, in the first alone and in the second alone.
    ``beyond``
        How far it moved beyond chance; NaN where the texts were not split.
    """

    name: str
    moved: Annotated[float, Within(0.0, LARGEST)]
    alike: Count
    gained: tuple[Neighbour, ...]
    lost: tuple[Neighbour, ...]
    only_first: tuple[Follower, ...]
    only_second: tuple[Follower, ...]
    in_both: Count
    in_first: Count
    in_second: Count
    beyond: Annotated[Number, Added(None)] = float("nan")

    def cells(self) -> tuple[str, ...]:
        """Numbers, neighbours and supports as a table shows them."""
        beyond = "" if np.isnan(self.beyond) else f"{self.beyond:.3f}"
        cells = [f"{self.moved:.3f}", beyond, *(", ".join(map(quoted, some)) for some in (self.gained, self.lost))]
        for listed, count in ((self.only_first, self.in_first), (self.only_second, self.in_second)):
            more = [f"{count - len(listed):,} more"] if count > len(listed) else []
            cells.append(", ".join([*(f"{quoted(follower)} ({follower.count:,})" for follower in listed), *more]))
        return tuple(cells)

    @property
    def label(self) -> str:
        """Its name, and how many have the same supports."""
        return f"{quoted(self)}{f' and {self.alike:,} with the same supports' if self.alike else ''}"

    def sentence(self, items: Items, *, in_limit: bool) -> str:
        """Name, numbers and neighbours, then the reason in the supports."""
        _, beyond, gained, lost, first, second = self.cells()
        near = [f"{verb} {names}" for verb, names in (("gained", gained), ("lost", lost)) if names]
        far = f"{self.moved:.3f}{f' ({beyond} beyond chance)' if beyond else ''}"
        text = f"{self.label} moved by {far}: {'; '.join(near) or 'the same neighbours'}."
        verb, alone = "followed by" if items == "contexts" else "follows", (("first", first), ("second", second))
        reasons = "; ".join(f"in the {place} text alone {verb} {names}" for place, names in alone if names)
        if reasons:
            return f"{text} {reasons[:1].upper()}{reasons[1:]}."
        alike = "The same tokens follow it" if items == "contexts" else "It follows the same contexts"
        differs = "the supports of others" if in_limit else "how often, or the supports of others"
        return f"{text} {alike} in both texts; what differs: {differs}."


def quoted(item: Neighbour | Follower | MovedItem) -> str:
    """The name of an item in quotation marks: names may end in a full stop, or hold commas."""
    return f"\u201c{item.name}\u201d"


@dataclass(frozen=True, eq=False)
class Movement:
    """How far every shared token, or every shared context, moved.

    ``names``, ``moved``
        All of them in the order of their names, and their numbers.
    ``listed``
        Those that moved most beyond chance, with neighbours and reasons, largest first, or simply most where the texts
        were not split; of contexts with the same supports one.
    ``beyond``
        How far each of them moved beyond chance, NaN for those with fewer than `FEWEST_WINDOWS` windows in a half;
        empty where the texts were not split.
    """

    names: tuple[str, ...]
    moved: Annotated[Vector, Within(0.0, LARGEST)]
    listed: tuple[MovedItem, ...]
    items: Annotated[Items, Skipped] = "contexts"
    beyond: Annotated[tuple[Number, ...], Added(())] = ()

    def __post_init__(self) -> None:
        if len(self.names) != len(self.moved) or len(self.beyond) not in (0, len(self.names)):
            raise ValueError(f"{self.items} must have one number per name")
        if not {item.name for item in self.listed} <= set(self.names):
            raise ValueError(f"{self.items} are listed that the texts do not share")

    @property
    def ranked_by(self) -> Float:
        """The numbers whose largest are listed: those beyond chance, or else all of them."""
        return np.asarray(self.beyond) if self.beyond else self.moved

    @property
    def seen_enough(self) -> int:
        """How many have enough windows in every half for a number beyond chance."""
        return int(np.isfinite(self.beyond).sum())

    @property
    def beyond_chance(self) -> int:
        """How many moved beyond chance."""
        return sum(number > 0 for number in self.beyond)


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
        moved[part] = _one_less_correlation(x, y, apart.astype(np.float64))
    return moved


def _one_less_correlation(x: Float, y: Float, apart: Float) -> Float:
    """1 less the correlation of each row of x and y (b x n) where ``apart`` is 1; exactly 0 for equal rows."""
    pairs = np.maximum(apart.sum(axis=1), 1.0)
    equal = ((x == y) | (apart == 0)).all(axis=1)
    x, y = (apart * (row - ((apart * row).sum(axis=1) / pairs)[:, None]) for row in (x, y))
    xx, yy, xy = ((a * b).sum(axis=1) / pairs for a, b in ((x, x), (y, y), (x, y)))
    varies = np.minimum(xx, yy) > NO_VARIATION
    correlation = np.where(varies, xy / np.sqrt(np.where(varies, xx * yy, 1.0)), 0.0)
    return np.where(equal, 0.0, 1.0 - np.clip(correlation, -1.0, 1.0))


def movement_of(
    items: Items,
    pair: tuple[Float, Float],
    units: Int,
    shared: Sequence[NextTokenStatistics],
    beyond: Float | None,
    *,
    top: int,
    neighbours: int,
) -> Movement:
    """How far all tokens, or all contexts, moved between two geometries, and some of them with their reasons.

    ``pair``
        The geometries of both texts, d x n and e x n with one item per column.
    ``beyond``
        How far each item moved beyond chance, n; None where the texts were not split.
    ``top``, ``neighbours``
        How many items to list, and how many neighbours of each to compare.
    """
    names, moved = item_names(shared[0], items), moved_numbers(*pair, units)
    chosen = _largest(moved if beyond is None else beyond, units)[:top]
    if beyond is not None:
        chosen = chosen[beyond[chosen] > 0]
    alike = np.bincount(units)[units] - 1
    counts = [sparse.csr_array(text.counts) if items == "tokens" else text.counts for text in shared]
    others = item_names(shared[0], "contexts" if items == "tokens" else "tokens")
    near = _neighbours(pair, chosen, names, neighbours)
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
