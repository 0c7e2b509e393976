"""Agreement numbers that are sums over contexts: distances of logits, distance of finite parts, and collapse.

``logit_distance``    distance of centred normalised logits from L_mm's (``proxy_...``: from S~'s), in [0, 2]
``finite_distance``   ``||P_F(L) - L_in||_F``
``collapse``          ``subspace_collapse`` of the context directions by support group

All fall to 0 in the limit of training. With learned features, F = span ``(e_z - e_z') e_j^T`` for z, z' in S_j, so
``P_F(L)`` subtracts the in-support mean, and only the logits on support are needed. Logits are given by their factors,
and no V x m matrix is formed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.geometry.agreement import AbstractNumbers, Better
from tokengeom.geometry.collapse import directions_and_groups, group_means, group_sums, subspace_collapse

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from tokengeom.factors import Factors
    from tokengeom.numerics import Float, Int

CHUNK = 1 << 20
"""Pairs whose logits are computed at once, which bounds the memory for a long corpus to this times d."""
SLOW_PAIRS = 200_000
"""Pairs on support beyond which one permutation of the finite part takes a large part of a second."""
SLOW_PERMUTATIONS = 20
"""Permutations of the finite part then: just enough for a 5th percentile."""


@dataclass(frozen=True, eq=False)
class FiniteLogits:
    """``L_in`` on support, one entry per pair: token z, context j, and the value that ``P_F(L)`` converges to.

    ``sizes``
        Support size of each context, m.
    """

    token: Int
    context: Int
    value: Float
    sizes: Float

    @staticmethod
    def of(P: csc_array | Float) -> FiniteLogits:
        """From V x m probabilities, dense or scipy sparse."""
        from scipy.sparse import csc_array

        table = csc_array(P, copy=True)  # the arrays of statistics cannot be changed
        table.eliminate_zeros()
        sizes = np.diff(table.indptr)
        context = np.repeat(np.arange(table.shape[1], dtype=np.int64), sizes)
        token = table.indices.astype(np.int64)
        empty = FiniteLogits(token, context, np.zeros(token.size), sizes.astype(np.float64))
        return FiniteLogits(token, context, empty.centre(np.log(table.data)), empty.sizes)

    def centre(self, x: Float) -> Float:
        """Subtract from each pair's value the mean over its context: ``P_F`` on support."""
        mean = np.bincount(self.context, x, minlength=self.sizes.size) / np.maximum(self.sizes, 1.0)
        return np.asarray(x - mean[self.context])

    def logits(self, state: Factors, place: Int | None = None) -> Float:
        """Logits on support; ``place`` (m) gives context j the embedding of context ``place[j]``."""
        column = self.context if place is None else place[self.context]
        W, H = state.centred_logits
        if W.shape[0] * H.shape[1] <= CHUNK:
            return np.asarray((W @ H)[self.token, column])
        found = np.empty(self.token.size)
        for start in range(0, self.token.size, CHUNK):
            part = slice(start, start + CHUNK)
            found[part] = np.einsum("ed,de->e", W[self.token[part]], H[:, column[part]])
        return found

    def squared_errors(self, state: Factors, place: Int | None = None) -> Float:
        """``||P_F(L)_j - L_in_j||^2`` of each context, m."""
        error = self.centre(self.logits(state, place)) - self.value
        return np.asarray(np.bincount(self.context, error * error, minlength=self.sizes.size))

    def distance(self, state: Factors) -> float:
        """``||P_F(L) - L_in||_F``."""
        return float(np.sqrt(self.squared_errors(state).sum()))


@dataclass(frozen=True, eq=False)
class LogitNumbers(AbstractNumbers):
    """``logit_distance`` from each target (by prefix) and, if L_in is known, ``finite_distance``, over m contexts."""

    run: Factors
    targets: Mapping[str, Factors]
    finite: FiniteLogits | None = None
    items: str = "contexts"

    @property
    def size(self) -> int:
        """Number of contexts to draw from."""
        return int(self.run.H.shape[1])

    @property
    def better(self) -> Mapping[str, Better]:
        """Lower for all of them: 0 is best."""
        names = [f"{prefix}logit_distance" for prefix in self.targets]
        return dict.fromkeys([*names, *(["finite_distance"] if self.finite else [])], "lower")

    def resampled(self, draws: Float) -> Mapping[str, Float]:
        """Each number in each resample: sums over contexts, weighted by the draws."""
        found = {}
        if self.finite is not None:
            found["finite_distance"] = np.sqrt(draws @ self.finite.squared_errors(self.run))
        own = draws @ column_products(self.run, self.run)
        for prefix, target in self.targets.items():
            cross, theirs = column_products(self.run, target), column_products(target, target)
            found[f"{prefix}logit_distance"] = _distance(draws @ cross, own, draws @ theirs)
        return found

    def permuted(self, orders: Int) -> Mapping[str, Float]:
        """Each number when the run's contexts are permuted."""
        found = {}
        if self.finite is not None:
            few = orders if self.finite.token.size <= SLOW_PAIRS else orders[:SLOW_PERMUTATIONS]
            errors = [float(self.finite.squared_errors(self.run, order).sum()) for order in few]
            found["finite_distance"] = np.sqrt(errors)
        own = float(column_products(self.run, self.run).sum())
        A, B = self.run.centred_logits
        for prefix, target in self.targets.items():
            C, D = target.centred_logits
            # <A B_o, C D> = <A^T C D, B_o>: one r x m matrix serves every permutation o.
            pulled = (A.T @ C) @ D
            cross = np.array([float(np.vdot(pulled, B[:, order])) for order in orders])
            theirs = float(column_products(target, target).sum())
            found[f"{prefix}logit_distance"] = _distance(cross, np.array(own), np.array(theirs))
        return found


