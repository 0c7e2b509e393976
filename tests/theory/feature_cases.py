"""Small statistics for the tests of learned features: what the theory reads, and no more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array


@dataclass(frozen=True)
class SmallStatistics:
    P: csc_array
    S: csc_array
    pi: np.ndarray
    entropy: float


def from_counts(counts: np.ndarray) -> SmallStatistics:
    n = counts.sum(axis=0)
    P = counts / n
    pi = n / n.sum()
    entropy = float(-(pi * (P * np.log(np.where(P > 0, P, 1.0))).sum(axis=0)).sum())
    return SmallStatistics(csc_array(P), csc_array((counts > 0).astype(np.uint8)), pi, entropy)


def random_counts(V: int, m: int, k: int, seed: int) -> np.ndarray:
    """Counts with k next tokens in every context, V x m."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((V, m), dtype=np.int64)
    for j in range(m):
        counts[rng.choice(V, size=k, replace=False), j] = rng.integers(1, 10, size=k)
    return counts
