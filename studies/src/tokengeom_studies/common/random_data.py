"""Random supports, statistics on them, and random settings of the linear model with gradient descent on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from tokengeom import LinearPrediction, NextTokenStatistics, Run, train
from tokengeom.extending import Bool, Float, InputError, linear_probes


def random_supports(rng: np.random.Generator, V: int, m: int, size: int) -> Bool:
    """V x m supports, each a uniform choice of ``size`` tokens."""
    if not 1 <= size <= V:
        raise InputError(f"A support must hold between 1 and V={V} tokens; got size={size}.")
    return np.asarray(np.argsort(rng.random((V, m)), axis=0) < size)


def with_random_repeats(rng: np.random.Generator, S: Bool | sparse.csc_array, most: int) -> NextTokenStatistics:
    """Statistics with the given supports (V x m), each pair of context and token seen 1 to ``most`` times."""
    table = sparse.csc_array(S)
    repeats = rng.integers(1, most + 1, table.nnz)
    counts = sparse.csc_array((repeats, table.indices, table.indptr), shape=table.shape)
    return NextTokenStatistics.from_counts(counts)


def random_counts(seed: int, V: int, m: int, size: int, most: int) -> NextTokenStatistics:
    """The papers' synthetic setting: m random supports of one size, each pair seen 1 to ``most`` times."""
    rng = np.random.default_rng(seed)
    return with_random_repeats(rng, random_supports(rng, V, m, size), most)


def repeated(stats: NextTokenStatistics, seed: int, most: int) -> NextTokenStatistics:
    """The same contexts, tokens and supports, each pair seen 1 to ``most`` times: the papers' simplified stories."""
    drawn = with_random_repeats(np.random.default_rng(seed), stats.S, most)
    return replace(stats, table=drawn.table, effects=())


def dirichlet_counts(rng: np.random.Generator, S: Bool, n: int) -> NextTokenStatistics:
    """Count n windows: contexts are equally likely, and the tokens of a context follow Dirichlet(1) on its support.

    Every token of a support is seen at least once, because a support is what was seen. Counting matters: a rare token
    has a share of at least ``1/n_j``, where Dirichlet(1) itself has no lower limit, so ``W*`` stays moderate and is
    reached within the papers' number of steps.
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


@dataclass(frozen=True, eq=False)
class LinearSetting:
    """Statistics and fixed embeddings H (d x m) of their contexts."""

    stats: NextTokenStatistics
    H: Float


def random_setting(seed: int, *, V: int, m: int, d: int, support_size: int, n: int) -> LinearSetting:
    """The setting of docs/theory.md 6.1: supports of one size, n counted windows, embeddings N(0, I)."""
    rng = np.random.default_rng(seed)
    S = random_supports(rng, V, m, support_size)
    return LinearSetting(dirichlet_counts(rng, S, n), rng.standard_normal((d, m)))


def step_limit(setting: LinearSetting) -> float:
    """``1 / L`` with ``L = ||sum_j pi_j h_j h_j^T||_2 / 2``.

    With a step below twice this, gradient descent on the mean loss never increases it.
    """
    weighted = setting.H * np.sqrt(setting.stats.pi)
    return 2.0 / float(np.linalg.norm(weighted, 2)) ** 2


def descend(setting: LinearSetting, prediction: LinearPrediction, steps: int) -> Run:
    """Gradient descent on the mean loss from ``W = 0`` at `step_limit`, measured against the prediction."""
    return train(
        setting.stats,
        "linear",
        embeddings=setting.H,
        optimizer="gd",
        reduction="mean",
        learning_rate=step_limit(setting),
        steps=steps,
        init="zero",
        probes=linear_probes(prediction),
    )
