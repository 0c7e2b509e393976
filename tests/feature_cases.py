"""Random statistics and supports for the tests of learned features."""

from __future__ import annotations

import numpy as np

from tokengeom.core.numerics import Bool, Float, Int
from tokengeom.statistics.next_token import NextTokenStatistics

from_counts = NextTokenStatistics.from_counts


def random_counts(V: int, m: int, k: int, seed: int) -> Int:
    """Counts with k next tokens in every context, V x m."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((V, m), dtype=np.int64)
    for j in range(m):
        counts[rng.choice(V, size=k, replace=False), j] = rng.integers(1, 10, size=k)
    return counts


def random_probabilities(V: int, m: int, seed: int, density: float = 0.5) -> Float:
    """Probabilities with random supports, V x m; about ``density`` of the entries are positive."""
    rng = np.random.default_rng(seed)
    P = rng.random((V, m)) * (rng.random((V, m)) < density)
    P[rng.integers(V, size=m), np.arange(m)] += 0.1
    return np.asarray(P / P.sum(axis=0))


def random_pattern(V: int, m: int, seed: int, density: float = 0.4) -> Bool:
    """A random support pattern, V x m, in which every context has at least one token."""
    rng = np.random.default_rng(seed)
    S = rng.random((V, m)) < density
    S[rng.integers(V, size=m), np.arange(m)] = True
    return np.asarray(S)
