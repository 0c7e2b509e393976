"""Whether a transformer, which must compute its contexts from tokens, ends where free embeddings do.

The picture of [zhao2024]: a transformer, a model of unconstrained features, L_mm and the proxy side by side, on the
commonest contexts and tokens of the built-in stories. Once with their natural counts, once with each pair seen a random
1 to 4 times; the supports, and so L_mm, are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tokengeom.figures.base import Figure
from tokengeom.figures.heatmaps import Snapshots, evolution, feature_heatmaps
from tokengeom.figures.training_curves import feature_training
from tokengeom.geometry.agreement import Agreement
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import Tables, count_stories, repeated
from tokengeom.studies.network_runs import (
    Trained,
    against_published,
    agreement_checks,
    agreement_table,
    ending,
    require_device,
    runs_agree,
    trained_network,
    trained_ufm,
)
from tokengeom.theory.features import FeaturePrediction, predict_features

NATURAL, REPEATS = "natural counts", "random repeats"
TRANSFORMER, UFM = "transformer", "UFM"
SNAPSHOTS = (0.0, 0.03, 0.2, 1.0)
"""Shares of the transformer's run at which its geometry is kept for the figure of its evolution."""
ENTROPY_REACHED = 2e-2
"""``CE - H`` in nats that the small size must reach; the papers' size is held against their numbers too."""


@dataclass(frozen=True, eq=False)
class Mode:
    """One way of counting: its statistics and prediction, both models, and how far these agree with each other."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    models: Mapping[str, Trained]
    together: Mapping[str, Agreement]
    snapshots: Snapshots


class NetworksSimplifiedStories(AbstractStudy):
    """Transformer, unconstrained features, L_mm and proxy."""

    name: ClassVar[str] = "networks-simplified-stories"
    question: ClassVar[str] = "Does a transformer end in the geometry that the supports of its text predict?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count, predict once, train both models in both modes, compare with the prediction and with each other."""
        require_device(recipe)
        natural = count_stories(recipe, progress)
        with progress.stage("Predicting", None):
            prediction = predict_features(natural)
        statistics = {NATURAL: natural, REPEATS: repeated(natural, recipe["seed"], recipe["repeats"])}
        modes = {name: _mode(stats, prediction, recipe, progress) for name, stats in statistics.items()}
        tables: Tables = {"agreement": agreement_table(_named(modes), "run"), "transformer_and_ufm": _together(modes)}
        return Findings(_sentence(modes), _checks(modes, recipe), _figures(modes), tables)


def _mode(stats: NextTokenStatistics, base: FeaturePrediction, recipe: Recipe, progress: AbstractProgress) -> Mode:
    # The direction depends on supports alone, which both modes share; the finite part on probabilities, which differ.
    prediction = replace(base, P=stats.P, entropy=stats.entropy)
    kept = Snapshots(round(share * recipe["steps"]) for share in SNAPSHOTS)
    network = trained_network(stats, prediction, recipe, probes={"snapshots": kept}, progress=progress)
    models = {TRANSFORMER: network, UFM: trained_ufm(stats, prediction, recipe, progress)}
    return Mode(stats, prediction, models, runs_agree(network.run, models[UFM].run, recipe), kept)


def _named(modes: Mapping[str, Mode]) -> dict[str, Trained]:
    return {f"{model}, {name}": found for name, mode in modes.items() for model, found in mode.models.items()}


def _checks(modes: Mapping[str, Mode], recipe: Recipe) -> list[Check]:
    checks = [Check("relative gap of L_mm", modes[NATURAL].prediction.certificate.relative_gap, high=1e-6)]
    for name, found in _named(modes).items():
        checks += agreement_checks(name, found, contexts=0.7, tokens=0.6, loss_gap=ENTROPY_REACHED)
        collapse = found.comparison["collapse"]
        checks.append(Check(f"{name}: collapse as a share of chance", collapse.value / collapse.null, high=0.2))
    for name, mode in modes.items():
        for items in ("context", "word"):
            number = mode.together[f"{items}_similarity"]
            title = f"{name}: SIM of {items}s between transformer and UFM"
            checks.append(Check(f"{title}, low end above chance", number.low - number.null, low=0.0))
    return checks + against_published(modes[REPEATS].models[TRANSFORMER].run)


def _sentence(modes: Mapping[str, Mode]) -> str:
    first = modes[NATURAL]
    ends = "; ".join(ending(name, found) for name, found in _named(modes).items())
    pairs = " and ".join(
        f"{mode.together['context_similarity'].value:.3f} for contexts, {mode.together['token_similarity'].value:.3f} "
        f"for tokens with {name}"
        for name, mode in modes.items()
    )
    return (
        f"On {first.stats.m} contexts and {first.stats.V} tokens of the built-in stories (rank L_mm "
        f"{first.prediction.rank}) {ends}. Transformer and UFM agree with each other by SIM {pairs}."
    )


def _together(modes: Mapping[str, Mode]) -> dict[str, list[Any]]:
    rows = [
        {"mode": name, "number": number, **agreement.to_dict()}
        for name, mode in modes.items()
        for number, agreement in mode.together.items()
    ]
    return {column: [row[column] for row in rows] for column in rows[0]}


def _figures(modes: Mapping[str, Mode]) -> list[Figure]:
    figures = []
    for name, mode in modes.items():
        runs = {model: found.run for model, found in mode.models.items()}
        drawn = {
            "heatmaps": feature_heatmaps(mode.prediction, runs, stats=mode.stats),
            "training": feature_training(runs),
            "evolution": evolution(mode.snapshots.taken, mode.prediction, stats=mode.stats),
        }
        end = name.replace(" ", "-")
        figures += [replace(f, name=f"{kind}-{end}", title=f"{f.title}: {name}") for kind, f in drawn.items()]
    return figures
