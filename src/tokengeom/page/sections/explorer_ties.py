"""What contexts of the explorer have in common where they are tied: their features, with names and vectors.

The page's script adds the vectors of a context's features, as the prediction with ties does, and divides the cosine of
two contexts into what each feature gives that both have, and what different ones give.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokengeom.core.numerics import Int
from tokengeom.page.sections.explorer_numbers import in_bytes, pack
from tokengeom.page.tied_stages import TiedContexts
from tokengeom.statistics.next_token import NextTokenStatistics

MOST_NUMBERS = 3_000_000
"""Entries of the vectors of features; beyond that, only the most frequent contexts have their features."""


def tied_features(known: TiedContexts | None, stats: NextTokenStatistics, chosen: Int) -> dict[str, Any] | None:
    """Names, kinds and vectors of the features of the chosen contexts, the most frequent first; None without ties."""
    if known is None or known.tied is None or stats.contexts is None:
        return None
    features, A = known.tied.features, known.tied.A
    Phi = features.of(stats.contexts[chosen])
    # Each feature is counted where it occurs first, so that the first contexts have all of theirs.
    used, first = np.unique(Phi.indices, return_index=True)
    order = np.argsort(first, kind="stable")[: MOST_NUMBERS // max(len(A), 1)]
    used = used[order]
    place = np.full(features.F, -1)
    place[used] = np.arange(used.size)
    complete = np.minimum.accumulate([bool((place[_of(Phi, j)] >= 0).all()) for j in range(chosen.size)])
    kept = int(np.sum(complete))
    starts, rows = Phi.indptr[: kept + 1], Phi.indices[: Phi.indptr[kept]]
    weight = np.ones(features.F)
    weight[Phi.indices] = Phi.data
    return {
        "gap": known.tied.loss_gap,
        "kinds": [features.kind(int(f)) for f in used],
        "names": [features.name(int(f), known.counted.text) for f in used],
        "vectors": in_bytes((A[:, used] * weight[used]).T),
        "starts": pack(starts, "uint32"),
        "features": pack(place[rows], "uint32"),
    }


def _of(Phi: Any, j: int) -> Int:
    return np.asarray(Phi.indices[Phi.indptr[j] : Phi.indptr[j + 1]], np.int64)
