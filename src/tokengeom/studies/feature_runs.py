"""What the studies of learned features share: stories, random counts, the papers' way to train, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from scipy import sparse

from tokengeom.corpus.stories import stories
from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, LinePanel, Scale
from tokengeom.numerics import Bool, Float
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import Recipe
from tokengeom.training.loop import Probe
from tokengeom.training.optimizers.base import Steps
from tokengeom.training.run import Run
from tokengeom.training.train import train

Tables = Mapping[str, Mapping[str, Sequence[Any]]]
PAPER_FACTOR = 0.4
PAPER_PARTS = 6


def random_supports(rng: np.random.Generator, V: int, m: int, size: int) -> Bool:
    """V x m supports, each a uniform choice of ``size`` tokens."""
    if not 1 <= size <= V:
        raise InputError(f"A support must hold between 1 and V={V} tokens; got size={size}.")
    return np.asarray(np.argsort(rng.random((V, m)), axis=0) < size)


def with_random_repeats(rng: np.random.Generator, S: Any, most: int) -> NextTokenStatistics:
    """Statistics with the given supports (V x m, sparse or dense), each pair seen 1 to ``most`` times."""
    table = sparse.csc_array(S)
    repeats = rng.integers(1, most + 1, table.nnz)
    counts = sparse.csc_array((repeats, table.indices, table.indptr), shape=table.shape)
    return NextTokenStatistics.from_counts(counts)


def repeated(stats: NextTokenStatistics, seed: int, most: int) -> NextTokenStatistics:
    """The same contexts, tokens and supports, each pair seen 1 to ``most`` times: the papers' simplified stories."""
    drawn = with_random_repeats(np.random.default_rng(seed), stats.S, most)
    return replace(stats, table=drawn.table, effects=())


def count_stories(recipe: Recipe, progress: AbstractProgress) -> NextTokenStatistics:
    """Count the built-in stories and cut them; how many stories, contexts and tokens are the recipe's."""
    counted = count_all_stories(recipe, progress)
    return counted.limited(contexts=recipe["contexts"], vocabulary=recipe["vocabulary"])


def count_all_stories(recipe: Recipe, progress: AbstractProgress) -> NextTokenStatistics:
    """Count the built-in stories, uncut."""
    texts = islice(stories(recipe["seed"]), recipe["stories"])
    return count(texts, context=recipe["context"], progress=progress)


def random_counts(seed: int, V: int, m: int, size: int, most: int) -> NextTokenStatistics:
    """The papers' synthetic setting: m random supports of one size, each pair seen 1 to ``most`` times."""
    rng = np.random.default_rng(seed)
    return with_random_repeats(rng, random_supports(rng, V, m, size), most)


def papers_schedule(steps: int) -> Steps:
    """Learning rate times 0.4 after each sixth of the run: at 5k, 10k, ... 25k of the papers' 30k steps."""
    if steps < PAPER_PARTS:
        raise InputError(f"The papers' schedule has {PAPER_PARTS} parts; got steps={steps}. Take at least that many.")
    return Steps(tuple(steps * i // PAPER_PARTS for i in range(1, PAPER_PARTS)), PAPER_FACTOR)


def train_like_the_papers(
    stats: NextTokenStatistics,
    recipe: Recipe,
    *,
    probes: Mapping[str, Probe] | None,
    progress: AbstractProgress,
    dim: int | None = None,
    seed: int = 0,
) -> Run:
    """Train both factors with AdamW on the summed loss; steps, rate, decay and d are the recipe's."""
    return train(
        stats,
        "ufm",
        dim=recipe["dim"] if dim is None else dim,
        optimizer="adamw",
        steps=recipe["steps"],
        learning_rate=recipe["learning_rate"],
        weight_decay=recipe["weight_decay"],
        rate_schedule=papers_schedule(recipe["steps"]),
        reduction="sum",
        seed=seed,
        probes=probes,
        progress=progress,
    )


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


def ranks_agree(a: Float, b: Float) -> float:
    """Spearman correlation of two lists of numbers; ties share their mean rank, NaN where nothing varies."""
    from scipy.stats import rankdata

    x, y = rankdata(a), rankdata(b)
    if x.size < 2 or x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
