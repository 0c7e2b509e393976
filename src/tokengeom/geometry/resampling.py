"""Agreement of two matrices of pairwise products in many resamples and permutations at once.

Over pairs (i, j) of n items (contexts or tokens) with products ``x_ij`` of a run and ``y_ij`` of a target:

``similarity``   SIM of the cosines, diagonal included
``pearson``      Pearson correlation of the off-diagonal cosines
``spearman``     Spearman correlation of the off-diagonal cosines
``cka``          linear CKA of the items, norms included

A resample draws item i ``w_i`` times. A naive bootstrap would pair an item with its own copy, with cosine 1 on both
sides, and count that as agreement. Here copies are never paired: pair (i, j) has weight ``w_i w_j`` off the diagonal,
and the diagonal, where it is included, ``c w_i`` with the c that keeps its share of all pairs at 1/n
(``self_pair_excess``). With w = 1 this is the statistic itself. All sums but Spearman's are quadratic forms
``w^T K w``, so B resamples are one product of a B x n by an n x n matrix.

A resample changes the weights of pairs but not their order, so for Spearman the pairs are sorted once, and the rank of
a set of ties is ``(weight below it) + (its own weight)/2``, a cumulative sum.

A permutation moves the items of one side only, so nothing but ``sum x_o(i)o(j) y_ij`` changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.geometry.similarity import NO_VARIATION, STABILISER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokengeom.numerics import Float, Int

ROUNDING = 1e-12
"""Share of a Gram matrix's squared norm below which a centred Gram matrix is rounding."""
DECIMALS = 9
"""Cosines equal to this many decimals are ties: contexts of one support group differ by rounding alone."""


@dataclass(frozen=True, eq=False)
class PairAgreement:
    """Cosines and Gram matrix (n x n each) of a run, and of each target by name, with the items in the same order."""

    cosines: Float
    gram: Float
    targets: Mapping[str, tuple[Float, Float]]

    def resampled(self, draws: Float) -> dict[str, dict[str, Float]]:
        """Numbers of each target in each resample; ``draws`` (b x n) says how often each item was drawn."""
        excess, centred = self_pair_excess(draws), _Centred.of(self.gram, draws)
        return {
            name: {
                "similarity": _structural(_moments(self.cosines, Y, draws, excess)),
                "pearson": _correlation(_moments(self.cosines, Y, draws, draws * draws)),
                "cka": _alignment(centred, _Centred.of(B, draws)),
            }
            for name, (Y, B) in self.targets.items()
        }

    def varied(self, draws: Float) -> NDArray[np.bool_]:
        """In which resamples (b) the cosines of the run and of every target vary; elsewhere SIM is 1 by its formula."""
        excess = self_pair_excess(draws)
        found = [np.minimum(*_moments(self.cosines, Y, draws, excess).variances) for Y, _ in self.targets.values()]
        return np.asarray(np.min(found, axis=0) > NO_VARIATION)

    def permuted(self, orders: Int) -> dict[str, dict[str, Float]]:
        """Numbers of each target when the run's items are permuted; ``orders`` (b x n) are permutations."""
        X, A = self.cosines, _double_centred(self.gram)
        of_cosines = permuted_products(X, {name: Y for name, (Y, _) in self.targets.items()}, orders)
        of_grams = permuted_products(A, {name: _double_centred(B) for name, (_, B) in self.targets.items()}, orders)
        found = {}
        for name, (Y, B) in self.targets.items():
            size = float(np.linalg.norm(A) * np.linalg.norm(_double_centred(B)))
            found[name] = _permuted_numbers(X, Y, of_cosines[name], np.diag(X)[orders] @ np.diag(Y))
            found[name]["cka"] = of_grams[name] / (size if size > 0 else np.nan)
        return found


def _permuted_numbers(X: Float, Y: Float, products: Float, diagonal: Float) -> dict[str, Float]:
    """SIM and Pearson correlation of each permutation; only the sums of products differ between permutations."""
    n = X.shape[0]
    one = np.ones((1, n))
    all_pairs, off_pairs = _moments(X, Y, one, 0.0 * one), _moments(X, Y, one, one)
    return {
        "similarity": _structural(replace(all_pairs, xy=products / n**2)),
        "pearson": _correlation(replace(off_pairs, xy=(products - diagonal) / max(n * n - n, 1))),
    }


def _moments(X: Float, Y: Float, w: Float, excess: Float) -> Moments:
    """Weighted moments; ``excess`` (b x n) is subtracted from the weights ``w_i^2`` of the diagonal."""
    pairs = w.sum(axis=1) ** 2 - excess.sum(axis=1)
    pairs = np.where(pairs > 0, pairs, np.nan)

    def mean(K: Float) -> Float:
        return np.asarray((np.einsum("bi,bi->b", w @ K, w) - excess @ np.diag(K)) / pairs)

    return Moments(mean(X), mean(Y), mean(X * X), mean(Y * Y), mean(X * Y))


@dataclass(frozen=True, eq=False)
class Moments:
    """Means over pairs of ``x, y, x^2, y^2, x y``, one entry per draw."""

    x: Float
    y: Float
    xx: Float
    yy: Float
    xy: Float

    @property
    def variances(self) -> tuple[Float, Float]:
        """Variances of x and of y, not below 0."""
        return np.maximum(self.xx - self.x**2, 0.0), np.maximum(self.yy - self.y**2, 0.0)

    @property
    def covariance(self) -> Float:
        """Covariance of x and y."""
        return np.asarray(self.xy - self.x * self.y)


