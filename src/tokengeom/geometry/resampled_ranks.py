"""Spearman correlation of off-diagonal cosines under resampling, without sorting again for each draw.

A resample changes the weights of pairs and not their order, so that pairs are sorted once and the rank of a tied set
in a resample is ``(weight below it) + (its own weight)/2``: a cumulative sum. Pairs of an item with its own copy have
weight 0, as in ``resampled_pairs``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.support_reduction import Int

DECIMALS = 9
"""Cosines equal to this many decimals are ties: contexts of one support group differ by rounding only."""


@dataclass(frozen=True, eq=False)
class RankedPairs:
    """Pairs of one cosine matrix in rising order: ``order`` of the pairs, and where each tied set starts."""

    order: Int
    starts: Int
    set_of: Int

    @staticmethod
    def of(values: Float) -> RankedPairs:
        """Sort the values of all pairs."""
        rounded = np.round(values, DECIMALS)
        order = np.argsort(rounded, kind="stable")
        rising = rounded[order]
        new = np.concatenate(([True], rising[1:] > rising[:-1]))
        set_of = np.empty(order.size, np.int64)
        set_of[order] = np.cumsum(new) - 1
        return RankedPairs(order, np.flatnonzero(new), set_of)

    def ranks(self, weight: Float) -> Float:
        """Mid-rank of each pair when pairs have these weights."""
        totals = np.add.reduceat(weight[self.order], self.starts)
        return np.asarray((np.cumsum(totals) - totals / 2.0)[self.set_of])


@dataclass(frozen=True, eq=False)
class RankAgreement:
    """Order of a run's off-diagonal cosines against that of several targets, all n x n with the items in one order."""

    n: int
    run: RankedPairs
    targets: dict[str, RankedPairs]

    @staticmethod
    def of(X: Float, targets: dict[str, Float]) -> RankAgreement:
        """Sort every side once."""
        above = np.triu_indices(X.shape[0], k=1)
        ranked = {name: RankedPairs.of(Y[above]) for name, Y in targets.items()}
        return RankAgreement(X.shape[0], RankedPairs.of(X[above]), ranked)

    def resampled(self, draws: Float) -> dict[str, Float]:
        """Spearman correlation with each target in each resample (b x n draw counts)."""
        i, j = np.triu_indices(self.n, k=1)
        found: dict[str, list[float]] = {name: [] for name in self.targets}
        for w in draws:
            weight = w[i] * w[j]
            x = _standardised(self.run.ranks(weight), weight)
            for name, target in self.targets.items():
                found[name].append(float((x * weight) @ _standardised(target.ranks(weight), weight)))
        return {name: np.array(values) for name, values in found.items()}

    def permuted(self, orders: Int) -> dict[str, Float]:
        """Spearman correlation with each target when the run's items change places."""
        weight = np.ones(self.n * (self.n - 1) // 2)
        X = self._square(_standardised(self.run.ranks(weight), weight))
        fixed = {name: self._square(_standardised(t.ranks(weight), weight)) for name, t in self.targets.items()}
        found: dict[str, list[float]] = {name: [] for name in self.targets}
        for order in orders:
            moved = X[order][:, order]
            for name, Y in fixed.items():
                found[name].append(float(np.vdot(moved, Y)) / 2.0)
        return {name: np.array(values) for name, values in found.items()}

    def _square(self, above: Float) -> Float:
        M = np.zeros((self.n, self.n))
        M[np.triu_indices(self.n, k=1)] = above
        return M + M.T


def _standardised(x: Float, weight: Float) -> Float:
    """Weighted mean 0 and weighted sum of squares 1; NaN where nothing varies."""
    total = weight.sum()
    if not total > 0:
        return np.full(x.shape, np.nan)
    centred = x - (x @ weight) / total
    square = float((centred * centred) @ weight)
    return centred / np.sqrt(square) if square > 1e-12 * total**3 else np.full(x.shape, np.nan)
