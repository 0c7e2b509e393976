"""Agreement of two matrices of pairwise products, with its bootstrap and its permutation null, many draws at once.

Over pairs (i, j) of n items (contexts or words) with products ``x_ij`` of a run and ``y_ij`` of a target:

``similarity``   SIM of the cosines, diagonal counted
``pearson``      Pearson correlation of the off-diagonal cosines
``cka``          linear CKA of the items themselves, norms counted

A resample draws item i ``w_i`` times. Written naively, the pair of an item with its own copy enters with cosine 1 on
both sides: agreement that no one observed. So copies never meet: pair (i, j) weighs ``w_i w_j`` off the diagonal, and
the diagonal, where it is counted, ``c w_i`` with the c that keeps its share of all pairs at 1/n (``own_surplus``).
With w = 1 this is the statistic itself.
All sums are quadratic forms ``w^T K w``, so that B resamples are one product of a B x n by an n x n matrix.
A permutation moves one side's items only; then nothing but ``sum x_o(i)o(j) y_ij`` changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.geometry.similarity import NO_VARIATION, STABILISER

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.support_reduction import Int


@dataclass(frozen=True, eq=False)
class PairAgreement:
    """Cosines ``X, Y`` (n x n) and Grams ``A, B`` (n x n) of a run and of its target, the items in one order."""

    X: Float
    Y: Float
    A: Float
    B: Float

    def resampled(self, draws: Float) -> dict[str, Float]:
        """Numbers of each resample; ``draws`` (b x n) says how often each item was drawn."""
        return {
            "similarity": _structural(self._moments(draws, own_surplus(draws))),
            "pearson": _correlation(self._moments(draws, draws * draws)),
            "cka": self._cka(draws),
        }

    def permuted(self, orders: Int) -> dict[str, Float]:
        """Numbers when the run's items change places; ``orders`` (b x n) are permutations."""
        one = np.ones((1, self.X.shape[0]))
        moved = permuted_products(self.X, self.Y, orders)
        diagonal = np.diag(self.X)[orders] @ np.diag(self.Y)
        all_pairs, off_pairs = self._moments(one, 0.0 * one), self._moments(one, one)
        n = one.size
        return {
            "similarity": _structural(all_pairs.with_product(moved / n**2)),
            "pearson": _correlation(off_pairs.with_product((moved - diagonal) / max(n * n - n, 1))),
            "cka": self._permuted_cka(orders),
        }

    def _moments(self, w: Float, own: Float) -> Moments:
        """Weighted moments; ``own`` (b x n) is what the diagonal's weight ``w_i^2`` has too much."""
        pairs = w.sum(axis=1) ** 2 - own.sum(axis=1)
        pairs = np.where(pairs > 0, pairs, np.nan)
        X, Y = self.X, self.Y

        def mean(K: Float) -> Float:
            return np.asarray((np.einsum("bi,bi->b", w @ K, w) - own @ np.diag(K)) / pairs)

        return Moments(mean(X), mean(Y), mean(X * X), mean(Y * Y), mean(X * Y))

    def _cka(self, w: Float) -> Float:
        left, right = _Centred.of(self.A, w), _Centred.of(self.B, w)
        size = left.product(left) * right.product(right)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(size > 0, left.product(right) / np.sqrt(np.maximum(size, 0.0)), np.nan)

    def _permuted_cka(self, orders: Int) -> Float:
        A, B = _double_centred(self.A), _double_centred(self.B)
        size = float(np.linalg.norm(A) * np.linalg.norm(B))
        return permuted_products(A, B, orders) / (size if size > 0 else np.nan)


@dataclass(frozen=True, eq=False)
class Moments:
    """Means over pairs of ``x, y, x^2, y^2, x y``, one entry a draw."""

    x: Float
    y: Float
    xx: Float
    yy: Float
    xy: Float

    def with_product(self, xy: Float) -> Moments:
        """The same with other products ``x y``."""
        return Moments(self.x, self.y, self.xx, self.yy, xy)

    @property
    def variances(self) -> tuple[Float, Float]:
        """Variances of x and of y, rounding below 0 cut off."""
        return np.maximum(self.xx - self.x**2, 0.0), np.maximum(self.yy - self.y**2, 0.0)

    @property
    def covariance(self) -> Float:
        """Covariance of x and y."""
        return np.asarray(self.xy - self.x * self.y)


def own_surplus(w: Float) -> Float:
    """``w_i^2 - c w_i``: what a quadratic form gives an item's pairs with itself beyond their due (b x n).

    ``c = (s^2 - sum w^2) / (s (n - 1))`` for s draws of n items: 1 when each is drawn once.
    """
    s, n = w.sum(axis=1, keepdims=True), w.shape[1]
    due = (s**2 - np.sum(w * w, axis=1, keepdims=True)) / (s * max(n - 1, 1))
    return np.asarray(w * w - due * w)


def permuted_products(X: Float, Y: Float, orders: Int) -> Float:
    """``sum_ij X[o_i, o_j] Y[i, j]`` of each permutation o, one entry each."""
    return np.array([float(np.vdot(X[order][:, order], Y)) for order in orders])


def _structural(moments: Moments) -> Float:
    vx, vy = moments.variances
    return np.asarray((moments.covariance + STABILISER) / (np.sqrt(vx * vy) + STABILISER))


def _correlation(moments: Moments) -> Float:
    vx, vy = moments.variances
    varied = np.minimum(vx, vy) > NO_VARIATION
    return np.where(varied, np.clip(moments.covariance / np.sqrt(np.where(varied, vx * vy, 1.0)), -1.0, 1.0), np.nan)


@dataclass(frozen=True, eq=False)
class _Centred:
    """A Gram K centred by the mean of each resample, never formed: ``K - k 1^T - 1 k^T + c`` with ``k = K w / s``."""

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

    def product(self, other: _Centred) -> Float:
        """Sum over pairs of the products of centred entries, copies of an item never paired."""
        w, s = self.w, self.w.sum(axis=1)
        raw = np.einsum("bi,bi->b", w @ (self.K * other.K), w)
        rows = np.einsum("bi,bi,bi->b", w, self.k, other.k)
        surplus = np.einsum("bi,bi,bi->b", own_surplus(w), self.diagonal, other.diagonal)
        return np.asarray(raw - 2.0 * s * rows + s**2 * self.c * other.c - surplus)


def _double_centred(K: Float) -> Float:
    rows = K - K.mean(axis=0, keepdims=True)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))
