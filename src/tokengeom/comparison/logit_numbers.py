"""Agreement numbers that are sums over contexts: cosines of logits, distance of finite parts, and collapse.

``logit_cosine``      cosine of the centred logits with those of a prediction, 1 is best
``finite_distance``   ``||P_F(L) - L_in||_F``, which falls to 0 in the limit of training
``collapse``          ``subspace_collapse`` of the context directions by support group, which falls to 0 too

With learned features, F = span ``(e_z - e_z') e_j^T`` for z, z' in S_j, so
``P_F(L)`` subtracts the in-support mean, and only the logits on support are needed. Logits are given by their factors,
and no V x m matrix is formed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.comparison.agreement import AbstractNumbers, Better, ItemKind, Name
from tokengeom.comparison.collapse import directions_and_groups, subspace_collapse

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from tokengeom.core.factors import Factors
    from tokengeom.core.numerics import Float, Int

CHUNK = 1 << 20
"""Pairs whose logits are computed at once, which bounds the memory for a long corpus to this times d."""
MOST_DENSE = 1 << 25
"""Tokens that occur times contexts up to which their logits are held as a matrix (256 MB)."""
SLOW_PERMUTATIONS = 20
"""Permutations of the finite part beyond that, where each takes about a second: just enough for a 5th percentile."""


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

    @cached_property
    def seen(self) -> tuple[Int, Int]:
        """Tokens that occur, in order, and the place among them of each pair's token."""
        tokens, place = np.unique(self.token, return_inverse=True)
        return tokens, place.reshape(-1)

    @property
    def is_small(self) -> bool:
        """Whether the logits of all tokens that occur fit in memory as a matrix."""
        return self.seen[0].size * self.sizes.size <= MOST_DENSE

    def logits(self, state: Factors) -> Float:
        """Logits on support."""
        return next(self.permuted_logits(state, [np.arange(self.sizes.size)]))

    def permuted_logits(self, state: Factors, places: Iterable[Int]) -> Iterator[Float]:
        """Logits on support for each ``place`` (m), where context j has the embedding of context ``place[j]``."""
        W, H = state.centred_logits
        tokens, row = self.seen
        if self.is_small:
            L = W[tokens] @ H
            for place in places:
                yield np.asarray(L[row, place[self.context]])
            return
        for place in places:
            column, logits = place[self.context], np.empty(self.token.size)
            for start in range(0, self.token.size, CHUNK):
                part = slice(start, start + CHUNK)
                logits[part] = np.einsum("ed,de->e", W[self.token[part]], H[:, column[part]])
            yield logits

    def squared_errors(self, state: Factors) -> Float:
        """``||P_F(L)_j - L_in_j||^2`` of each context, m."""
        return self._squared_errors(self.logits(state))

    def permuted_errors(self, state: Factors, places: Int) -> Float:
        """``||P_F(L) - L_in||_F^2`` for each permutation of the contexts (b x m), b numbers."""
        return np.array([self._squared_errors(L).sum() for L in self.permuted_logits(state, places)])

    def _squared_errors(self, logits: Float) -> Float:
        error = self.centre(logits) - self.value
        return np.asarray(np.bincount(self.context, error * error, minlength=self.sizes.size))

    def distance(self, state: Factors) -> float:
        """``||P_F(L) - L_in||_F``."""
        return float(np.sqrt(self.squared_errors(state).sum()))


