"""An order of contexts or tokens in which the structure of a matrix can be seen.

Support groups stay together; the groups stand in the order of the leaves of a hierarchical clustering of

``distance(g, h) = 1 - cos(g, h)``

where ``cos(g, h)`` is the mean predicted cosine between the members of groups g and h (in theory all are equal).
Flipping the branches so that neighbours are as close as possible (optimal leaf ordering) costs the square of the
number of groups and more, so it is done up to ``OPTIMAL`` groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import InputError
from tokengeom.numerics import Float

Int = NDArray[np.int64]
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
