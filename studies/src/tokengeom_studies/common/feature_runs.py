"""What the studies of learned features share: built-in stories, training with the papers' settings, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from tokengeom import FeaturePrediction, NextTokenStatistics, Run, count, train
from tokengeom.extending import (
    AbstractProgress,
    Curve,
    Float,
    LinePanel,
    Probe,
    Scale,
    State,
    centre_columns,
    cosine,
    paper_steps,
    stories,
)
from tokengeom_studies.base import Recipe


def count_stories(recipe: Recipe, progress: AbstractProgress) -> NextTokenStatistics:
    """Statistics of the built-in stories, limited to the recipe's numbers of contexts and tokens."""
    counted = count_all_stories(recipe, progress)
    return counted.limited(top_contexts=recipe["contexts"], vocabulary=recipe["vocabulary"])


def count_all_stories(recipe: Recipe, progress: AbstractProgress) -> NextTokenStatistics:
    """Statistics of the recipe's number of built-in stories, with every context and token."""
    texts = islice(stories(recipe["seed"]), recipe["stories"])
    return count(texts, context=recipe["context"], progress=progress)


def with_probabilities_of(stats: NextTokenStatistics, prediction: FeaturePrediction) -> FeaturePrediction:
    """The prediction for statistics that have the same supports as those it was made for, without solving again.

    The direction L_mm depends on supports alone; the finite part L_in, the entropy and the predictions at a loss depend
    on probabilities and on the shares of contexts.
    """
    return replace(
        prediction,
        P=stats.P,
        pi=stats.pi,
        entropy=stats.entropy,
        statistics_hash=stats.hash,
        windows=stats.n if stats.has_counts else None,
        stats=stats,
    )


def train_like_the_papers(
    stats: NextTokenStatistics,
    recipe: Recipe,
    *,
    probes: Mapping[str, Probe] | None,
    progress: AbstractProgress,
    dim: int | None = None,
    seed: int = 0,
) -> Run:
    """Unconstrained features trained with AdamW on the summed loss; steps, rate, decay and d are the recipe's."""
    return train(
        stats,
        "ufm",
        dim=recipe["dim"] if dim is None else dim,
        optimizer="adamw",
        steps=recipe["steps"],
        learning_rate=recipe["learning_rate"],
        weight_decay=recipe["weight_decay"],
        rate_schedule=paper_steps(recipe["steps"]),
        reduction="sum",
        seed=seed,
        probes=probes,
        progress=progress,
    )


def direction_probe(prediction: FeaturePrediction) -> dict[str, Probe]:
    """Record ``cos(L, L_mm)`` of the centred logits as ``direction_cosine``."""
    L_mm = prediction.L_mm

    def direction_cosine(state: State) -> float:
        return cosine(centre_columns(state.L), L_mm)

    return {"direction_cosine": direction_cosine}


def over_training(
    title: str,
    y_label: str,
    runs: Mapping[str, Run],
    columns: Sequence[str],
    *,
    y_scale: Scale = "linear",
    levels: Sequence[tuple[str, float]] = (),
) -> LinePanel:
    """One measurement, or several, of each run over its steps (from 1 on, on a log axis)."""
    curves = []
    for name, run in runs.items():
        steps = run.trajectory.steps
        for column in columns:
            label = name if len(columns) == 1 else f"{name}, {column.replace('_', ' ')}"
            curves.append(Curve(label, steps[steps > 0].astype(np.float64), run.trajectory[column][steps > 0]))
    return LinePanel(title, "step", y_label, curves, "log", y_scale, levels)


def rank_correlation(a: Float, b: Float) -> float:
    """Spearman correlation of two lists of numbers; ties get their mean rank, NaN where nothing varies."""
    from scipy.stats import rankdata

    x, y = rankdata(a), rankdata(b)
    if x.size < 2 or x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
