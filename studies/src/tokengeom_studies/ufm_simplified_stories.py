"""Unconstrained features trained on the built-in stories, and the order in which they learn concepts.

The most frequent contexts and tokens of the stories are used once with their natural counts and once with each pair
seen a random 1 to 4 times, as in the papers' simplified stories: the supports, and so L_mm, are the same. A model of
unconstrained features is trained on both with AdamW and compared with the prediction at the loss reached, and, as in
the papers, with L_mm and the proxy by SIM.

A second run, of plain gradient descent, shows the order in which concepts are learned. The prediction is that concepts
with larger singular values are learned earlier:

``c_k(t) = u_k^T L(t) v_k``,   learned when ``c_k`` passes half of its last value

where ``S~ = sum_k sigma_k u_k v_k^T`` and L(t) are the logits at step t, V x m. It was derived for the square loss
under gradient flow with equally frequent contexts [zhao2025]; here it is tried with cross-entropy and unequal contexts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tokengeom import FeaturePrediction, NextTokenStatistics, Run, predict, train
from tokengeom.extending import (
    AbstractProgress,
    Concepts,
    Figure,
    Float,
    InputError,
    LearnedConcepts,
    Probe,
    State,
    blas_threads_for,
    concepts,
    evolution,
    feature_heatmaps,
    feature_probes,
    feature_training,
    pattern_triple,
    proxy,
)
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.model_runs import (
    Snapshots,
    Trained,
    agreement_checks,
    agreement_table,
    compare_run,
    count_stories,
    outcome,
    rank_correlation,
    train_like_the_papers,
    with_probabilities_of,
)
from tokengeom_studies.common.random_data import repeated

NATURAL, REPEATS = "natural counts", "random repeats"
SNAPSHOTS = (0.0, 0.01, 0.1, 1.0)
"""Shares of the run at which the geometry is kept for the figure of its evolution."""
_COLUMN = "concept"


@dataclass(frozen=True, eq=False)
class ConceptOrder:
    """Step at which each leading concept was half learned, and the predicted times, in arbitrary units."""

    of: Concepts
    learned: LearnedConcepts
    half_steps: Float
    predicted: Float

    @property
    def agreement(self) -> float:
        """Spearman correlation of measured and predicted half-times; 1 is the predicted order."""
        return rank_correlation(self.half_steps, self.predicted)


def strength_probe(known: Concepts, count: int) -> dict[str, Probe]:
    """Record the strengths of the leading concepts as ``concept.0``, ``concept.1``, ..."""
    if count < 2:
        raise InputError(f"An order needs at least two concepts; got {count}.")
    U, Vt = known.U[:, :count], known.Vt[:count]

    def strength(state: State) -> dict[str, float]:
        strengths = ((U.T @ state.L) * Vt).sum(axis=1)
        return {str(k): float(x) for k, x in enumerate(strengths)}

    return {_COLUMN: strength}


def concept_order(known: Concepts, run: Run) -> ConceptOrder:
    """The order in a run that was recorded with ``strength_probe(known, ...)``."""
    names = [name for name in run.trajectory.names if name.startswith(f"{_COLUMN}.")]
    strength = np.array([run.trajectory[name] for name in names])
    steps = run.trajectory["step"]
    half = np.array([_passing(steps, row, 0.5 * row[-1]) for row in strength])
    return ConceptOrder(known, LearnedConcepts(steps, strength), half, known.half_times()[: len(names)])


def _passing(steps: Float, values: Float, level: float) -> float:
    """First step at which the values pass a level, interpolated linearly between records."""
    i = int(np.argmax(values >= level))
    if i == 0:
        return 0.0 if values[0] >= level else float(steps[-1])
    part = (level - values[i - 1]) / (values[i] - values[i - 1])
    return float(steps[i - 1] + part * (steps[i] - steps[i - 1]))


@dataclass(frozen=True, eq=False)
class Mode:
    """Natural counts or random repeats: statistics, prediction, the model with its comparison, order of concepts."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    trained: Trained
    snapshots: Snapshots
    order: ConceptOrder


