"""Whether concepts are learned in the predicted order: the larger their singular value, the earlier.

``c_k(t) = u_k^T L(t) v_k``,   learned when ``c_k`` passes half of its last value

where ``S~ = sum_k sigma_k u_k v_k^T`` and L(t) are the logits at step t, V x m. The prediction [zhao2025] is for the
square loss under gradient flow with all contexts alike; cross-entropy and unequal contexts are tried on it.

Whether the geometry of tokens and contexts of a text is what its supports predict.

The commonest contexts and tokens of the built-in stories, once with their natural counts and once with each pair seen a
random 1 to 4 times, as in the papers' simplified stories: the supports, and so L_mm, are the same. A model of
unconstrained features is trained on both with AdamW and held against L_mm and the proxy, with bootstrap intervals and a
permutation null; a second run of plain gradient descent says in which order concepts are learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Figure
from tokengeom.figures.concepts import LearnedConcepts, concepts
from tokengeom.figures.heatmaps import Snapshots, evolution, feature_heatmaps, pattern_triple
from tokengeom.figures.training_curves import feature_training
from tokengeom.geometry.compare import Comparison, compare
from tokengeom.geometry.probes import feature_probes
from tokengeom.numerics import Float, blas_threads_for
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import Tables, count_stories, ranks_agree, repeated, train_like_the_papers
from tokengeom.theory.closed_forms import proxy
from tokengeom.theory.concepts import Concepts
from tokengeom.theory.features import FeaturePrediction, predict_features
from tokengeom.training.loop import Probe, State
from tokengeom.training.run import Run
from tokengeom.training.train import train

_COLUMN = "concept"


@dataclass(frozen=True, eq=False)
class ConceptOrder:
    """Steps at which each leading concept was half learned, and the predicted times (in units of their own)."""

    found: Concepts
    learned: LearnedConcepts
    half_steps: Float
    predicted: Float

    @property
    def agreement(self) -> float:
        """Spearman correlation of measured and predicted half-times; 1 is the predicted order."""
        return ranks_agree(self.half_steps, self.predicted)


def strength_probe(found: Concepts, count: int) -> dict[str, Probe]:
    """Record the strength of the leading concepts as columns ``concept.0``, ``concept.1``, ..."""
    if count < 2:
        raise InputError(f"An order needs at least two concepts; got count={count}.")
    U, Vt = found.U[:, :count], found.Vt[:count]

    def strength(state: State) -> dict[str, float]:
        held = ((U.T @ state.L) * Vt).sum(axis=1)
        return {str(k): float(x) for k, x in enumerate(held)}

    return {_COLUMN: strength}


def concept_order(found: Concepts, run: Run) -> ConceptOrder:
    """Read the order off a run that was measured with ``strength_probe(found, ...)``."""
    names = [name for name in run.trajectory.names if name.startswith(f"{_COLUMN}.")]
    strength = np.array([run.trajectory[name] for name in names])
    steps = run.trajectory["step"]
    half = np.array([_passing(steps, row, 0.5 * row[-1]) for row in strength])
    return ConceptOrder(found, LearnedConcepts(steps, strength), half, found.half_times()[: len(names)])


def _passing(steps: Float, values: Float, level: float) -> float:
    """First step at which the values pass a level, on a straight line between records."""
    i = int(np.argmax(values >= level))
    if i == 0:
        return 0.0 if values[0] >= level else float(steps[-1])
    part = (level - values[i - 1]) / (values[i] - values[i - 1])
    return float(steps[i - 1] + part * (steps[i] - steps[i - 1]))


NATURAL, REPEATS = "natural counts", "random repeats"
SNAPSHOTS = (0.0, 0.01, 0.1, 1.0)
"""Shares of the run at which the geometry is kept for the figure of its evolution."""


@dataclass(frozen=True, eq=False)
class Mode:
    """One way of counting: its statistics, prediction, run, and what was found."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    run: Run
    snapshots: Snapshots
    comparison: Comparison
    order: ConceptOrder


class UfmSimplifiedStories(AbstractStudy):
    """Text with natural and with random counts."""

    name: ClassVar[str] = "ufm-simplified-stories"
    question: ClassVar[str] = "Is the geometry that a text gives to tokens and contexts what its supports predict?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count, predict once, train in both modes, compare."""
        natural = count_stories(recipe, progress)
        # The products here are small: BLAS threads that wait for one another cost more than they bring.
        with blas_threads_for(natural.V, natural.m):
            modes = _modes(natural, recipe, progress)
            figures = _figures(modes)
        tables: Tables = {"agreement": _agreements(modes), "concepts": _concept_table(modes, natural)}
        return Findings(_sentence(modes), _checks(modes), figures, tables)


def _modes(natural: NextTokenStatistics, recipe: Recipe, progress: AbstractProgress) -> dict[str, Mode]:
    with progress.stage("Predicting", None):
        prediction = predict_features(natural)
    statistics = {NATURAL: natural, REPEATS: repeated(natural, recipe["seed"], recipe["repeats"])}
    found = Concepts.of(proxy(natural.S))
    return {name: _mode(stats, prediction, found, recipe, progress) for name, stats in statistics.items()}


