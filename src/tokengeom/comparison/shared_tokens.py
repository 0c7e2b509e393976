"""A run on one text compared with the prediction for another, on the tokens and contexts that both texts have.

Row z of W and column j of H of the run belong to the same token and the same context as row z and column j of the
prediction, which is made from the first text's windows on what is shared. A model's softmax restricted to the shared
tokens is its distribution given that one of them comes next, so its loss is defined there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.comparison.inputs import Observed, hash_of, require_same_statistics
from tokengeom.core.factors import Factors
from tokengeom.statistics.shared import shared_statistics
from tokengeom.theory.predict import predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokengeom.core.numerics import Float, Int
    from tokengeom.core.progress import AbstractProgress
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.theory.features import FeaturePrediction


@dataclass(frozen=True, eq=False)
class RestrictedRun:
    """W, H and bias of a run on some of its tokens and contexts, with its settings and its state before training."""

    W: Float
    H: Float
    bias: Float | None
    start: Factors | None
    settings: object


def on_shared_tokens(
    stats: NextTokenStatistics,
    runs: Sequence[Observed],
    stats_of_runs: NextTokenStatistics,
    progress: AbstractProgress | None = None,
) -> tuple[FeaturePrediction, list[Observed]]:
    """The prediction for the first text and the runs on the second, restricted to what both texts share.

    ``stats``, ``stats_of_runs``
        Statistics of the text that the prediction is for, and of the text that the runs were trained on.
    """
    for run in runs:
        require_same_statistics("statistics of the runs", stats_of_runs.hash, "run", hash_of(run))
    mine, theirs = shared_statistics(stats, stats_of_runs)
    tokens = _places(theirs.vocabulary, stats_of_runs.vocabulary)
    contexts = _places(_context_texts(theirs), _context_texts(stats_of_runs))
    restricted: list[Observed] = []
    for run in runs:
        factors = Factors.of(run)
        factors.require_sizes(stats_of_runs.V, stats_of_runs.m)
        start, settings = getattr(run, "start", None), getattr(run, "settings", None)
        before = _restrict(start, tokens, contexts) if isinstance(start, Factors) else None
        kept = _restrict(factors, tokens, contexts)
        restricted.append(RestrictedRun(kept.W, kept.H, kept.bias, before, settings))
    return predict(mine, progress=progress), restricted


def _restrict(run: Factors, tokens: Int, contexts: Int) -> Factors:
    return Factors(run.W[tokens], run.H[:, contexts], None if run.bias is None else run.bias[tokens])


def _context_texts(stats: NextTokenStatistics) -> list[str]:
    return [stats.context_text(j) for j in range(stats.m)]


def _places(names: Sequence[str], among: Sequence[str]) -> Int:
    place = {name: k for k, name in enumerate(among)}
    return np.array([place[name] for name in names], dtype=np.int64)
