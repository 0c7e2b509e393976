"""Heat-maps of cosines, logits and supports: what a model found next to what is predicted, in one order.

`feature_heatmaps`    cos(H, H), cos(W, W) and logits of runs, of L^mm and of the proxy
`evolution`           the same for one run at several steps, then L^mm
`pattern_triple`      S | S~ | L^mm: from the supports to the geometry
`labelled_contexts`, `labelled_tokens`   cosines of few items, so that every name can be read
`linear_plane`        the linear model in the plane: embeddings as points, decoder rows as stars (Fig. 1 of
                      [thrampoulidis2024]). Tokens that occur in the same supports have the same row of W^mm (one star
                      with all their names) and differ in W*
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tokengeom.ask.named_vectors import Items
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.factors import Factors, HasFactors
from tokengeom.core.numerics import Float, Int, centre_columns, cosines
from tokengeom.figures.base import Figure, HeatmapPanel, Points, ScatterPanel
from tokengeom.figures.ordering import MANY, FeatureOrder, cosine_panel, feature_order, names_of, order_groups
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import proxy, proxy_factors

FEW = 150
"""Contexts or tokens in each of many small panels."""

ROWS = (
    "Rows: cosines between contexts (top), cosines between tokens (middle; the mean over tokens removed) and "
    "logits (bottom; columns centred, root mean square 1)."
)

Source = HasFactors | tuple[Float, Float]
"""A run, a model's readout, or a pair (W, H)."""


def feature_heatmaps(
    prediction: FeaturePrediction,
    runs: Mapping[str, Source] | None = None,
    *,
    stats: NextTokenStatistics | None = None,
    most: int | None = MANY,
) -> Figure:
    """Cosines and logits, with one column per source: each run (by name), then L^mm, then the proxy."""
    sources = _with_prediction(runs or {}, prediction) | {"proxy S~": proxy_factors(prediction.reduction)}
    order, names = feature_order(prediction, stats, most=most), list(sources)
    caption = (
        f"{ROWS} Columns: {', '.join(names[:-1])} and {names[-1]}. L^mm is the predicted direction in the limit of "
        f"training; the proxy S~ is the matrix of supports with its columns centred. {order.sentence()} Proven "
        f"relative gap of L^mm: {prediction.certificate.relative_gap:.1e}; rank {prediction.rank}."
    )
    panels = _geometry_panels(sources, order)
    return Figure("feature-heatmaps", "Geometry found and geometry predicted", caption, panels, columns=len(sources))


def evolution(
    snapshots: Mapping[int, Source],
    prediction: FeaturePrediction,
    *,
    stats: NextTokenStatistics | None = None,
    most: int | None = FEW,
) -> Figure:
    """Cosines and logits during training, with one column per step (step -> W and H), then L^mm."""
    if not snapshots:
        raise InputError("An evolution needs W and H of at least one step; got none.")
    sources = _with_prediction({f"step {step:,}": snapshots[step] for step in sorted(snapshots)}, prediction)
    order = feature_order(prediction, stats, most=most)
    caption = (
        f"{ROWS} Steps increase from left to right; the last column is L^mm, the predicted direction in "
        f"the limit of training. {order.sentence()}"
    )
    panels = _geometry_panels(sources, order)
    return Figure("evolution", "Geometry during training", caption, panels, columns=len(sources))


def pattern_triple(
    prediction: FeaturePrediction, *, stats: NextTokenStatistics | None = None, most: int | None = MANY
) -> Figure:
    """Supports S, the proxy S~ and the predicted direction L^mm, side by side."""
    S = np.asarray(prediction.P.toarray() > 0)
    S_tilde, L_mm = proxy(S), centre_columns(prediction.L_mm)
    order = feature_order(prediction, stats, most=most)
    largest = float(max(np.abs(S_tilde).max(), np.abs(L_mm).max())) or 1.0
    panels = [
        order.logits("S: which token may follow", S.astype(np.float64), 0.0, 1.0, "1 = may follow"),
        order.logits("S~: columns centred (proxy)", S_tilde, -largest, largest, "logit"),
        order.logits("L^mm: predicted direction", L_mm, -largest, largest, "logit"),
    ]
    distance = float(np.linalg.norm(S_tilde / _norm(S_tilde) - L_mm / _norm(L_mm)))
    caption = (
        f"Left: the supports, the only input that L^mm depends on. Middle: the proxy S~, the supports with columns "
        f"centred; nuclear norm {prediction.proxy_nuclear_norm:.6g}. Right: L^mm, the matrix of smallest nuclear norm "
        f"({prediction.nuclear_norm:.6g}, proven within a relative gap of {prediction.certificate.relative_gap:.1e}) "
        "in which every token of a support is at least 1 above every other token. Distance between the two after "
        f"normalisation: {distance:.3f}. {prediction.proxy_reason} {order.sentence()}"
    )
    return Figure("pattern-triple", "From sparsity to geometry", caption, panels, columns=3)


