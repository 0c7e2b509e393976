"""Random settings of the linear model, and gradient descent on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom import LinearPrediction, NextTokenStatistics, Run, train
from tokengeom.extending import Float, linear_probes
from tokengeom_studies.common.random_data import dirichlet_counts, random_supports


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
