"""The page's heat-maps: supports, prediction and runs in one order, drawn from factors so that any size will do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.figures.heatmaps import scaled_logits
from tokengeom.figures.ordering import FeatureOrder, Order, order_groups
from tokengeom.geometry.similarity import centred_tokens
from tokengeom.geometry.targets import proxy_factors
from tokengeom.numerics import Float, Int, cosines
from tokengeom.page.contents import Contents
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.run import Run

MOST = 400
"""Contexts or tokens in a heat-map: more would be smaller than a pixel, and the page heavy."""

Factors = tuple[Float, Float]


def is_finite(run: Run) -> bool:
    """Whether a run ended with numbers that can be drawn."""
    return bool(np.isfinite(run.W).all() and np.isfinite(run.H).all())


def shown_order(contents: Contents) -> FeatureOrder:
    """The most frequent contexts and tokens, by support group and predicted cosine."""
    stats, prediction = contents.stats, contents.prediction
    contexts = np.sort(stats.most_frequent(MOST))
    share = np.asarray(stats.P @ stats.pi).ravel()
    tokens = np.sort(np.argsort(-share, kind="stable")[:MOST])
    rows = (
        prediction.token_groups[tokens]
        if isinstance(prediction, FeaturePrediction)
        else np.arange(tokens.size, dtype=np.int64)
    )
    across = _ordered(contexts, stats.groups.label[contexts], prediction.H[:, contexts])
    down = _ordered(tokens, rows, prediction.W[tokens].T)
    names = [stats.context_text(int(j)) for j in across.indices], [stats.vocabulary[int(z)] for z in down.indices]
    return FeatureOrder(across, down, *names, stats.m, stats.V)


def _ordered(chosen: Int, groups: Int, columns: Float) -> Order:
    found = order_groups(groups, cosines(columns))
    return Order(chosen[found.indices], found.breaks)


def order_sentence(order: FeatureOrder) -> str:
    """How heat-maps are ordered and what they leave out."""
    left_out = order.contexts.indices.size < order.m or order.tokens.indices.size < order.V
    chosen = (
        f" Shown are the {order.contexts.indices.size:,} most frequent of {order.m:,} contexts and "
        f"{order.tokens.indices.size:,} of {order.V:,} tokens."
        if left_out
        else f" Shown are all {order.m:,} contexts and {order.V:,} tokens."
    )
    return (
        "All heat-maps share one order: contexts with the same support stand together, between thin lines where there "
        f"is room for them, and groups with a high predicted cosine are neighbours.{chosen}"
    )


def supports_figure(contents: Contents, order: FeatureOrder) -> Figure:
    """``S | S~ | L_mm``: from sparsity to geometry."""
    stats, prediction = contents.stats, contents.prediction
    rows, columns = order.tokens.indices, order.contexts.indices
    S = np.asarray(stats.S[rows][:, columns].toarray(), dtype=np.float64)
    S_tilde = S - stats.support_sizes[columns] / stats.V
    drawn = [("S: which token may follow", S, 0.0, 1.0, "1 = may follow")]
    if isinstance(prediction, FeaturePrediction) and prediction.rank:
        W = prediction.W - prediction.W.mean(axis=0)
        L = W[rows] @ prediction.H[:, columns]
        reach = float(max(np.abs(S_tilde).max(initial=0.0), np.abs(L).max(initial=0.0))) or 1.0
        drawn += [
            ("S~: the proxy, columns centred", S_tilde, -reach, reach, "logit"),
            ("L^mm: the predicted direction", L, -reach, reach, "logit"),
        ]
    elif not isinstance(prediction, FeaturePrediction):
        reach = float(np.abs(S_tilde).max(initial=0.0)) or 1.0
        drawn.append(("S~: the proxy, columns centred", S_tilde, -reach, reach, "logit"))
    panels = [_placed(order, *one) for one in drawn]
    return Figure("supports", "From sparsity to geometry", order_sentence(order), panels, columns=3)


def geometry_figures(contents: Contents, order: FeatureOrder) -> list[Figure]:
    """Cosines between contexts, between tokens, and logits: each run, the prediction, the proxy."""
    sources = geometry_sources(contents)
    columns = len(sources)
    logits = {name: _logits(order, W, H) for name, (W, H) in sources.items()}
    reach = max((float(np.abs(L).max(initial=0.0)) for L in logits.values()), default=0.0) or 1.0
    draw = partial(Figure, columns=columns)
    return [
        draw(
            "context-cosines",
            "Cosines between contexts",
            "A red cell: two contexts whose embeddings point the same way. White (black on a dark page): at a right "
            "angle. Blue: apart.",
            [order.context_cosines(name, H) for name, (_, H) in sources.items()],
        ),
        draw(
            "token-cosines",
            "Cosines between tokens",
            "The same between the embeddings of next tokens, their mean removed, which softmax cannot see.",
            [order.token_cosines(name, centred_tokens(W).T) for name, (W, _) in sources.items()],
        ),
        draw(
            "logits",
            "Logits",
            "Logits with the mean of each column removed, each matrix scaled to a root mean square of 1.",
            [_placed(order, name, L, -reach, reach, "scaled") for name, L in logits.items()],
        ),
    ]


def geometry_sources(contents: Contents) -> dict[str, Factors]:
    """Every finite run, then the prediction and the proxy, as tokens and contexts."""
    found: dict[str, Factors] = {name: (run.W, run.H) for name, run in _finite(contents.runs).items()}
    prediction = contents.prediction
    if isinstance(prediction, FeaturePrediction):
        found["predicted: L^mm"] = (prediction.W, prediction.H)
        factors = proxy_factors(prediction.reduction)
        found["proxy: S~"] = (factors.W, factors.H)
    else:
        found["proxy: S~"] = (prediction.W, prediction.H)
    return {name: pair for name, pair in found.items() if pair[0].shape[1]}


def _finite(runs: Mapping[str, Run]) -> dict[str, Run]:
    return {name: run for name, run in runs.items() if is_finite(run)}


def _logits(order: FeatureOrder, W: Float, H: Float) -> Float:
    centred = W - W.mean(axis=0)
    return scaled_logits(centred[order.tokens.indices] @ H[:, order.contexts.indices])


def _placed(order: FeatureOrder, title: str, L: Float, low: float, high: float, label: str) -> HeatmapPanel:
    """A matrix whose rows and columns are the chosen ones already."""
    return HeatmapPanel(
        title, L, "contexts", "tokens", order.context_names, order.token_names, order.contexts.breaks,
        order.tokens.breaks, low, high, label,
    )  # fmt: skip
