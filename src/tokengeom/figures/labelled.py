"""Heat-maps small enough to read every name: contexts by support group, and words."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.figures.feature_heatmaps import Factors
from tokengeom.figures.names import context_names, token_names
from tokengeom.figures.ordering import Int, Order, order_groups
from tokengeom.numerics import Float
from tokengeom.theory.feature_prediction import FeaturePrediction, cosines
from tokengeom.training.run import Run


def labelled_contexts(
    prediction: FeaturePrediction,
    stats: Any,
    *,
    run: Run | Factors | None = None,
    groups: int = 8,
    each: int = 6,
) -> Figure:
    """Cosines between contexts of the largest support groups, a few of each, with their words on the axes."""
    chosen = _of_largest(prediction.context_groups, groups, each)
    H = None if run is None else _factors(run)[1][:, chosen]
    order = order_groups(prediction.context_groups[chosen], cosines(prediction.H[:, chosen]))
    names = [context_names(stats, prediction.reduction.m)[int(j)] for j in chosen]
    panels = _panels("contexts", cosines(prediction.H[:, chosen]), None if H is None else cosines(H), order, names)
    supports = len(np.unique(prediction.context_groups[chosen]))
    caption = (
        f"Cosines between {chosen.size} contexts of {supports} support groups (the largest groups of the text, at most "
        f"{each} contexts of each): {_source(run)}. Contexts with the same possible next tokens stand between thin "
        "lines; theory says that they collapse to one direction (cosine 1, dark red), however different their words "
        "and probabilities are. Contexts without a common next token tend to point apart (blue)."
    )
    return Figure("labelled-contexts", "Contexts that may go on alike point alike", caption, panels, columns=2)


def labelled_words(
    prediction: FeaturePrediction, stats: Any, *, run: Run | Factors | None = None, most: int = 50
) -> Figure:
    """Cosines between the words that may follow most contexts, with the words on the axes."""
    degree = np.diff(prediction.P.tocsr().indptr)
    chosen = np.sort(np.argsort(-degree, kind="stable")[:most])
    W = None if run is None else _factors(run)[0][chosen]
    order = order_groups(prediction.word_groups[chosen], cosines(prediction.W[chosen].T))
    names = [token_names(stats, prediction.reduction.V)[int(z)] for z in chosen]
    panels = _panels("words", cosines(prediction.W[chosen].T), None if W is None else cosines(W.T), order, names)
    caption = (
        f"Cosines between the {chosen.size} words that may follow the most contexts: {_source(run)}. Words that follow "
        "the same contexts stand between thin lines and share one direction (cosine 1, dark red); words that compete "
        "for few common contexts tend to point apart (blue). Neighbours have a high predicted cosine."
    )
    return Figure("labelled-words", "Words that may follow alike point alike", caption, panels, columns=2)


def _panels(kind: str, predicted: Float, found: Float | None, order: Order, names: list[str]) -> list[HeatmapPanel]:
    shown = order.names(names)
    sources = [("predicted", predicted)] if found is None else [("predicted", predicted), ("trained", found)]
    return [
        HeatmapPanel(
            f"Cosines between {kind}, {source}",
            matrix[np.ix_(order.indices, order.indices)],
            kind,
            kind,
            shown,
            shown,
            order.breaks,
            order.breaks,
            -1.0,
            1.0,
            "cosine",
        )
        for source, matrix in sources
    ]


def _of_largest(groups: Int, count: int, each: int) -> Int:
    """Up to ``each`` members of each of the ``count`` largest groups, full supports left out where possible."""
    kept = np.flatnonzero(groups >= 0)
    kept = kept if kept.size else np.arange(groups.size)
    labels, sizes = np.unique(groups[kept], return_counts=True)
    largest = labels[np.argsort(-sizes, kind="stable")[:count]]
    members = [kept[groups[kept] == label][:each] for label in largest]
    return np.sort(np.concatenate(members)).astype(np.int64)


def _factors(run: Run | Factors) -> Factors:
    return (run.W, run.H) if isinstance(run, Run) else run


def _source(run: Run | Factors | None) -> str:
    return (
        "as predicted from the supports alone"
        if run is None
        else "as predicted from the supports (left) and as trained"
    )
