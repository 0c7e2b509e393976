"""Counts of texts with named tokens and contexts, samples of a language, and movement by its definition."""

from __future__ import annotations

from typing import Any

import numpy as np

from synthetic_languages import WindowLanguage
from tokengeom.core.numerics import cosines
from tokengeom.statistics.next_token import NextTokenStatistics


def named_counts(counts: np.ndarray[Any, Any], first: int = 0) -> NextTokenStatistics:
    """Statistics whose tokens and contexts are named by number, the first of them ``first``."""
    V, m = counts.shape
    tokens = [f"t{z:02d}" for z in range(first, first + V)]
    return NextTokenStatistics.from_counts(counts, [f"c{j:02d}" for j in range(first, first + m)], tokens)


def random_counts(seed: int, V: int = 14, m: int = 22) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, size=(V, m)) * (rng.random((V, m)) < 0.3)
    counts[rng.integers(0, V, m), np.arange(m)] = 3
    counts[np.arange(V), np.arange(V)] += 1
    # Two contexts of one support.
    counts[:, 1] = counts[:, 0]
    counts[1, 2] += 1
    return counts


def sampled(language: WindowLanguage, n: int, seed: int) -> NextTokenStatistics:
    """Statistics of n windows of a language; tokens and contexts without a window are left out."""
    P, pi = language.truth.P.toarray(), language.truth.pi
    counts = np.random.default_rng(seed).multinomial(n, (P * pi).ravel() / (P * pi).sum()).reshape(P.shape)
    rows, columns = np.flatnonzero(counts.sum(axis=1)), np.flatnonzero(counts.sum(axis=0))
    contexts, tokens = [f"c{j:03d}" for j in columns], [f"t{z:03d}" for z in rows]
    return NextTokenStatistics.from_counts(counts[rows][:, columns], contexts, tokens)


def brute_force(first: Any, second: Any, units: Any) -> list[float]:
    """The definition, item by item."""
    x, y, result = cosines(first), cosines(second), []
    for i in range(len(units)):
        others = [j for j in range(len(units)) if units[j] != units[i]]
        result.append(1.0 - np.corrcoef(x[i, others], y[i, others])[0, 1])
    return result