def labelled_contexts(
    prediction: FeaturePrediction,
    stats: NextTokenStatistics,
    *,
    run: Source | None = None,
    groups: int = 8,
    each: int = 6,
) -> Figure:
    """Cosines between up to ``each`` contexts of each of the largest support groups, with the contexts on the axes."""
    chosen = _of_largest(prediction.context_groups, groups, each)
    panels = _labelled("contexts", chosen, names_of(stats, "contexts", prediction.reduction.m), prediction, run)
    supports = len(np.unique(prediction.context_groups[chosen]))
    caption = (
        f"Cosines between {chosen.size} contexts of the {supports} largest support groups, at most {each} contexts per "
        f"group: {_predicted_and(run)}. Thin lines separate the groups. In theory, contexts of one group share one "
        "direction (cosine 1, dark red), whatever their tokens and probabilities are. White is a right angle; blue "
        "cosines are negative."
    )
    return Figure("labelled-contexts", "Contexts grouped by support", caption, panels, columns=2)


def labelled_tokens(
    prediction: FeaturePrediction, stats: NextTokenStatistics, *, run: Source | None = None, most: int = 50
) -> Figure:
    """Cosines between the tokens that follow the most contexts, with the tokens on the axes."""
    degree = np.diff(prediction.P.tocsr().indptr)
    chosen = np.sort(np.argsort(-degree, kind="stable")[:most])
    panels = _labelled("tokens", chosen, names_of(stats, "tokens", prediction.reduction.V), prediction, run)
    caption = (
        f"Cosines between the {chosen.size} tokens that follow the most contexts: {_predicted_and(run)}; the mean "
        "over all tokens is removed. In theory, tokens that follow exactly the same contexts share one direction "
        "(cosine 1, dark red); thin lines separate such groups. White is a right angle; blue cosines are negative. "
        "Neighbours have a high predicted cosine."
    )
    return Figure("labelled-tokens", "Tokens that follow the most contexts", caption, panels, columns=2)


def scaled_logits(L: Float) -> Float:
    """Logits with columns centred and scaled to a root mean square of 1: without the parts that softmax ignores."""
    centred = centre_columns(L)
    size = float(np.sqrt(np.mean(centred**2))) if centred.size else 0.0
    return np.asarray(centred / size if size > 0 else centred)


def _geometry_panels(sources: Mapping[str, Factors], order: FeatureOrder) -> list[HeatmapPanel]:
    """Rows cos(H, H), cos(W, W) and logits; one column per source."""
    logits = {name: scaled_logits(factors.logits) for name, factors in sources.items()}
    largest = max(float(np.abs(L).max(initial=0.0)) for L in logits.values()) or 1.0
    return [
        *(order.context_cosines(f"cos(H, H): {name}", factors.H) for name, factors in sources.items()),
        *(order.token_cosines(f"cos(W, W): {name}", factors.tokens.T) for name, factors in sources.items()),
        *(order.logits(f"logits: {name}", L, -largest, largest, "scaled logit") for name, L in logits.items()),
    ]


def _labelled(
    kind: Items, chosen: Int, names: list[str], prediction: FeaturePrediction, run: Source | None
) -> list[HeatmapPanel]:
    """Cosines between the chosen items, as predicted and, where there is a run, as trained."""
    sources = {"predicted": Factors(prediction.W, prediction.H)}
    if run is not None:
        sources["trained"] = _checked("run", run, prediction)
    if kind == "contexts":
        groups, vectors = prediction.context_groups, {name: factors.H for name, factors in sources.items()}
    else:
        groups, vectors = prediction.token_groups, {name: factors.tokens for name, factors in sources.items()}
    matrices = {source: cosines(columns[:, chosen]) for source, columns in vectors.items()}
    order = order_groups(groups[chosen], matrices["predicted"])
    inside, shown = np.ix_(order.indices, order.indices), order.names([names[int(i)] for i in chosen])
    return [
        cosine_panel(f"Cosines between {kind}, {source}", kind, C[inside], shown, order.breaks)
        for source, C in matrices.items()
    ]


