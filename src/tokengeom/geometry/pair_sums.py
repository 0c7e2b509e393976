"""Agreement of two sets of pairwise products in closed form, weighted, and without an m x m matrix.

With ``x_ij = X_i . X_j`` and ``y_ij = Y_i . Y_j``, all that SIM, Pearson and CKA need are sums over pairs, and

``sum_ij w_i w_j x_ij y_ij = ||X diag(w) Y^T||_F^2``,   ``sum_ij w_i w_j x_ij = ||X w||^2``

where

``X, Y``   p x m and q x m: the items (contexts or words) of two geometries as columns
``w``      m: how often a resample drew each item; all ones for the data themselves

so that a resample costs ``m p q`` products instead of ``m^2 (p + q)``. A bootstrap draws an item twice, and the pair
of an item with its own copy has cosine 1 on both sides, agreement that no one observed. Those pairs get weight 0
here: pair (i, j) weighs ``w_i w_j`` off the diagonal, and the diagonal ``w_i`` (or 0 where it is left out). With w = 1
this is the statistic itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.geometry.similarity import NO_VARIATION, STABILISER

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.support_reduction import Int


@dataclass(frozen=True)
class PairMoments:
    """Means over weighted pairs: of x, y, and their variances and covariance."""

    mean_x: float
    mean_y: float
    variance_x: float
    variance_y: float
    covariance: float

    @property
    def structural(self) -> float:
        """SIM."""
        size = np.sqrt(max(self.variance_x, 0.0) * max(self.variance_y, 0.0))
        return float((self.covariance + STABILISER) / (size + STABILISER))

    @property
    def correlation(self) -> float:
        """Pearson correlation; NaN where one side does not vary."""
        if not min(self.variance_x, self.variance_y) > NO_VARIATION:
            return float("nan")
        return float(np.clip(self.covariance / np.sqrt(self.variance_x * self.variance_y), -1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Items:
    """Items of one geometry: columns ``X`` (p x m), and their squared norms."""

    X: Float
    square: Float

    @staticmethod
    def of(X: Float) -> Items:
        """Take columns as they are."""
        return Items(X, np.einsum("ij,ij->j", X, X))

    def permuted(self, order: Int) -> Items:
        """Give each item the place of another."""
        return Items(self.X[:, order], self.square[order])

    def total(self, w: Float, own: Float) -> float:
        """Sum of x over weighted pairs; ``own`` is the diagonal's surplus weight ``w_i^2`` minus what it may weigh."""
        return float(np.sum((self.X @ w) ** 2) - own @ self.square)

    def product(self, other: Items, w: Float, own: Float) -> float:
        """Sum of ``x y`` over weighted pairs."""
        cross = (self.X * w) @ other.X.T
        return float(np.sum(cross * cross) - own @ (self.square * other.square))


def pair_moments(x: Items, y: Items, w: Float, *, diagonal: bool) -> PairMoments:
    """Weighted moments over pairs of items, copies of one item never paired with each other."""
    own = w * w - w if diagonal else w * w
    pairs = float(w.sum() ** 2 - own.sum())
    if pairs <= 0:
        return PairMoments(*[float("nan")] * 5)
    mean_x, mean_y = x.total(w, own) / pairs, y.total(w, own) / pairs
    return PairMoments(
        mean_x,
        mean_y,
        x.product(x, w, own) / pairs - mean_x**2,
        y.product(y, w, own) / pairs - mean_y**2,
        x.product(y, w, own) / pairs - mean_x * mean_y,
    )


def pair_cka(x: Items, y: Items, w: Float) -> float:
    """Linear CKA of weighted items: centred by the weighted mean, the diagonal counted once for each draw."""
    a, b = _centred(x, w), _centred(y, w)
    own = w * w - w
    size = np.sqrt(max(a.product(a, w, own), 0.0) * max(b.product(b, w, own), 0.0))
    return float(a.product(b, w, own) / size) if size > 0 else float("nan")


def _centred(items: Items, w: Float) -> Items:
    return Items.of(items.X - (items.X @ w / w.sum())[:, None])