class UfmSimplifiedStories(AbstractStudy):
    """Stories with natural counts and with random counts."""

    question: ClassVar[str] = "Do the supports of a text predict the geometry of its tokens and contexts?"
    # Paper has the papers' 30,000 steps at rate 1e-4. Small has a thirtieth of the steps at thirty times the rate, so
    # that the rates have the same sum, and a shorter run for the order of concepts.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "stories": 3000,
        "context": 4,
        "contexts": 400,
        "vocabulary": 104,
        "repeats": 4,
        "dim": 128,
        "steps": 1_000,
        "learning_rate": 3e-3,
        "weight_decay": 1e-6,
        "order_steps": 400,
        "order_rate": 10.0,
        "order_concepts": 30,
        "draws": 200,
    }
    paper: ClassVar[Recipe] = {
        **small,
        "steps": 30_000,
        "learning_rate": 1e-4,
        "order_steps": 4_000,
        "order_rate": 3.0,
        "draws": 1000,
    }

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count and predict once, train in both modes, and compare."""
        natural = count_stories(recipe, progress)
        # The products here are small: synchronising BLAS threads costs more time than they save.
        with blas_threads_for(natural.V, natural.m):
            modes = _modes(natural, recipe, progress)
            figures = _figures(modes)
        tables = {
            "agreement": agreement_table({name: mode.trained for name, mode in modes.items()}, "mode"),
            "explanations": _explanation_table(modes),
            "concepts": _concept_table(modes, natural),
        }
        return self.findings(recipe, _sentence(modes), _checks(modes), figures, tables)


def _modes(natural: NextTokenStatistics, recipe: Recipe, progress: AbstractProgress) -> dict[str, Mode]:
    prediction = predict(natural, progress=progress)
    statistics = {NATURAL: natural, REPEATS: repeated(natural, recipe["seed"], recipe["repeats"])}
    known = Concepts.of(proxy(natural.S))
    return {name: _mode(stats, prediction, known, recipe, progress) for name, stats in statistics.items()}


def _mode(
    stats: NextTokenStatistics,
    base: FeaturePrediction,
    known: Concepts,
    recipe: Recipe,
    progress: AbstractProgress,
) -> Mode:
    prediction = with_probabilities_of(stats, base)
    kept = Snapshots(round(share * recipe["steps"]) for share in SNAPSHOTS)
    probes: dict[str, Probe] = {**feature_probes(prediction), "snapshots": kept}
    run = train_like_the_papers(stats, recipe, probes=probes, progress=progress, seed=recipe["seed"])
    descent = train(
        stats,
        "ufm",
        dim=recipe["dim"],
        optimizer="gd",
        reduction="mean",
        steps=recipe["order_steps"],
        learning_rate=recipe["order_rate"],
        seed=recipe["seed"],
        records_per_decade=20,
        probes=strength_probe(known, recipe["order_concepts"]),
        progress=progress,
    )
    return Mode(stats, prediction, compare_run(prediction, run, recipe), kept, concept_order(known, descent))


def _checks(modes: Mapping[str, Mode]) -> list[Check]:
    gap = next(iter(modes.values())).prediction.certificate.relative_gap
    checks = [Check("relative gap of L_mm", gap, high=1e-6)]
    for name, mode in modes.items():
        checks += agreement_checks(name, mode.trained, contexts=0.8, tokens=0.8, loss_gap=1e-2, above=0.3)
        collapse = mode.trained.comparison["collapse"]
        checks.append(Check(f"{name}: collapse as a share of its floor", collapse.value / collapse.floor, high=0.2))
    order = modes[REPEATS].order.agreement
    return [*checks, Check(f"{REPEATS}: rank correlation with the predicted order of concepts", order, low=0.6)]


def _sentence(modes: Mapping[str, Mode]) -> str:
    first = next(iter(modes.values()))
    stats, prediction = first.stats, first.prediction
    outcomes = "; ".join(f"{outcome(name, mode.trained)}{_proxy(mode)}" for name, mode in modes.items())
    orders = " and ".join(f"{mode.order.agreement:.2f} with {name}" for name, mode in modes.items())
    return (
        f"{stats.m} contexts and {stats.V} tokens of the stories have {prediction.reduction.S_red.shape[1]} supports; "
        f"L_mm has rank {prediction.rank}, and the nuclear norm of the proxy is "
        f"{prediction.proxy_nuclear_norm / prediction.nuclear_norm - 1:.1%} above the optimum. With {outcomes}. The "
        f"rank correlation between measured and predicted order of concepts in gradient descent is {orders}; the "
        "prediction is for equally frequent contexts."
    )


def _proxy(mode: Mode) -> str:
    """SIM with the proxy, which is among the explanations of every comparison."""
    rows = [row for row in mode.trained.comparison.rows if row.rival == "S~"]
    values = " and ".join(f"{row.similarity.value:.3f} for {row.items}" for row in rows)
    return f"; SIM with the proxy {values}"


def _explanation_table(modes: Mapping[str, Mode]) -> Table:
    """Agreement and SIM of every explanation that needs no solver, the predictions among them."""
    return table_of(
        [
            {
                "mode": name,
                "items": row.items,
                "explanation": row.rival,
                "agreement": row.agreement.value,
                "similarity": row.similarity.value,
                "behind": row.behind.value,
            }
            for name, mode in modes.items()
            for row in mode.trained.comparison.rows
        ]
    )


def _concept_table(modes: Mapping[str, Mode], stats: NextTokenStatistics) -> Table:
    order = modes[REPEATS].order
    leading = range(order.half_steps.size)
    sides = [order.of.concept(k, typical=4).token_texts(stats.vocabulary) for k in leading]
    return {
        "concept": [k + 1 for k in leading],
        "singular_value": order.of.singular_values[: order.half_steps.size].tolist(),
        "one_side": [" ".join(positive) for positive, _ in sides],
        "other_side": [" ".join(negative) for _, negative in sides],
        "predicted_time": order.predicted.tolist(),
        **{f"half_step, {name}": mode.order.half_steps.tolist() for name, mode in modes.items()},
    }


def _figures(modes: Mapping[str, Mode]) -> list[Figure]:
    runs = {name: mode.trained.run for name, mode in modes.items()}
    natural, repeats = modes[NATURAL], modes[REPEATS]
    return [
        pattern_triple(natural.prediction, stats=natural.stats),
        feature_training(runs),
        feature_heatmaps(natural.prediction, runs, stats=natural.stats),
        evolution(natural.snapshots.taken, natural.prediction, stats=natural.stats),
        concepts(repeats.order.of, repeats.stats, learned=repeats.order.learned),
    ]
