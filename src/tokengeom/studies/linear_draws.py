"""Random data that the studies of the linear model share: supports, counted windows, embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.errors import InputError
from tokengeom.numerics import Bool, Float
from tokengeom.statistics.next_token import NextTokenStatistics


@dataclass(frozen=True, eq=False)
class Draw:
    """Statistics and fixed embeddings H (d x m) of their contexts."""

    stats: NextTokenStatistics
    H: Float


def draw_supports(rng: np.random.Generator, V: int, m: int, size: int) -> Bool:
    """V x m supports, each a uniform choice of ``size`` tokens."""
    if not 1 <= size <= V:
        raise InputError(f"A support must hold between 1 and V={V} tokens; got size={size}.")
    order = np.argsort(rng.random((V, m)), axis=0)
    return np.asarray(order < size)


def draw_counts(rng: np.random.Generator, S: Bool, n: int) -> NextTokenStatistics:
    """Count n windows: contexts are equally likely, a context's tokens follow Dirichlet(1) on its support.

    Every token of a support is seen at least once, because a support is what was seen. Counting matters: a rare token
    has a share of at least ``1/n_j``, where Dirichlet(1) itself has no floor, so ``W*`` stays moderate and is reached
    within the published number of steps.
    """
    sizes = S.sum(axis=0)
    spare = n - int(sizes.sum())
    if spare < 0:
        raise InputError(f"n={n} windows cannot show each of {int(sizes.sum())} pairs of context and token once.")
    counts = S.astype(np.int64)
    for j, more in enumerate(rng.multinomial(spare, np.full(S.shape[1], 1 / S.shape[1]))):
        tokens = np.flatnonzero(S[:, j])
        counts[tokens, j] += rng.multinomial(more, rng.dirichlet(np.ones(len(tokens))))
    return NextTokenStatistics.from_counts(counts)


def draw_setting(seed: int, *, V: int, m: int, d: int, support_size: int, n: int) -> Draw:
    """Draw the setting of docs/theory.md 6.1: supports of one size, n counted windows, embeddings N(0, I)."""
    rng = np.random.default_rng(seed)
    S = draw_supports(rng, V, m, support_size)
    return Draw(draw_counts(rng, S, n), rng.standard_normal((d, m)))


def step_limit(draw: Draw) -> float:
    """``1 / L`` with ``L = ||sum_j pi_j h_j h_j^T||_2 / 2``: below twice this step gradient descent never climbs."""
    weighted = draw.H * np.sqrt(draw.stats.pi)
    return 2.0 / float(np.linalg.norm(weighted, 2)) ** 2
