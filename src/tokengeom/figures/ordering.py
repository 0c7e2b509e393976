"""Names of contexts and tokens, from statistics where there are any.

An order of contexts or tokens in which the structure of a matrix can be seen.

Support groups stay together; the groups stand in the order of the leaves of a hierarchical clustering of

``distance(g, h) = 1 - cos(g, h)``

where ``cos(g, h)`` is the mean predicted cosine between the members of groups g and h (in theory all are equal).
Flipping the branches so that neighbours are as close as possible (optimal leaf ordering) costs the square of the
number of groups and more, so it is done up to ``OPTIMAL`` groups.

One order of contexts and tokens for every heat-map of learned features: that of the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import HeatmapPanel
from tokengeom.numerics import Float, Int, cosines
from tokengeom.theory.features import FeaturePrediction


def context_names(stats: Any, m: int) -> list[str]:
    """What a person calls each context: its text, or its number where there is none."""
    if stats is not None and hasattr(stats, "context_text"):
        return [str(stats.context_text(j)) for j in range(m)]
    given = getattr(stats, "context_names", None)
    return [str(name) for name in given] if given is not None else [f"context {j}" for j in range(m)]


def token_names(stats: Any, V: int) -> list[str]:
    """What a person calls each token: its text, or its number where there is none."""
    given = getattr(stats, "vocabulary", None)
    given = getattr(stats, "token_names", None) if given is None else given
    return [str(name) for name in given] if given is not None else [f"token {z}" for z in range(V)]


OPTIMAL = 400


@dataclass(frozen=True, eq=False)
class Order:
    """Indices in the order to be drawn, and the places in it where a group of several members begins or ends."""

    indices: Int
    breaks: tuple[int, ...]

    def names(self, names: Sequence[str]) -> list[str]:
        """Names in this order; none where none are given."""
        return [names[int(i)] for i in self.indices] if len(names) else []

    def thinned(self, most: int | None) -> Order:
        """At most so many indices, taken evenly along the order; a break goes where its group's first member goes."""
        count = self.indices.size
        if most is None or count <= most:
            return self
        kept = np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))
        places = np.searchsorted(kept, np.asarray(self.breaks, dtype=np.int64))
        inside = sorted({int(p) for p in places if 0 < p < kept.size})
        return Order(self.indices[kept], tuple(inside))


def order_groups(groups: Any, cosines: Float) -> Order:
    """Order items by group (equal numbers share one; negative ones are a group too), groups by their cosines."""
    labels = np.asarray(groups, dtype=np.int64)
    if cosines.shape != (labels.size, labels.size):
        raise InputError(
            f"Cosines must be a square matrix with a row for each of the {labels.size} items; got {cosines.shape}."
        )
    distinct, inverse = np.unique(labels, return_inverse=True)
    sizes = np.bincount(inverse, minlength=distinct.size)
    ranks = np.empty(distinct.size, dtype=np.int64)
    ranks[_leaves(_between(cosines, inverse, sizes))] = np.arange(distinct.size)
    indices = np.argsort(ranks[inverse], kind="stable")
    return Order(indices, _breaks(sizes[np.argsort(ranks, kind="stable")]))


def order_by_cosines(cosines: Float) -> Order:
    """Order items by their cosines alone: each is its own group."""
    return order_groups(np.arange(cosines.shape[0]), cosines)


def _between(cosines: Float, group: Int, sizes: Int) -> Float:
    """Mean cosine between groups; what is not a number counts as a right angle."""
    from scipy.sparse import csr_array

    clean = np.nan_to_num(cosines, nan=0.0, posinf=0.0, neginf=0.0)
    member = csr_array((1.0 / sizes[group], (group, np.arange(group.size))), shape=(sizes.size, group.size))
    half = np.asarray(member @ clean)
    return np.asarray((member @ half.T).T)


def _leaves(cosines: Float) -> Int:
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    count = cosines.shape[0]
    if count < 3:
        return np.arange(count)
    distances = np.maximum(1.0 - 0.5 * (cosines + cosines.T), 0.0)
    np.fill_diagonal(distances, 0.0)
    tree = linkage(squareform(distances, checks=False), "average", optimal_ordering=count <= OPTIMAL)
    return np.asarray(leaves_list(tree), dtype=np.int64)


def _breaks(sizes: Int) -> tuple[int, ...]:
    """Ends of groups; between two groups of one member each there is nothing to set apart."""
    ends = np.cumsum(sizes)[:-1]
    several = (sizes[:-1] > 1) | (sizes[1:] > 1)
    return tuple(int(end) for end in ends[several])


MANY = 400
"""Contexts or tokens beyond which a heat-map shows an even selection: more would be smaller than a pixel."""


@dataclass(frozen=True, eq=False)
class FeatureOrder:
    """Contexts and tokens in the order of the prediction, with their names in that order."""

    contexts: Order
    tokens: Order
    context_names: Sequence[str]
    token_names: Sequence[str]
    m: int
    V: int

    def context_cosines(self, title: str, H: Float) -> HeatmapPanel:
        """Cosines between contexts' embeddings (columns of H, d x m), chosen and ordered."""
        values = cosines(H[:, self.contexts.indices])
        names, breaks = self.context_names, self.contexts.breaks
        return HeatmapPanel(title, values, "contexts", "contexts", names, names, breaks, breaks, -1.0, 1.0, "cosine")

    def token_cosines(self, title: str, W: Float) -> HeatmapPanel:
        """Cosines between words' embeddings (rows of W, V x d), chosen and ordered."""
        values = cosines(W[self.tokens.indices].T)
        names, breaks = self.token_names, self.tokens.breaks
        return HeatmapPanel(title, values, "tokens", "tokens", names, names, breaks, breaks, -1.0, 1.0, "cosine")

    def logits(
        self, title: str, L: Float, low: float | None = None, high: float | None = None, label: str = ""
    ) -> HeatmapPanel:
        """A V x m matrix, chosen and ordered."""
        values = np.asarray(L[np.ix_(self.tokens.indices, self.contexts.indices)], dtype=np.float64)
        return HeatmapPanel(
            title,
            values,
            "contexts",
            "tokens",
            self.context_names,
            self.token_names,
            self.contexts.breaks,
            self.tokens.breaks,
            low,
            high,
            label,
        )

    def sentence(self) -> str:
        """How the heat-maps are ordered, for a caption."""
        shown = self.contexts.indices.size, self.tokens.indices.size
        chosen = "" if shown == (self.m, self.V) else f" Shown are {shown[0]} contexts and {shown[1]} tokens."
        return (
            f"{self.m} contexts, {self.V} tokens. Contexts with the same possible next tokens stand together, and so "
            "do tokens with the same contexts (thin lines part these groups); groups with a high predicted cosine are "
            f"neighbours. All panels share this order.{chosen}"
        )


def feature_order(prediction: FeaturePrediction, stats: Any = None, *, most: int | None = MANY) -> FeatureOrder:
    """Order contexts and tokens by support group and predicted cosines; names come from the statistics."""
    m, V = prediction.reduction.m, prediction.reduction.V
    contexts = order_groups(prediction.context_groups, prediction.context_cosines).thinned(most)
    tokens = order_groups(prediction.token_groups, prediction.token_cosines).thinned(most)
    names = contexts.names(context_names(stats, m)), tokens.names(token_names(stats, V))
    return FeatureOrder(contexts, tokens, *names, m, V)
