"""Small problems for the tests of training."""

from __future__ import annotations

import numpy as np

from tokengeom.core.numerics import Float
from tokengeom.statistics.next_token import NextTokenStatistics


def random_statistics(seed: int, V: int = 7, m: int = 9, k: int = 3) -> NextTokenStatistics:
    """Random supports of size k, random probabilities, and unequal shares of the contexts."""
    rng = np.random.default_rng(seed)
    P = np.zeros((V, m))
    for j in range(m):
        P[rng.choice(V, k, replace=False), j] = rng.dirichlet(np.ones(k))
    return NextTokenStatistics.from_probabilities(P, rng.dirichlet(np.full(m, 5.0)))


def paper_setting(seed: int) -> tuple[NextTokenStatistics, Float]:
    """The overparameterised linear setting: m=50, d=60, V=10, supports of 6, Dirichlet(1), Gaussian embeddings."""
    rng = np.random.default_rng(seed)
    P = np.zeros((10, 50))
    for j in range(50):
        P[rng.choice(10, 6, replace=False), j] = rng.dirichlet(np.ones(6))
    return NextTokenStatistics.from_probabilities(P), rng.standard_normal((60, 50))
