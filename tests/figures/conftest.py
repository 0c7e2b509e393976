"""Predictions and short runs that figures are made from, and one figure or more of every builder; each made once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from linear_instances import overparameterised, plane
from tokengeom.comparison.checkpoints import CheckpointComparison, CheckpointCurve
from tokengeom.comparison.compare import compare
from tokengeom.comparison.monitor import feature_probes, linear_probes
from tokengeom.comparison.rivals import rivals
from tokengeom.core.factors import Factors
from tokengeom.figures.base import Figure
from tokengeom.figures.comparisons import checkpoints, rival_bars
from tokengeom.figures.heatmaps import (
    evolution,
    feature_heatmaps,
    labelled_contexts,
    labelled_tokens,
    linear_plane,
    pattern_triple,
)
from tokengeom.figures.training_curves import LearnedConcepts, concepts, feature_training, path
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.concepts import Concepts
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.linear_path import norm_path
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import proxy
from tokengeom.training.loop import Probe, State
from tokengeom.training.objective import SoftLabels
from tokengeom.training.run import Run
from tokengeom.training.train import train

NAMES = ["ran", "<script>", "$ba_rk$", "slept", "smiled"]
LinearCase = tuple[LinearPrediction, dict[str, Run]]


@pytest.fixture(scope="session")
def in_the_plane() -> LinearPrediction:
    data = plane((90, 210, 330))
    rng = np.random.default_rng(0)
    P = np.zeros((5, 3))
    for j in range(3):
        P[data.S[:, j], j] = rng.dirichlet(np.full(3, 3.0))
    stats = NextTokenStatistics.from_probabilities(P, contexts=["the dog", "a cat", "my friend"], vocabulary=NAMES)
    return predict(stats, embeddings=data.H)


@pytest.fixture(scope="session")
def linear_case() -> LinearCase:
    data = overparameterised(0)
    stats = NextTokenStatistics.from_probabilities(data.P, data.pi)
    prediction = predict(stats, embeddings=data.H)
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
    return built_in.limited(top_contexts=60, vocabulary=40)


@pytest.fixture(scope="session")
def prediction(stats: NextTokenStatistics) -> FeaturePrediction:
    return predict(stats)


@pytest.fixture(scope="session")
def snapshots() -> dict[int, Factors]:
    """W and H at three steps of `run`, which fills it."""
    return {}


@pytest.fixture(scope="session")
def run(stats: NextTokenStatistics, prediction: FeaturePrediction, snapshots: dict[int, Factors]) -> Run:
    def keep(state: State) -> dict[str, float]:
        if state.step in (0, 32, 200):
            snapshots[state.step] = Factors(state.W.copy(), state.H.copy())
        return {}

    probes: dict[str, Probe] = {**feature_probes(prediction), "snapshots": keep}
    return train(stats, "ufm", dim=40, optimizer="adamw", learning_rate=1e-2, steps=200, probes=probes)


@pytest.fixture(scope="session")
def over_training(
    stats: NextTokenStatistics, prediction: FeaturePrediction, run: Run, snapshots: dict[int, Factors]
) -> CheckpointCurve:
    """The run's snapshots as if they were checkpoints of a model."""
    labels = SoftLabels.from_statistics(stats)
    points = [
        CheckpointComparison(
            model=f"checkpoint-{step}",
            step=step,
            convention="",
            factors=factors,
            loss_gap=labels.loss_gap(factors.logits),
            entropy=stats.entropy,
            bos=False,
            other_gap=None,
            windows=stats.n,
            context=4,
            is_proxy=False,
            comparison=compare(prediction, factors, permutations=20),
        )
        for step, factors in snapshots.items()
    ]
    return CheckpointCurve(tuple(points), prediction, stats)


@pytest.fixture(scope="session")
def figures(
    in_the_plane: LinearPrediction,
    linear_case: LinearCase,
    stats: NextTokenStatistics,
    prediction: FeaturePrediction,
    run: Run,
    snapshots: dict[int, Factors],
    over_training: CheckpointCurve,
) -> dict[str, list[Figure]]:
    """Figures by the name of their builder."""
    linear, _ = linear_case
    without_steps = tuple(replace(point, step=None) for point in over_training)
    found = Concepts.of(proxy(stats.S))
    learned = LearnedConcepts(np.arange(5.0), np.random.default_rng(1).uniform(size=(6, 5)))
    return {
        "linear_plane": [linear_plane(in_the_plane)],
        "feature_training": [feature_training({"UFM": run})],
        "feature_heatmaps": [feature_heatmaps(prediction, {"UFM": run}, stats=stats), feature_heatmaps(prediction)],
        "pattern_triple": [pattern_triple(prediction, stats=stats), pattern_triple(prediction, most=10)],
        "evolution": [evolution(snapshots, prediction, stats=stats)],
        "labelled_contexts": [labelled_contexts(prediction, stats, run=run), labelled_contexts(prediction, stats)],
        "labelled_tokens": [labelled_tokens(prediction, stats, run=run), labelled_tokens(prediction, stats)],
        "path": [path(norm_path(linear, np.logspace(0.5, 4, 8)))],
        "rival_bars": [
            rival_bars(rivals(stats, run, prediction, permutations=20)),
            rival_bars(rivals(stats, run, prediction, permutations=0)),
        ],
        "concepts": [concepts(found, stats), concepts(found, stats, learned=learned)],
        "checkpoints": [checkpoints(over_training), checkpoints(replace(over_training, points=without_steps))],
    }
