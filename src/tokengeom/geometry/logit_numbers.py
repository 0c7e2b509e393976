"""The finite part of a run against its prediction: the projection on F, prepared once and applied often.

Linear model: ``P_F(W)`` by an orthonormal basis of ``F = span{(e_z - e_z') h_j^T : z, z' in S_j}`` in R^{V x r}, r the
rank of the embeddings. Learned features: F = span ``(e_z - e_z') e_j^T``, so that ``P_F(L)`` subtracts the in-support
mean, and only the logits on support are ever computed.

Agreement numbers that are sums over contexts: distances of logits, distance on F, and collapse.

``logit_distance``    distance of centred normalised logits from L_mm's (``proxy_...``: from S~'s), in [0, 2]
``finite_distance``   ``||P_F(L) - L_in||_F``
``collapse``          ``subspace_collapse`` of the context directions by support group

All fall to 0 as the limit is approached. Logits enter as factors; no V x m matrix is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.geometry.agreement import AbstractNumbers, Better
from tokengeom.geometry.collapse import directions_and_groups, group_means, group_sums, subspace_collapse
from tokengeom.solvers.least_distance import equality_rows
from tokengeom.solvers.ntp_svm import orthonormal_factor

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokengeom.factors import Factors
    from tokengeom.numerics import Float, Int
    from tokengeom.theory.linear import LinearPrediction


MOST_BASIS_ENTRIES = 4_000_000
"""Entries of the equations up to which a basis is factored (a second or two); beyond it each projection is solved."""
CHUNK = 1 << 20
"""Pairs whose logits are computed at once, so that a long corpus needs no more memory than this times d."""


@dataclass(frozen=True, eq=False)
class FiniteDecoder:
    """Projection on F of decoders W (V x d), against ``W*``; ``is_factored`` when a projection is a mere product."""

    project: Callable[[Float], Float]
    W_star: Float
    is_factored: bool

    @staticmethod
    def of(prediction: LinearPrediction) -> FiniteDecoder:
        """Factor once where that is affordable."""
        S, H = prediction.effective_support, prediction.data.H
        R, U = orthonormal_factor(H)
        equations = int(S.sum()) - S.shape[1]
        if equations * S.shape[0] * R.shape[0] > MOST_BASIS_ENTRIES:
            return FiniteDecoder(prediction.finite_part, prediction.W_star, False)
        basis = _row_space(equality_rows(S, R))

        def project(W: Float) -> Float:
            inside = (W @ U).ravel()
            return np.asarray((basis.T @ (basis @ inside)).reshape(S.shape[0], -1) @ U.T)

        return FiniteDecoder(project, prediction.W_star, True)

    def error(self, W: Float) -> float:
        """``||P_F(W) - W*|| / ||W*||``; absolute when ``W*`` is 0."""
        size = float(np.linalg.norm(self.W_star))
        return float(np.linalg.norm(self.project(W) - self.W_star)) / (size if size > 0 else 1.0)


@dataclass(frozen=True, eq=False)
class FiniteLogits:
    """``L_in`` on support, pair after pair: token z, context j, and the value that ``P_F(L)`` converges to."""

    token: Int
    context: Int
    value: Float
    sizes: Float

    @staticmethod
    def of(P: Any) -> FiniteLogits:
        """Take V x m probabilities, dense or scipy sparse."""
        from scipy.sparse import csc_array

        table = csc_array(P, copy=True)  # statistics are frozen
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
        """Logits on support; ``place`` gives each context the embedding of another."""
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


def _row_space(E: Float) -> Float:
    """Orthonormal rows that span those of E."""
    if E.size == 0:
        return np.zeros((0, E.shape[1]))
    _, singular, right = np.linalg.svd(E, full_matrices=False)
    return np.asarray(right[singular > max(E.shape) * np.finfo(np.float64).eps * singular[0]])


SLOW_PAIRS = 200_000
"""Pairs on support beyond which a permutation of the finite part takes a good part of a second."""
SLOW_PERMUTATIONS = 20
"""Permutations of the finite part then: enough for a 5% quantile, no more."""


@dataclass(frozen=True, eq=False)
class LogitNumbers(AbstractNumbers):
    """``logit_distance`` to each target (by prefix) and, where L_in is known, ``finite_distance``, over m contexts."""

    run: Factors
    targets: Mapping[str, Factors]
    finite: FiniteLogits | None = None
    items: str = "contexts"

    @property
    def size(self) -> int:
        """Contexts to draw from."""
        return int(self.run.H.shape[1])

    @property
    def better(self) -> Mapping[str, Better]:
        """All of them: 0 is best."""
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
        """Each number when the run's contexts change places."""
        found = {}
        if self.finite is not None:
            few = orders if self.finite.token.size <= SLOW_PAIRS else orders[:SLOW_PERMUTATIONS]
            errors = [float(self.finite.squared_errors(self.run, order).sum()) for order in few]
            found["finite_distance"] = np.sqrt(errors)
        own = float(column_products(self.run, self.run).sum())
        A, B = self.run.centred_logits
        for prefix, target in self.targets.items():
            C, D = target.centred_logits
            # <A B_o, C D> = <A^T C D, B_o>: one r x m matrix serves every permutation.
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
    """``|| x/||x|| - y/||y|| || = sqrt(2 - 2 cos)``; NaN where one is 0."""
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
        """Contexts that have a direction and a group."""
        return int(self._data[1].size)

    @property
    def better(self) -> Mapping[str, Better]:
        """0 is best."""
        return {"collapse": "lower"}

    def values(self) -> Mapping[str, float]:
        """The score itself."""
        return {"collapse": subspace_collapse(self.H, self.labels)}

    def resampled(self, draws: Float) -> Mapping[str, Float]:
        """The score of each resample; the distance of a context from its own copy does not count as collapse."""
        X, group = self._data
        return {"collapse": np.array([_weighted_score(X, group, w) for w in draws])}

    def permuted(self, orders: Int) -> Mapping[str, Float]:
        """The score when contexts are dealt to the groups at random."""
        X, group = self._data
        return {"collapse": np.array([subspace_collapse(X, group[order]) for order in orders])}


def _weighted_score(X: Float, group: Int, w: Float) -> float:
    """``subspace_collapse`` with context j drawn ``w_j`` times.

    Written in squared distances between different contexts, which copies cannot bias: ``s_g^2`` is half of their mean
    in group g (the pooled one where fewer than two contexts of g were drawn), ``D`` their mean between groups, and

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
    offset = X - group_means(X, group)[:, group]  # about the means first, or collapsed groups would cancel
    sums = group_sums(offset * w, group)
    square = np.bincount(group, w * np.einsum("ij,ij->j", offset, offset))
    inside = 2.0 * (np.bincount(group, w) * square - np.sum(sums**2, axis=0))
    total = 2.0 * (w.sum() * float(w @ np.einsum("ij,ij->j", X, X)) - float(np.sum((X @ w) ** 2)))
    return np.maximum(inside, 0.0), total
