"""How well each of several explanations fits a run's cosines and Gram matrix, all on the same items and draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.geometry.agreement import AbstractNumbers, Better
from tokengeom.geometry.resampling import PairAgreement
from tokengeom.geometry.similarity import with_direction
from tokengeom.numerics import cosines, unit_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokengeom.numerics import Float, Int

KINDS = ("similarity", "cka")
FEWEST_ITEMS = 3
"""Two items have a single off-diagonal cosine, and any two such matrices correlate perfectly."""


@dataclass(frozen=True, eq=False)
class RivalNumbers(AbstractNumbers):
    """Numbers ``{rival} similarity`` (SIM of cosines) and ``{rival} cka`` (of Gram matrices), as ``L_mm similarity``.

    where
        items     what is drawn: "contexts", "tokens" or "held-out contexts"
        run       d x n, the run's items as columns
        targets   rival -> r x n, the same items according to this explanation

    All rivals are evaluated on the same items, and none is left out: an item without a direction (a column of 0) has
    cosine 0 with all others and 1 with itself. In CKA it is at the origin.
    """

    items: str
    run: Float
    targets: Mapping[str, Float]

    @property
    def size(self) -> int:
        """Number of items to draw from."""
        return int(self.run.shape[1])

    @property
    def better(self) -> Mapping[str, Better]:
        """Higher for all of them: 1 is best."""
        return {f"{name} {kind}": "higher" for name in self.targets for kind in KINDS}

    def without_direction(self, name: str) -> Int:
        """Items without a direction in a rival."""
        return np.flatnonzero(~with_direction(unit_columns(self.targets[name])))

    def resampled(self, draws: Float) -> Mapping[str, Float]:
        """Each number in each resample."""
        return _named(self._pairs.resampled(draws))

    def varied(self, draws: Float) -> NDArray[np.bool_]:
        """In which resamples the cosines of the run and of every rival vary, so SIM is informative."""
        return self._pairs.varied(draws)

    def permuted(self, orders: Int) -> Mapping[str, Float]:
        """Each number under each permutation."""
        return _named(self._pairs.permuted(orders))

    @cached_property
    def _pairs(self) -> PairAgreement:
        targets = {name: (full_cosines(t), t.T @ t) for name, t in self.targets.items()}
        return PairAgreement(full_cosines(self.run), self.run.T @ self.run, targets)


@dataclass(frozen=True, eq=False)
class FoldedNumbers(AbstractNumbers):
    """The same numbers over folds of items, which may overlap: the mean over folds, weighted by their sizes.

    where
        items     what is drawn
        columns   items of each fold, as columns of the run
        folds     their numbers

    Pairs are formed within folds only, because items in different folds were placed by different tokens. An item that
    is drawn twice is drawn twice in all of its folds.
    """

    items: str
    columns: Sequence[Int]
    folds: Sequence[RivalNumbers]

    @cached_property
    def pool(self) -> Int:
        """Items that are in at least one fold."""
        return np.unique(np.concatenate(self.columns))

    @property
    def size(self) -> int:
        """Number of items to draw from."""
        return int(self.pool.size)

    @property
    def better(self) -> Mapping[str, Better]:
        """Higher for all of them: 1 is best."""
        return self.folds[0].better

    def without_direction(self, name: str) -> Int:
        """Items without a direction in a rival, in at least one fold."""
        return np.unique(np.concatenate([c[f.without_direction(name)] for c, f in self._pairs]))

    def resampled(self, draws: Float) -> Mapping[str, Float]:
        """Each number in each resample of all items."""
        return self._mean([_resampled(fold, draws[:, self._places(columns)]) for columns, fold in self._pairs])

    def permuted(self, orders: Int) -> Mapping[str, Float]:
        """Each number when items are permuted within their folds."""
        # The order of one fold's items within a uniform permutation of all items is uniform too.
        parts = [orders[:, self._places(columns)] for columns in self.columns]
        ranks = [np.argsort(np.argsort(part, axis=1), axis=1) for part in parts]
        return self._mean([_permuted(fold, rank) for fold, rank in zip(self.folds, ranks, strict=True)])

    @property
    def _pairs(self) -> list[tuple[Int, RivalNumbers]]:
        return list(zip(self.columns, self.folds, strict=True))

    def _places(self, columns: Int) -> Int:
        return np.searchsorted(self.pool, columns)

    def _mean(self, found: Sequence[Mapping[str, Float]]) -> dict[str, Float]:
        """Mean over the folds in which a number is defined."""
        sizes = np.array([[fold.size] for fold in self.folds], dtype=np.float64)
        stacked = {name: np.stack([numbers[name] for numbers in found]) for name in self.better}
        return {name: _weighted_mean(values, sizes) for name, values in stacked.items()}


def _resampled(fold: RivalNumbers, draws: Float) -> Mapping[str, Float]:
    """Numbers of a fold; NaN, for all rivals alike, in resamples with too few items or without variation."""
    undefined = np.count_nonzero(draws, axis=1) < FEWEST_ITEMS
    draws = np.where(undefined[:, None], 1.0, draws)
    undefined |= ~fold.varied(draws)
    return {name: np.where(undefined, np.nan, numbers) for name, numbers in fold.resampled(draws).items()}


def _permuted(fold: RivalNumbers, orders: Int) -> Mapping[str, Float]:
    """Numbers of a fold; NaN where its cosines do not vary."""
    varied = bool(fold.varied(np.ones((1, fold.size)))[0])
    return {
        name: numbers if varied else np.full_like(numbers, np.nan) for name, numbers in fold.permuted(orders).items()
    }


def _weighted_mean(values: Float, weights: Float) -> Float:
    defined = np.isfinite(values)
    total = np.sum(weights * defined, axis=0)
    sums = np.sum(np.where(defined, values, 0.0) * weights, axis=0)
    return np.where(total > 0, sums / np.where(total > 0, total, 1.0), np.nan)


def full_cosines(columns: Float) -> Float:
    """Cosines between columns; each has cosine 1 with itself, even a column of 0."""
    found = cosines(columns)
    np.fill_diagonal(found, 1.0)
    return found


def _named(found: Mapping[str, Mapping[str, Float]]) -> dict[str, Float]:
    return {f"{name} {kind}": numbers[kind] for name, numbers in found.items() for kind in KINDS}