def self_pair_excess(w: Float) -> Float:
    """``w_i^2 - c w_i`` (b x n): the weight that a quadratic form gives to an item's pairs with itself, less ``c w_i``.

    ``c = (s^2 - sum w^2) / (s (n - 1))`` for s draws of n items: 1 when each is drawn once.
    """
    s, n = w.sum(axis=1, keepdims=True), w.shape[1]
    c = (s**2 - np.sum(w * w, axis=1, keepdims=True)) / (s * max(n - 1, 1))
    return np.asarray(w * w - c * w)


def permuted_products(X: Float, targets: Mapping[str, Float], orders: Int) -> dict[str, Float]:
    """``sum_ij X[o_i, o_j] Y[i, j]`` of each permutation o and target Y; X is permuted once for all targets."""
    found: dict[str, list[float]] = {name: [] for name in targets}
    for order in orders:
        permuted = X[order][:, order]
        for name, Y in targets.items():
            found[name].append(float(np.vdot(permuted, Y)))
    return {name: np.array(values) for name, values in found.items()}


def _structural(moments: Moments) -> Float:
    vx, vy = moments.variances
    return np.asarray((moments.covariance + STABILISER) / (np.sqrt(vx * vy) + STABILISER))


def _correlation(moments: Moments) -> Float:
    vx, vy = moments.variances
    varied = np.minimum(vx, vy) > NO_VARIATION
    return np.where(varied, np.clip(moments.covariance / np.sqrt(np.where(varied, vx * vy, 1.0)), -1.0, 1.0), np.nan)


def _alignment(left: _Centred, right: _Centred) -> Float:
    """CKA; NaN where a side does not vary beyond rounding, as in a resample of a single item."""
    return np.clip(left.product(right) / (left.size * right.size), -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class _Centred:
    """``K - k 1^T - 1 k^T + c``, never formed: a Gram matrix K centred by the mean ``k = K w / s`` of each resample."""

    K: Float
    w: Float
    k: Float
    c: Float

    @staticmethod
    def of(K: Float, w: Float) -> _Centred:
        k = (w @ K) / w.sum(axis=1, keepdims=True)
        return _Centred(K, w, k, np.einsum("bi,bi->b", k, w) / w.sum(axis=1))

    @property
    def diagonal(self) -> Float:
        return np.asarray(np.diag(self.K) - 2.0 * self.k + self.c[:, None])

    @property
    def size(self) -> Float:
        """Norm of the centred Gram matrix; NaN where it is at the level of rounding."""
        square = self.product(self)
        whole = np.einsum("bi,bi->b", self.w @ (self.K * self.K), self.w)
        return np.sqrt(np.where(square > ROUNDING * whole, square, np.nan))

    def product(self, other: _Centred) -> Float:
        """Sum over pairs of the products of centred entries; copies of an item are not paired."""
        w, s = self.w, self.w.sum(axis=1)
        raw = np.einsum("bi,bi->b", w @ (self.K * other.K), w)
        rows = np.einsum("bi,bi,bi->b", w, self.k, other.k)
        excess = np.einsum("bi,bi,bi->b", self_pair_excess(w), self.diagonal, other.diagonal)
        return np.asarray(raw - 2.0 * s * rows + s**2 * self.c * other.c - excess)


def _double_centred(K: Float) -> Float:
    rows = K - K.mean(axis=0, keepdims=True)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class RankedPairs:
    """Pairs of one cosine matrix in rising order: ``order`` of the pairs, and where each set of ties starts."""

    order: Int
    starts: Int
    set_of: Int

    @staticmethod
    def of(values: Float) -> RankedPairs:
        """From the values of all pairs."""
        rounded = np.round(values, DECIMALS)
        order = np.argsort(rounded, kind="stable")
        rising = rounded[order]
        new = np.concatenate(([True], rising[1:] > rising[:-1]))
        set_of = np.empty(order.size, np.int64)
        set_of[order] = np.cumsum(new) - 1
        return RankedPairs(order, np.flatnonzero(new), set_of)

    def ranks(self, weight: Float) -> Float:
        """Mid-rank of each pair when the pairs have these weights."""
        totals = np.add.reduceat(weight[self.order], self.starts)
        return np.asarray((np.cumsum(totals) - totals / 2.0)[self.set_of])


@dataclass(frozen=True, eq=False)
class RankAgreement:
    """Off-diagonal cosines of a run and of several targets, ranked; all n x n with the items in the same order."""

    n: int
    run: RankedPairs
    targets: dict[str, RankedPairs]

    @staticmethod
    def of(X: Float, targets: dict[str, Float]) -> RankAgreement:
        """From the cosines of a run and of each target."""
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
        """Spearman correlation with each target when the run's items are permuted."""
        weight = np.ones(self.n * (self.n - 1) // 2)
        X = self._square(_standardised(self.run.ranks(weight), weight))
        fixed = {name: self._square(_standardised(t.ranks(weight), weight)) for name, t in self.targets.items()}
        found: dict[str, list[float]] = {name: [] for name in self.targets}
        for order in orders:
            permuted = X[order][:, order]
            for name, Y in fixed.items():
                found[name].append(float(np.vdot(permuted, Y)) / 2.0)
        return {name: np.array(values) for name, values in found.items()}

    def _square(self, above: Float) -> Float:
        M = np.zeros((self.n, self.n))
        M[np.triu_indices(self.n, k=1)] = above
        return M + M.T


def _standardised(x: Float, weight: Float) -> Float:
    """X shifted and scaled to weighted mean 0 and weighted sum of squares 1; NaN where nothing varies."""
    total = weight.sum()
    if not total > 0:
        return np.full(x.shape, np.nan)
    centred = x - (x @ weight) / total
    square = float((centred * centred) @ weight)
    return centred / np.sqrt(square) if square > 1e-12 * total**3 else np.full(x.shape, np.nan)