def _predicted_and(run: Source | None) -> str:
    return "predicted" if run is None else "predicted and trained"


def _with_prediction(runs: Mapping[str, Source], prediction: FeaturePrediction) -> dict[str, Factors]:
    """Factors of the runs by name, then those of L^mm."""
    sources = {name: _checked(name, run, prediction) for name, run in runs.items()}
    return sources | {"L^mm": Factors(prediction.W, prediction.H)}


def _checked(name: str, source: Source, prediction: FeaturePrediction) -> Factors:
    """Factors of the sizes of the prediction; an error names the source."""
    try:
        factors = Factors.of(source)
        factors.require_sizes(prediction.reduction.V, prediction.reduction.m)
    except ProblemError as error:
        raise ProblemError(f"'{name}' cannot be drawn beside this prediction: {error}") from error
    return factors


def _of_largest(groups: Int, count: int, each: int) -> Int:
    """Up to ``each`` members of each of the ``count`` largest groups; without full supports where possible."""
    kept = np.flatnonzero(groups >= 0)
    kept = kept if kept.size else np.arange(groups.size)
    labels, sizes = np.unique(groups[kept], return_counts=True)
    largest = labels[np.argsort(-sizes, kind="stable")[:count]]
    members = [kept[groups[kept] == label][:each] for label in largest]
    return np.sort(np.concatenate(members)).astype(np.int64)


def _norm(L: Float) -> float:
    return float(np.linalg.norm(L)) or 1.0


STARS = 6
"""Index in the palette for decoder rows: grey, since colours stand for contexts."""


def linear_plane(prediction: LinearPrediction) -> Figure:
    """Direction W^mm and finite part W* of a prediction with embeddings in two dimensions."""
    data = prediction.data
    if data.d != 2:
        raise InputError(f"The plane needs embeddings of dimension 2; got d={data.d}.")
    panels = [
        ScatterPanel(
            f"{title}: rows of {name}",
            "first coordinate",
            "second coordinate",
            [*_embeddings(prediction, W), _rows(prediction, W, f"rows of {name}, by token")],
            equal=True,
            from_origin=True,
        )
        for title, name, W in (("Direction", "W^mm", prediction.W_mm), ("Finite part", "W*", prediction.W_star))
    ]
    return Figure("linear-plane", "The limit of training in the plane", _plane_caption(prediction), panels, columns=2)


def _embeddings(prediction: LinearPrediction, rows: Float) -> list[Points]:
    """Each context in its own colour, with the tokens of its support; scaled to the size of the decoder rows."""
    data = prediction.data
    names, tokens = names_of(data, "contexts", data.m), names_of(data, "tokens", data.V)
    largest = float(np.linalg.norm(rows, axis=1).max())
    scale = largest / float(np.linalg.norm(data.H, axis=0).max()) if largest > 0 else 1.0
    H = scale * data.H
    return [
        Points(
            f"{names[j]} and its next tokens",
            H[0, j : j + 1],
            H[1, j : j + 1],
            ["{" + ", ".join(tokens[z] for z in np.flatnonzero(data.S[:, j])) + "}"],
            "point",
            colour=j if j < STARS else j + 1,
        )
        for j in range(data.m)
    ]


def _rows(prediction: LinearPrediction, W: Float, label: str) -> Points:
    """Rows of a decoder; rows that coincide are drawn once, with all their names."""
    tokens = names_of(prediction.data, "tokens", prediction.data.V)
    size = float(np.abs(W).max()) or 1.0
    keys = np.round(W / size, 6) + 0.0
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    members = [[tokens[int(z)] for z in np.flatnonzero(inverse.reshape(-1) == g)] for g in range(len(distinct))]
    names = [" = ".join(group) for group in members]
    return Points(label, distinct[:, 0] * size, distinct[:, 1] * size, names, "star", colour=STARS)


def _plane_caption(prediction: LinearPrediction) -> str:
    data = prediction.data
    return (
        f"The linear model with {data.m} contexts, {data.V} tokens and fixed embeddings in the plane. Points: "
        "embeddings, one colour per context, labelled with the tokens that may follow it (its support) and scaled to "
        "the size of the stars. Stars: rows of the max-margin decoder W^mm (left), the direction in which training "
        "diverges, and of the finite part W* (right), to which it converges on the data subspace. On the left, tokens "
        f"that follow the same contexts share one star. {' '.join(prediction.summary().splitlines())}"
    )
