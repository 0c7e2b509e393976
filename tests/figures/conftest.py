"""Predictions and short runs that the figures are made from, each made once."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.figures.heatmaps import Snapshots
from tokengeom.geometry.probes import feature_probes, linear_probes
from tokengeom.problems.instances import overparameterised, plane
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction, predict_features
from tokengeom.theory.linear import LinearPrediction, predict_linear
from tokengeom.training.run import Run
from tokengeom.training.train import train

NAMES = ["ran", "<script>", "$ba_rk$", "slept", "smiled"]


@pytest.fixture(scope="session")
def in_the_plane() -> LinearPrediction:
    data = plane((90, 210, 330))
    rng = np.random.default_rng(0)
    P = np.zeros((5, 3))
    for j in range(3):
        P[data.S[:, j], j] = rng.dirichlet(np.full(3, 3.0))
    stats = NextTokenStatistics.from_probabilities(P, contexts=["the dog", "a cat", "my friend"], vocabulary=NAMES)
    return predict_linear(stats, data.H)


@pytest.fixture(scope="session")
def linear_case() -> tuple[LinearPrediction, dict[str, Run]]:
    data = overparameterised(0)
    stats = NextTokenStatistics.from_probabilities(data.P, data.pi)
    prediction = predict_linear(stats, data.H)
    probes = linear_probes(prediction)
    runs = {
        name.upper(): train(
            stats, "linear", embeddings=data.H, optimizer=name, learning_rate=rate, steps=300, probes=probes
        )
        for name, rate in (("gd", 0.5), ("ngd", 0.01), ("adam", 0.01))
    }
    return prediction, runs


@pytest.fixture(scope="session")
def stats(built_in: NextTokenStatistics) -> NextTokenStatistics:
    return built_in.limited(contexts=60, vocabulary=40)


@pytest.fixture(scope="session")
def prediction(stats: NextTokenStatistics) -> FeaturePrediction:
    return predict_features(stats)


@pytest.fixture(scope="session")
def snapshots() -> Snapshots:
    return Snapshots([0, 30, 200])


@pytest.fixture(scope="session")
def run(stats: NextTokenStatistics, prediction: FeaturePrediction, snapshots: Snapshots) -> Run:
    probes = {**feature_probes(prediction), "snapshots": snapshots}
    return train(stats, "ufm", dim=40, optimizer="adamw", learning_rate=1e-2, steps=200, probes=probes)
