"""Small problems that every test of training shares."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.statistics.next_token import NextTokenStatistics


def random_statistics(seed: int, V: int = 7, m: int = 9, k: int = 3) -> NextTokenStatistics:
    """Random supports of size k, random probabilities, and unequal shares of the contexts."""
    rng = np.random.default_rng(seed)
    P = np.zeros((V, m))
    for j in range(m):
        P[rng.choice(V, k, replace=False), j] = rng.dirichlet(np.ones(k))
    return NextTokenStatistics.from_probabilities(P, rng.dirichlet(np.full(m, 5.0)))


@pytest.fixture
def stats() -> NextTokenStatistics:
    return random_statistics(0)


@pytest.fixture
def embeddings() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((5, 9))