@dataclass(frozen=True, eq=False)
class LogitNumbers(AbstractNumbers):
    """``logit_cosine`` with each prediction (by key) and, if L_in is known, ``finite_distance``, over m contexts.

    ``groups``
        Unit of each context, m.
    """

    run: Factors
    targets: Mapping[str, Factors]
    groups: Int
    finite: FiniteLogits | None = None
    items: ItemKind = "contexts"

    @property
    def size(self) -> int:
        """Number of contexts."""
        return int(self.run.H.shape[1])

    @property
    def units(self) -> Int:
        """Support group of each context."""
        return self.groups

    @property
    def exchangeable(self) -> int:
        """Contexts are permuted one by one: columns of logits keep their sizes."""
        return self.size

    @property
    def better(self) -> Mapping[Name, Better]:
        """Higher for cosines, lower for the distance."""
        cosines: dict[Name, Better] = {(key, "logit_cosine"): "higher" for key in self.targets}
        return cosines | ({("", "finite_distance"): "lower"} if self.finite else {})

    def resampled(self, draws: Float) -> Mapping[Name, Float]:
        """Each number on each selection of contexts."""
        numbers: dict[Name, Float] = {}
        if self._errors is not None:
            numbers["", "finite_distance"] = np.sqrt(draws @ self._errors)
        own = draws @ self._own
        for key, (pulled, theirs) in self._products.items():
            cross = np.einsum("im,im->m", self.run.centred_logits[1], pulled)
            numbers[key, "logit_cosine"] = _cosine(draws @ cross, own, draws @ theirs)
        return numbers

    def permuted(self, orders: Int) -> Mapping[Name, Float]:
        """Each number when the run's contexts are permuted."""
        numbers: dict[Name, Float] = {}
        if self.finite is not None:
            few = orders if self.finite.is_small else orders[:SLOW_PERMUTATIONS]
            numbers["", "finite_distance"] = np.sqrt(self.finite.permuted_errors(self.run, few))
        B, own = self.run.centred_logits[1], self._own.sum()
        for key, (pulled, theirs) in self._products.items():
            cross = np.array([float(np.vdot(pulled, B[:, order])) for order in orders])
            numbers[key, "logit_cosine"] = _cosine(cross, own, theirs.sum())
        return numbers

    @cached_property
    def _errors(self) -> Float | None:
        return None if self.finite is None else self.finite.squared_errors(self.run)

    @cached_property
    def _own(self) -> Float:
        return column_products(self.run, self.run)

    @cached_property
    def _products(self) -> dict[str, tuple[Float, Float]]:
        """Key -> ``A^T C D`` with logits ``A B`` of the run and ``C D`` of the prediction, and norms of ``C D``.

        ``<A B_o, C D> = <A^T C D, B_o>``: one matrix of the size of B serves every permutation o of the contexts.
        """
        A, _ = self.run.centred_logits
        products = {}
        for key, target in self.targets.items():
            C, D = target.centred_logits
            products[key] = (A.T @ C) @ D, column_products(target, target)
        return products

    def with_other_runs(self, runs: list[Factors]) -> Mapping[Name, float]:
        """Mean cosine of this run's logits with those of others, under the names of every prediction."""
        others = LogitNumbers(self.run, {f"{place}": other for place, other in enumerate(runs)}, self.groups).values()
        mean = float(np.mean(list(others.values())))
        return {(key, "logit_cosine"): mean for key in self.targets}


def column_products(x: Factors, y: Factors) -> Float:
    """``<L_x[:, j], L_y[:, j]>`` of centred logits, m."""
    (A, B), (C, D) = x.centred_logits, y.centred_logits
    return np.asarray(np.einsum("im,im->m", B, (A.T @ C) @ D))


def _cosine(cross: Float, xx: Float, yy: Float) -> Float:
    """Cosine from inner products; NaN where either side is 0."""
    size = np.sqrt(xx * yy)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > 0, np.clip(cross / size, -1.0, 1.0), np.nan)


@dataclass(frozen=True, eq=False)
class CollapseNumbers(AbstractNumbers):
    """``collapse``: the score of the run's context directions by support group."""

    H: Float
    labels: Int
    items: ItemKind = "contexts"

    @cached_property
    def _data(self) -> tuple[Float, Int]:
        return directions_and_groups(self.H, self.labels)

    @property
    def size(self) -> int:
        """Number of contexts that have a direction and a group."""
        return int(self._data[1].size)

    @property
    def units(self) -> Int:
        """Support group of each context."""
        return self._data[1]

    @property
    def exchangeable(self) -> int:
        """Contexts are assigned to groups at random."""
        return self.size

    @property
    def better(self) -> Mapping[Name, Better]:
        """Lower: 0 is best."""
        return {("", "collapse"): "lower"}

    def values(self) -> Mapping[Name, float]:
        """The score itself."""
        return {("", "collapse"): subspace_collapse(self.H, self.labels)}

    def resampled(self, draws: Float) -> Mapping[Name, Float]:
        """The score of each selection of contexts."""
        X, group = self._data
        return {("", "collapse"): np.array([subspace_collapse(X[:, w > 0], group[w > 0]) for w in draws])}

    def permuted(self, orders: Int) -> Mapping[Name, Float]:
        """The score when contexts are assigned to groups at random, group sizes kept."""
        X, group = self._data
        return {("", "collapse"): np.array([subspace_collapse(X, group[order]) for order in orders])}