def column_products(x: Factors, y: Factors) -> Float:
    """``<L_x[:, j], L_y[:, j]>`` of centred logits, m."""
    (A, B), (C, D) = x.centred_logits, y.centred_logits
    return np.asarray(np.einsum("im,im->m", B, (A.T @ C) @ D))


def _distance(cross: Float, xx: Float, yy: Float) -> Float:
    """``|| x/||x|| - y/||y|| || = sqrt(2 - 2 cos)``; NaN where either is 0."""
    size = np.sqrt(xx * yy)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > 0, np.sqrt(np.maximum(2.0 - 2.0 * cross / size, 0.0)), np.nan)


@dataclass(frozen=True, eq=False)
class CollapseNumbers(AbstractNumbers):
    """``collapse``: the score of the run's context directions by support group."""

    H: Float
    labels: Int
    items: str = "contexts"

    @cached_property
    def _data(self) -> tuple[Float, Int]:
        return directions_and_groups(self.H, self.labels)

    @property
    def size(self) -> int:
        """Number of contexts that have a direction and a group."""
        return int(self._data[1].size)

    @property
    def better(self) -> Mapping[str, Better]:
        """Lower: 0 is best."""
        return {"collapse": "lower"}

    def values(self) -> Mapping[str, float]:
        """The score itself."""
        return {"collapse": subspace_collapse(self.H, self.labels)}

    def resampled(self, draws: Float) -> Mapping[str, Float]:
        """The score of each resample; the distance 0 of a context from its own copy does not count as collapse."""
        X, group = self._data
        return {"collapse": np.array([_weighted_score(X, group, w) for w in draws])}

    def permuted(self, orders: Int) -> Mapping[str, Float]:
        """The score when contexts are assigned to groups at random, group sizes kept."""
        X, group = self._data
        return {"collapse": np.array([subspace_collapse(X, group[order]) for order in orders])}


def _weighted_score(X: Float, group: Int, w: Float) -> float:
    """``subspace_collapse`` with context j drawn ``w_j`` times.

    Computed from squared distances between different contexts, so copies do not bias it: ``s_g^2`` is half of their
    mean in group g (the pooled mean where fewer than two contexts of g were drawn), ``D`` their mean between groups,
    and

    ``m tr(Sigma_B) = (sum_g n_g (n_g - 1) s_g^2 + sum_{g<h} n_g n_h D) / m - sum_g (n_g - 1) s_g^2``
    """
    n, m, drawn = np.bincount(group).astype(np.float64), group.size, np.bincount(group, w)
    pairs = drawn**2 - np.bincount(group, w * w)
    apart = float(w.sum() ** 2 - drawn @ drawn)
    if not (pairs.any() and apart > 0):
        return float("nan")
    inside, everywhere = _squared_distances(X, group, w)
    between = (everywhere - float(inside.sum())) / apart
    pooled = float(inside.sum() / pairs.sum()) / 2.0
    s2 = np.where(pairs > 0, inside / np.where(pairs > 0, pairs, 1.0) / 2.0, pooled)
    within = float((n - 1.0) @ s2)
    spread = (float((n * (n - 1.0)) @ s2) + (m * m - float(n @ n)) / 2.0 * between) / m - within
    if not spread > 0:
        return float("nan")
    return (1.0 - 1.0 / n.size) * (within / float(n[n > 1].sum())) / (spread / m)


def _squared_distances(X: Float, group: Int, w: Float) -> tuple[Float, float]:
    """``sum_ij w_i w_j ||x_i - x_j||^2`` over ordered pairs inside each group, G, and over all pairs."""
    offset = X - group_means(X, group)[:, group]  # relative to the means, or collapsed groups would cancel
    sums = group_sums(offset * w, group)
    square = np.bincount(group, w * np.einsum("ij,ij->j", offset, offset))
    inside = 2.0 * (np.bincount(group, w) * square - np.sum(sums**2, axis=0))
    total = 2.0 * (w.sum() * float(w @ np.einsum("ij,ij->j", X, X)) - float(np.sum((X @ w) ** 2)))
    return np.maximum(inside, 0.0), total