def _mode(
    stats: NextTokenStatistics,
    base: FeaturePrediction,
    found: Concepts,
    recipe: Recipe,
    progress: AbstractProgress,
) -> Mode:
    # The direction depends on supports alone, which both modes share; the finite part on probabilities, which differ.
    prediction = replace(base, P=stats.P, entropy=stats.entropy, stats=stats)
    kept = Snapshots(round(share * recipe["steps"]) for share in SNAPSHOTS)
    probes: dict[str, Probe] = {**feature_probes(prediction), "snapshots": kept}
    run = train_like_the_papers(stats, recipe, probes=probes, progress=progress, seed=recipe["seed"])
    descent = train(
        stats,
        "ufm",
        dim=recipe["dim"],
        optimizer="gd",
        steps=recipe["order_steps"],
        learning_rate=recipe["order_rate"],
        seed=recipe["seed"],
        records_per_decade=20,
        probes=strength_probe(found, recipe["order_concepts"]),
        progress=progress,
    )
    draws = recipe["draws"]
    comparison = compare(prediction, run, resamples=draws, permutations=draws, seed=recipe["seed"])
    return Mode(stats, prediction, run, kept, comparison, concept_order(found, descent))


def _checks(modes: Mapping[str, Mode]) -> list[Check]:
    gap = next(iter(modes.values())).prediction.certificate.relative_gap
    checks = [Check("relative gap of L_mm", gap, high=1e-6)]
    for name, mode in modes.items():
        contexts, tokens = mode.comparison.context_similarity, mode.comparison.token_similarity
        collapse = mode.comparison["collapse"]
        checks += [
            Check(f"{name}: CE - H", mode.run.loss_gap, high=1e-2),
            Check(f"{name}: SIM of contexts", contexts.value, low=0.8),
            Check(f"{name}: SIM of tokens", tokens.value, low=0.8),
            Check(f"{name}: SIM of contexts, low end above chance", contexts.low - contexts.null, low=0.3),
            Check(f"{name}: SIM of tokens, low end above chance", tokens.low - tokens.null, low=0.3),
            Check(f"{name}: collapse as a share of chance", collapse.value / collapse.null, high=0.2),
        ]
    order = modes[REPEATS].order.agreement
    return [*checks, Check(f"{REPEATS}: agreement with the predicted order of concepts", order, low=0.6)]


def _sentence(modes: Mapping[str, Mode]) -> str:
    first = next(iter(modes.values()))
    stats, prediction = first.stats, first.prediction
    ends = "; ".join(_ending(name, mode) for name, mode in modes.items())
    orders = " and ".join(f"{mode.order.agreement:.2f} ({name})" for name, mode in modes.items())
    return (
        f"On {stats.m} contexts and {stats.V} tokens of the stories ({prediction.reduction.S_red.shape[1]} supports, "
        f"rank L_mm {prediction.rank}, proxy {prediction.proxy_nuclear_norm / prediction.nuclear_norm - 1:.1%} above "
        f"the optimum): {ends}. Gradient descent learns concepts in the predicted order with rank correlation "
        f"{orders}; the prediction is for contexts that are met equally often."
    )


def _ending(name: str, mode: Mode) -> str:
    found = mode.comparison
    contexts, tokens, collapse = found.context_similarity, found.token_similarity, found["collapse"]
    return (
        f"with {name} (CE - H = {mode.run.loss_gap:.1e}) SIM with L_mm is {contexts.value:.3f} [{contexts.low:.3f}, "
        f"{contexts.high:.3f}] for contexts (chance {contexts.null:.2f}, with the proxy "
        f"{found['proxy_context_similarity'].value:.3f}) and {tokens.value:.3f} [{tokens.low:.3f}, {tokens.high:.3f}] for "
        f"tokens (chance {tokens.null:.2f}, proxy {found['proxy_token_similarity'].value:.3f}), and contexts of one "
        f"support spread {collapse.value:.2g} times the groups (chance {collapse.null:.2g})"
    )


def _agreements(modes: Mapping[str, Mode]) -> dict[str, list[Any]]:
    rows = [
        {"mode": name, "number": number, **agreement.to_dict()}
        for name, mode in modes.items()
        for number, agreement in mode.comparison.agreements.items()
    ]
    return {column: [row[column] for row in rows] for column in rows[0]}


def _concept_table(modes: Mapping[str, Mode], stats: NextTokenStatistics) -> dict[str, Sequence[Any]]:
    order = modes[REPEATS].order
    leading = range(order.half_steps.size)
    sides = [order.found.concept(k, typical=4).token_texts(stats.vocabulary) for k in leading]
    return {
        "concept": [k + 1 for k in leading],
        "singular_value": order.found.singular_values[: order.half_steps.size].tolist(),
        "one_side": [" ".join(positive) for positive, _ in sides],
        "other_side": [" ".join(negative) for _, negative in sides],
        "predicted_time": order.predicted.tolist(),
        **{f"half_step, {name}": mode.order.half_steps.tolist() for name, mode in modes.items()},
    }


def _figures(modes: Mapping[str, Mode]) -> list[Figure]:
    runs = {name: mode.run for name, mode in modes.items()}
    natural, repeats = modes[NATURAL], modes[REPEATS]
    return [
        pattern_triple(natural.prediction, stats=natural.stats),
        feature_training(runs),
        feature_heatmaps(natural.prediction, runs, stats=natural.stats),
        evolution(natural.snapshots.taken, natural.prediction, stats=natural.stats),
        concepts(repeats.order.found, repeats.stats, learned=repeats.order.learned),
    ]
