"""The order in which heat-maps show contexts and tokens, and their names.

Members of a support group are adjacent. The groups are in the order of the leaves of a hierarchical clustering with

``distance(g, h) = 1 - cos(g, h)``

where ``cos(g, h)`` is the mean predicted cosine between the members of groups g and h (in theory all are equal).
Up to ``OPTIMAL`` groups, the branches are flipped so that neighbours are as close as possible (optimal leaf ordering);
its cost grows faster than the square of the number of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom.ask.named_vectors import Items, item_names
from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float, Int, cosines
from tokengeom.figures.base import HeatmapPanel
from tokengeom.problems.linear_data import LinearData
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction

OPTIMAL = 400
MANY = 400
"""Contexts or tokens beyond which a heat-map shows an even selection: more would be smaller than a pixel."""

Named = NextTokenStatistics | LinearData
"""What knows the names of contexts and tokens."""


def names_of(source: Named | None, items: Items, count: int) -> list[str]:
    """Text of each token or context; its number where the text is not known."""
    if isinstance(source, NextTokenStatistics):
        return list(item_names(source, items))
    known = None if source is None else source.token_names if items == "tokens" else source.context_names
    return [f"{items[:-1]} {i}" for i in range(count)] if known is None else [str(name) for name in known]


@dataclass(frozen=True, eq=False)
class Order:
    """Indices in the order of drawing, and the positions at which a group of several members begins or ends."""

    indices: Int
    breaks: tuple[int, ...]

    def names(self, names: Sequence[str]) -> list[str]:
        """Names in this order."""
        return [names[int(i)] for i in self.indices]

    def thinned(self, most: int | None) -> Order:
        """At most ``most`` indices, evenly spaced along the order; breaks move to the next index that is kept."""
        count = self.indices.size
        if most is None or count <= most:
            return self
        kept = np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))
        positions = np.searchsorted(kept, np.asarray(self.breaks, dtype=np.int64))
        inside = sorted({int(p) for p in positions if 0 < p < kept.size})
        return Order(self.indices[kept], tuple(inside))


def order_groups(groups: Sequence[int] | Int, cosines: Float) -> Order:
    """Order items by group (equal numbers are one group, also negative ones), and groups by their cosines."""
    labels = np.asarray(groups, dtype=np.int64)
    if cosines.shape != (labels.size, labels.size):
        raise InputError(
            f"Cosines must be a square matrix with one row for each of the {labels.size} items; got {cosines.shape}."
        )
    distinct, inverse = np.unique(labels, return_inverse=True)
    sizes = np.bincount(inverse, minlength=distinct.size)
    ranks = np.empty(distinct.size, dtype=np.int64)
    ranks[_leaves(_between_groups(cosines, inverse, sizes))] = np.arange(distinct.size)
    indices = np.argsort(ranks[inverse], kind="stable")
    return Order(indices, _breaks(sizes[np.argsort(ranks, kind="stable")]))


def _between_groups(cosines: Float, group: Int, sizes: Int) -> Float:
    """Mean cosine between groups; NaN and infinities count as 0."""
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
    """Ends of groups; two adjacent groups of one member each are not separated."""
    ends = np.cumsum(sizes)[:-1]
    several = (sizes[:-1] > 1) | (sizes[1:] > 1)
    return tuple(int(end) for end in ends[several])


def cosine_panel(title: str, kind: str, C: Float, names: Sequence[str], breaks: Sequence[int]) -> HeatmapPanel:
    """Heat-map of the cosines between items of one kind, which are in order."""
    return HeatmapPanel(title, C, kind, kind, names, names, breaks, breaks, -1.0, 1.0, "cosine")


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
        """Heat-map of the cosines between contexts (columns of H, d x m), in this order."""
        values = cosines(H[:, self.contexts.indices])
        return cosine_panel(title, "contexts", values, self.context_names, self.contexts.breaks)

    def token_cosines(self, title: str, W: Float) -> HeatmapPanel:
        """Heat-map of the cosines between tokens (rows of W, V x d), in this order."""
        values = cosines(W[self.tokens.indices].T)
        return cosine_panel(title, "tokens", values, self.token_names, self.tokens.breaks)

    def logits(self, title: str, L: Float, low: float, high: float, label: str) -> HeatmapPanel:
        """Heat-map of a V x m matrix, in this order."""
        values = np.asarray(L[np.ix_(self.tokens.indices, self.contexts.indices)], dtype=np.float64)
        return self.panel(title, values, low, high, label)

    def panel(self, title: str, values: Float, low: float, high: float, label: str) -> HeatmapPanel:
        """Heat-map of a matrix whose rows and columns are already those of this order."""
        names, breaks = (self.context_names, self.token_names), (self.contexts.breaks, self.tokens.breaks)
        return HeatmapPanel(title, values, "contexts", "tokens", *names, *breaks, low, high, label)

    def sentence(self) -> str:
        """How the heat-maps are ordered, for a caption."""
        shown = self.contexts.indices.size, self.tokens.indices.size
        chosen = "" if shown == (self.m, self.V) else f" Shown are {shown[0]:,} contexts and {shown[1]:,} tokens."
        return (
            f"{self.m:,} contexts, {self.V:,} tokens.{chosen} All panels have the same order: contexts with the same "
            "support are adjacent, and so are tokens with the same contexts (thin lines separate these groups where "
            "there is space); groups with a high predicted cosine are neighbours."
        )


def feature_order(
    prediction: FeaturePrediction, stats: NextTokenStatistics | None = None, *, most: int | None = MANY
) -> FeatureOrder:
    """Contexts and tokens by support group and predicted cosine, at most ``most`` of each; named by the statistics."""
    m, V = prediction.reduction.m, prediction.reduction.V
    contexts = order_groups(prediction.context_groups, prediction.context_cosines).thinned(most)
    tokens = order_groups(prediction.token_groups, prediction.token_cosines).thinned(most)
    names = contexts.names(names_of(stats, "contexts", m)), tokens.names(names_of(stats, "tokens", V))
    return FeatureOrder(contexts, tokens, *names, m, V)
