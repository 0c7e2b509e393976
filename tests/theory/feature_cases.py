"""Small statistics for the tests of learned features."""

from __future__ import annotations

import numpy as np

from tokengeom.statistics.next_token import NextTokenStatistics

from_counts = NextTokenStatistics.from_counts


def random_counts(V: int, m: int, k: int, seed: int) -> np.ndarray:
    """Counts with k next tokens in every context, V x m."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((V, m), dtype=np.int64)
    for j in range(m):
        counts[rng.choice(V, size=k, replace=False), j] = rng.integers(1, 10, size=k)
    return counts
