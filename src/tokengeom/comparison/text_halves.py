"""Halves of two texts, as the reference of their agreement: how alike two samples of one text would be.

Both texts are split at random into halves of equal size (`tokengeom.statistics.shared.shared_halves`), the geometry of
each half is predicted, and for tokens and for contexts

``rho_1, rho_2``  agreement between the two halves of the first text, and of the second
``r``             mean agreement between a half of the first text and a half of the second
``corrected``     ``r / sqrt(rho_1 rho_2)``: agreement without the noise of the sample [spearman1904]. 1 is expected of
                  two samples of one text, and less of two different ones

Windows are split one by one, so 1 means that the texts differ no more than windows drawn at random do. Above 1 it is by
chance, or because the texts have passages in common, whose windows are not drawn independently. A text has with itself
1: then only halves without common windows are compared. Halves of different sizes would not do: predictions from more
windows have less noise and larger supports. With 20,000 and 2,000 windows of one synthetic language (200 contexts) the
corrected agreement of tokens is .99 for halves of equal size and .91 without (mean of 20).

In an `Agreement` these are ``reproducible`` (rho_1), ``reliability`` (rho_2), ``mean`` (r) and ``corrected``: the
second text is the explanation of the first, random itself. Its value, interval and floors are those of the whole texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Annotated

import numpy as np

from tokengeom.ask.named_vectors import Items, item_names
from tokengeom.comparison.agreement import AbstractNumbers, Agreement, Better, ItemKind, Name, about, assess
from tokengeom.comparison.movement import FEWEST_WINDOWS, moved_numbers
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.core.numerics import Float, Int
from tokengeom.results.convert import Within
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.shared import same_support_units

Pairs = tuple[tuple[int, int], ...]
SAME_TEXT: Pairs = ((0, 1), (2, 3))
"""Places of the halves of the same text."""
ACROSS: Pairs = ((0, 2), (0, 3), (1, 2), (1, 3))
"""Places of halves of different texts."""
ACROSS_EQUAL: Pairs = ((0, 3), (1, 2))
"""The same where both texts are equal, and so are their halves: those without common windows."""

FROM_HALVES = (
    *("mean", "reliability", "reproducible", "reproducible_low", "reproducible_high"),
    *("corrected", "corrected_low", "corrected_high"),
)
"""Fields of an `Agreement` that the halves give."""


@dataclass(frozen=True, eq=False)
class HalfNumbers(AbstractNumbers):
    """The agreement between halves of different texts, and what is known `about` it from halves of the same text.

    where
        items    "contexts" or "tokens"
        halves   the four geometries, d x n each: two halves of the first text, then two of the second
        across   places of the halves of different texts whose agreements are averaged
        given    unit of each item, n; None where each item is its own
    """

    items: ItemKind
    halves: Sequence[Float]
    across: Pairs = ACROSS
    given: Int | None = None

    @cached_property
    def _similarities(self) -> list[SimilarityNumbers]:
        """Numbers of each half with all that come after it; of many items all use the same ones."""
        return [
            SimilarityNumbers.of(
                self.items, self.halves[a], {str(b): self.halves[b] for b in range(a + 1, 4)}, self.given
            )
            for a in range(3)
        ]

    @property
    def size(self) -> int:
        """Number of items."""
        return self._similarities[0].size

    @property
    def units(self) -> Int:
        """Unit of each item."""
        return self._similarities[0].units

    @property
    def name(self) -> Name:
        """Name of the number."""
        return "", self._similarities[0].number("agreement")

    @property
    def better(self) -> Mapping[Name, Better]:
        """Higher: 1 is best."""
        return {self.name: "higher"}

    def resampled(self, draws: Float) -> Mapping[Name, Float]:
        """Mean agreement across texts, agreement within each, and their ratio, on each selection of items."""
        number = self.name[1]
        each = [numbers.resampled(draws) for numbers in self._similarities]
        r = {(a, b): each[a][str(b), number] for a, b in combinations(range(4), 2)}
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

    def permuted(self, orders: Int) -> Mapping[Name, Float]:
        """Nothing: the floors are those of the whole texts."""
        return {}


@dataclass(frozen=True)
class Halves:
    """What the halves of two texts have: windows in the smallest of the four, and the tokens and contexts of all."""

    windows: Annotated[int, Within(1)]
    tokens: Annotated[int, Within(1)]
    contexts: Annotated[int, Within(1)]


@dataclass(frozen=True, eq=False)
class PredictedHalves:
    """The geometries of four halves, two of each text.

    ``stats``
        Their statistics, which have the same tokens and contexts.
    ``sides``
        "contexts" and "tokens" -> geometry with one item per column, for each half.
    """

    stats: Sequence[NextTokenStatistics]
    sides: Sequence[Mapping[str, Float]]

    @property
    def size(self) -> Halves:
        """What they have in common."""
        return Halves(min(half.n for half in self.stats), self.stats[0].V, self.stats[0].m)

    @property
    def across(self) -> Pairs:
        """Places of halves of different texts, without common windows."""
        return ACROSS_EQUAL if self.stats[0].hash == self.stats[2].hash else ACROSS

    def _units(self, items: ItemKind) -> Int:
        return same_support_units(self.stats) if items == "contexts" else np.arange(self.stats[0].V, dtype=np.int64)

    def corrected(self, whole: Agreement, items: ItemKind, seed: int) -> Agreement:
        """The agreement of the whole texts with what the halves say about it, over items with a direction in each."""
        halves = [side[items] for side in self.sides]
        kept = np.flatnonzero(np.logical_and.reduce([half.any(axis=0) for half in halves]))
        groups = self._units(items)[kept] if items == "contexts" else None
        numbers = HalfNumbers(items, [half[:, kept] for half in halves], self.across, groups)
        known = assess(numbers, permutations=0, seed=seed).agreements()[numbers.name]
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
