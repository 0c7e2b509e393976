"""The geometry of a transformer, which computes its context embeddings from tokens, beside that of free embeddings.

The comparison of [zhao2024]: a transformer, a model of unconstrained features, L_mm and the proxy side by side, on the
most frequent contexts and tokens of the built-in stories. The models are trained once with natural counts and once with
each pair of context and token seen a random 1 to 4 times; the supports, and so L_mm, are the same. The papers' SIM with
L_mm is given beside the agreement with the prediction at the loss that each model has reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tokengeom import FeaturePrediction, NextTokenStatistics, predict
from tokengeom.extending import AbstractProgress, Figure, evolution, feature_heatmaps, feature_training
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.model_runs import (
    ITEMS,
    Snapshots,
    Trained,
    agreement_checks,
    agreement_table,
    between_runs,
    count_stories,
    outcome,
    reported_loss_checks,
    require_device,
    train_and_compare,
    train_ufm_and_compare,
    with_probabilities_of,
)
from tokengeom_studies.common.random_data import repeated

NATURAL, REPEATS = "natural counts", "random repeats"
TRANSFORMER, UFM = "transformer", "UFM"
SNAPSHOTS = (0.0, 0.03, 0.2, 1.0)
"""Shares of the transformer's run at which its geometry is kept for the figure of its evolution."""
BETWEEN = 0.2
"""Least agreement of two models of the same text; Gaussian embeddings have 0."""
ENTROPY_REACHED = 2e-2
"""``CE - H`` in nats that every run must reach; the papers' size has further checks of its loss."""


@dataclass(frozen=True, eq=False)
class Mode:
    """Natural counts or random repeats: statistics, prediction, both models, and their agreement with each other."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    models: Mapping[str, Trained]
    between_models: Mapping[str, float]
    snapshots: Snapshots


class NetworksSimplifiedStories(AbstractStudy):
    """Transformer, unconstrained features, L_mm and proxy side by side."""

    question: ClassVar[str] = "Does a transformer converge to the geometry that the supports of its text predict?"
    # Paper has the papers' transformer, steps and rates, for a GPU. Small has fewer contexts and tokens, so that 64
    # dimensions are more than the rank of L_mm, and few steps at a large rate.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "stories": 3000,
        "context": 4,
        "contexts": 200,
        "vocabulary": 60,
        "repeats": 4,
        "layers": 2,
        "heads": 4,
        "dim": 64,
        "steps": 500,
        "learning_rate": 2e-3,
        "weight_decay": 1e-6,
        "schedule": "cosine",
        "ufm_steps": 1_000,
        "ufm_learning_rate": 3e-3,
        "device": "cpu",
        "draws": 100,
    }
    paper: ClassVar[Recipe] = {
        **small,
        "contexts": 400,
        "vocabulary": 104,
        "layers": 4,
        "heads": 6,
        "dim": 128,
        "steps": 30_000,
        "learning_rate": 1e-4,
        "schedule": "papers",
        "ufm_steps": 30_000,
        "ufm_learning_rate": 1e-4,
        "device": "cuda",
        "draws": 1000,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count, predict once, train both models in both modes, compare with the prediction and with each other."""
        require_device(recipe)
        natural = count_stories(recipe, progress)
        prediction = predict(natural, progress=progress)
        statistics = {NATURAL: natural, REPEATS: repeated(natural, recipe["seed"], recipe["repeats"])}
        modes = {name: _mode(stats, prediction, recipe, progress) for name, stats in statistics.items()}
        tables = {"agreement": agreement_table(_named(modes), "run"), "transformer_and_ufm": _between_models(modes)}
        return self.findings(recipe, _sentence(modes), _checks(modes), _figures(modes), tables)


def _mode(stats: NextTokenStatistics, base: FeaturePrediction, recipe: Recipe, progress: AbstractProgress) -> Mode:
    prediction = with_probabilities_of(stats, base)
    kept = Snapshots(round(share * recipe["steps"]) for share in SNAPSHOTS)
    network = train_and_compare(stats, prediction, recipe, probes={"snapshots": kept}, progress=progress)
    models = {TRANSFORMER: network, UFM: train_ufm_and_compare(stats, prediction, recipe, progress)}
    return Mode(stats, prediction, models, between_runs(prediction, network.run, models[UFM].run), kept)


def _named(modes: Mapping[str, Mode]) -> dict[str, Trained]:
    return {f"{model}, {name}": trained for name, mode in modes.items() for model, trained in mode.models.items()}


def _checks(modes: Mapping[str, Mode]) -> list[Check]:
    checks = [Check("relative gap of L_mm", modes[NATURAL].prediction.certificate.relative_gap, high=1e-6)]
    for name, trained in _named(modes).items():
        checks += agreement_checks(name, trained, contexts=0.7, tokens=0.6, loss_gap=ENTROPY_REACHED)
        collapse = trained.comparison["collapse"]
        checks.append(Check(f"{name}: collapse as a share of its floor", collapse.value / collapse.floor, high=0.2))
    for name, mode in modes.items():
        for item in ITEMS:
            agreement = mode.between_models[item]
            checks.append(Check(f"{name}: agreement of {item}s between transformer and UFM", agreement, low=BETWEEN))
    return checks + reported_loss_checks(modes[REPEATS].models[TRANSFORMER].run)


def _sentence(modes: Mapping[str, Mode]) -> str:
    first = modes[NATURAL]
    ends = "; ".join(outcome(name, trained) for name, trained in _named(modes).items())
    pairs = " and ".join(
        f"{mode.between_models['context']:.3f} for contexts and "
        f"{mode.between_models['token']:.3f} for tokens with {name}"
        for name, mode in modes.items()
    )
    return (
        f"On {first.stats.m} contexts and {first.stats.V} tokens of the built-in stories (rank of L_mm "
        f"{first.prediction.rank}): {ends}. Agreement between transformer and UFM is {pairs}."
    )


def _between_models(modes: Mapping[str, Mode]) -> Table:
    return table_of([{"mode": name, **mode.between_models} for name, mode in modes.items()])


def _figures(modes: Mapping[str, Mode]) -> list[Figure]:
    figures = []
    for name, mode in modes.items():
        runs = {model: trained.run for model, trained in mode.models.items()}
        drawn = {
            "heatmaps": feature_heatmaps(mode.prediction, runs, stats=mode.stats),
            "training": feature_training(runs),
            "evolution": evolution(mode.snapshots.taken, mode.prediction, stats=mode.stats),
        }
        end = name.replace(" ", "-")
        figures += [replace(f, name=f"{kind}-{end}", title=f"{f.title}: {name}") for kind, f in drawn.items()]
    return figures
