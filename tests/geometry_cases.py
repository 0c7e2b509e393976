"""Statistics whose contexts share supports, for the tests of geometry."""

from __future__ import annotations

import numpy as np


def grouped_counts(V: int, groups: int, copies: int, k: int, seed: int) -> np.ndarray:
    """Counts V x (groups * copies): each support of k tokens is shared by some contexts with counts of their own."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((V, groups * copies), dtype=np.int64)
    for g in range(groups):
        support = rng.choice(V, size=k, replace=False)
        for c in range(copies):
            counts[support, g * copies + c] = rng.integers(1, 10, size=k)
    return counts
