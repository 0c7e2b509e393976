"""Statistics whose contexts share supports, for the tests of geometry."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengeom.core.numerics import Float, Int
from tokengeom.statistics.windows import ABSENT


def structural_similarity(A: Float, B: Float, C: float = 1e-5) -> float:
    """SIM by definition: ``(cov(A, B) + C) / (sd(A) sd(B) + C)`` over all entries."""
    a, b = A - A.mean(), B - B.mean()
    return float((np.mean(a * b) + C) / (np.sqrt(np.mean(a * a) * np.mean(b * b)) + C))


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


def explained_contexts() -> Int:
    """Tokens of the 24 contexts of `explained_counts`, three each; suffixes of two tokens have two contexts."""
    return np.array(list(product(range(2), range(3), range(4))))


def kneser_ney(counts: Int, contexts: NDArray[np.integer[Any]], discount: float, kept: Int | None = None) -> Float:
    """Interpolated Kneser-Ney probabilities by definition, V x m; lower orders are those of the kept contexts."""
    V, m = counts.shape
    rows = [tuple(int(token) for token in row if token != ABSENT) for row in contexts]
    before: dict[tuple[int, ...], list[set[int]]] = {}
    for j in range(m) if kept is None else kept:
        for start in range(len(rows[j])):
            found = before.setdefault(rows[j][start + 1 :], [set() for _ in range(V)])
            for z in np.flatnonzero(counts[:, j]):
                found[z].add(rows[j][start])

    def probabilities(n: Float, u: tuple[int, ...]) -> Float:
        if n.sum() == 0:
            return lower(u[1:])
        weight = discount * np.count_nonzero(n) / n.sum()
        return np.asarray(np.maximum(n - discount, 0) / n.sum() + weight * lower(u[1:]))

    def lower(u: tuple[int, ...]) -> Float:
        n = np.array([len(tokens) for tokens in before.get(u, [set()] * V)], dtype=np.float64)
        return probabilities(n, u) if u else n / n.sum()

    return np.stack([probabilities(counts[:, j].astype(np.float64), rows[j]) for j in range(m)], axis=1)
