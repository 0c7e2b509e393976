"""Contexts left out: explanations are made from the others, and judged on these; every context has its turn.

Whole support groups are left out, so that no context which is judged shares its support with one that the words were
made from. A token that follows none of the kept contexts has no word; what is left out is read on the other tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.statistics.next_token import NextTokenStatistics

if TYPE_CHECKING:
    from tokengeom.problems.support_reduction import Int

FEWEST = 3
"""Contexts, and supports of the others, below which there is nothing to judge, or nothing to judge it with."""
DEALS = 4
"""Times that folds are dealt: which supports are left out together moves SIM by about as much as rivals differ."""
FEW_ENTRIES = 100_000
"""Tokens times supports up to which a solve for L_mm takes about a tenth of a second."""


@dataclass(frozen=True, eq=False)
class Split:
    """Statistics of the kept contexts, and what is judged.

    ``columns``
        Contexts that are judged, in the order of the statistics that were split.
    ``P``
        Their next-token probabilities on the kept tokens, V' x k.
    ``lost_tokens``
        Tokens that follow no kept context. Left-out contexts that only such tokens follow cannot be placed or judged.
    """

    kept: NextTokenStatistics
    columns: Int
    P: Any
    lost_tokens: int


def deals_for(stats: NextTokenStatistics) -> int:
    """How often folds are dealt: once where statistics are large, since every turn solves for L_mm again."""
    return DEALS if stats.V * stats.groups.count <= FEW_ENTRIES else 1


def folds(stats: NextTokenStatistics, share: float, seed: int, deals: int = 1) -> list[Split]:
    """Deal support groups into ``1/share`` folds of about equal size, ``deals`` times anew; each fold is left out once.

    Groups are drawn at random and go where the fewest contexts are. A fold in which fewer than ``FEWEST`` contexts can
    be placed, or that leaves fewer than ``FEWEST`` supports to others, is not judged; there may be none that is.
    """
    if not 0.0 < share <= 0.5:
        raise ProblemError(
            f"The share of contexts to hold out must be above 0 and at most 0.5; got held_out={share}. 0.2 is usual, "
            "0 holds none out."
        )
    rng, count, found = np.random.default_rng(seed), round(1.0 / share), []
    for _ in range(deals):
        fold_of = _dealt(stats.groups.multiplicity, count, rng)
        enough = [fold for fold in range(count) if np.count_nonzero(fold_of != fold) >= FEWEST]
        found += [leave_out(stats, np.flatnonzero(fold_of[stats.groups.label] == fold)) for fold in enough]
    return [split for split in found if split.columns.size >= FEWEST]


def _dealt(sizes: Int, count: int, rng: np.random.Generator) -> Int:
    """Fold of each group."""
    filled, fold_of = np.zeros(count), np.empty(sizes.size, dtype=np.int64)
    for group in rng.permutation(sizes.size):
        fold_of[group] = np.argmin(filled)
        filled[fold_of[group]] += sizes[group]
    return fold_of


def leave_out(stats: NextTokenStatistics, columns: Int) -> Split:
    """Leave out these contexts."""
    kept = np.setdiff1d(np.arange(stats.m), columns)
    seen = np.asarray(stats.S[:, kept].sum(axis=1)).ravel() > 0
    mass = np.asarray(stats.P[seen].sum(axis=0)).ravel()
    placed = columns[mass[columns] > 0]
    inside = stats.P[seen].tocsc()
    return Split(
        NextTokenStatistics.from_probabilities(inside[:, kept], stats.pi[kept] / stats.pi[kept].sum()),
        placed,
        (inside[:, placed] / mass[placed]).tocsc(),
        int((~seen).sum()),
    )
