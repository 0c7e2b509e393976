"""Statistics whose contexts share supports, for the tests of geometry."""

from __future__ import annotations

import numpy as np

from tokengeom.core.numerics import Int


def grouped_counts(V: int, groups: int, copies: int, k: int, seed: int) -> Int:
    """Counts V x (groups * copies): ``copies`` contexts with different counts share each support of k tokens."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((V, groups * copies), dtype=np.int64)
    for g in range(groups):
        support = rng.choice(V, size=k, replace=False)
        for c in range(copies):
            counts[support, g * copies + c] = rng.integers(1, 10, size=k)
    return counts


def explained_counts() -> Int:
    """Counts 12 x 24 on which all explanations differ; one context has a single next token, where L_in is 0."""
    counts = grouped_counts(12, 8, 3, 3, seed=5)
    counts[:, 4] = 0
    counts[2, 4] = 6
    return counts
