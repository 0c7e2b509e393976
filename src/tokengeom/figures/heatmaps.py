"""Geometry found and geometry predicted, side by side: cos(H, H), cos(W, W) and L for runs, L^mm and the proxy.

Heat-maps of the linear model: P | W^mm | W*, tokens in one order.

From sparsity to geometry: S | S~ | L^mm in one order.

Heat-maps small enough to read every name: contexts by support group, and tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.figures.ordering import (
    MANY,
    Order,
    context_names,
    feature_order,
    order_by_cosines,
    order_groups,
    token_names,
)
from tokengeom.numerics import Float, Int, centre_columns, cosines
from tokengeom.theory.closed_forms import proxy
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.training.loop import State
from tokengeom.training.run import Run

Factors = tuple[Float, Float]


def feature_heatmaps(
    prediction: FeaturePrediction,
    runs: Mapping[str, Run | Factors] | None = None,
    *,
    stats: Any = None,
    most: int | None = MANY,
) -> Figure:
    """One column a source (each run or pair (W, H), then L^mm, then the proxy), one row a matrix, all in one order."""
    sources = {name: _factors(name, run, prediction) for name, run in (runs or {}).items()}
    sources["L^mm"] = (prediction.W, prediction.H)
    sources["proxy S~"] = balanced_factors(proxy(dense(prediction.P) > 0))
    order = feature_order(prediction, stats, most=most)
    logits = {name: scaled_logits(W @ H) for name, (W, H) in sources.items()}
    reach = max(float(np.abs(L).max(initial=0.0)) for L in logits.values()) or 1.0
    panels = [
        *(order.context_cosines(f"cos(H, H): {name}", H) for name, (_, H) in sources.items()),
        *(order.token_cosines(f"cos(W, W): {name}", W) for name, (W, _) in sources.items()),
        *(order.logits(f"logits: {name}", L, -reach, reach, "scaled logit") for name, L in logits.items()),
    ]
    caption = (
        f"Cosines between contexts (top) and between words (middle), and logits (bottom; columns centred, root mean "
        f"square 1), for {_list(sources)}. L^mm is what theory predicts of training; the proxy S~ is the matrix of "
        f"supports with its columns centred. {order.sentence()} Proven relative gap of L^mm: "
        f"{prediction.certificate.relative_gap:.1e}; rank {prediction.rank}."
    )
    return Figure("feature-heatmaps", "Geometry found and geometry predicted", caption, panels, columns=len(sources))


def balanced_factors(L: Float) -> Factors:
    """``W = U Sigma^{1/2}`` and ``H = Sigma^{1/2} V^T`` of a V x m matrix: its geometry as embeddings."""
    U, s, Vt = np.linalg.svd(L, full_matrices=False)
    kept = s > 1e-10 * max(float(s[0]), 1e-300)
    return U[:, kept] * np.sqrt(s[kept]), np.sqrt(s[kept])[:, None] * Vt[kept]


def dense(matrix: Any) -> Float:
    """A V x m matrix, sparse or not, as an array."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)


def _factors(name: str, run: Run | Factors, prediction: FeaturePrediction) -> Factors:
    W, H = (run.W, run.H) if isinstance(run, Run) else run
    V, m = prediction.reduction.V, prediction.reduction.m
    if W.shape[0] != V or H.shape[1] != m or W.shape[1] != H.shape[0]:
        raise InputError(
            f"A run must have W with {V} rows and H with {m} columns, as predicted; '{name}' has W {W.shape} and "
            f"H {H.shape}. Likely it was trained on other statistics."
        )
    return W, H


def _list(names: Any) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else str(last)


MANY = 400


def linear_heatmaps(prediction: LinearPrediction, *, most: int = MANY) -> Figure:
    """Next-token probabilities, diverging direction and finite part, rows ordered alike; ``most`` rows and columns."""
    data = prediction.data
    rows = order_by_cosines(cosines(data.P.T)).thinned(most)
    _, group = np.unique(data.S, axis=1, return_inverse=True)
    columns = order_groups(group.reshape(-1), cosines(data.P)).thinned(most)
    tokens = rows.names(token_names(data, data.V))
    contexts = columns.names(context_names(data, data.m))
    P = HeatmapPanel(
        "P: next-token probabilities",
        data.P[np.ix_(rows.indices, columns.indices)],
        "contexts",
        "tokens",
        contexts,
        tokens,
        columns.breaks,
        low=0.0,
        colour_label="probability",
    )
    width = slice(0, most)
    coordinates = [f"coordinate {i}" for i in range(min(data.d, most))]
    direction, finite = (
        HeatmapPanel(title, W[rows.indices, width], "coordinates of the embedding", "tokens", coordinates, tokens)
        for title, W in (("W^mm: diverging direction", prediction.W_mm), ("W*: finite part", prediction.W_star))
    )
    return Figure("linear-heatmaps", "What training finds, beside what it sees", _caption(prediction), [
        P, direction, finite,
    ], columns=3)  # fmt: skip


def _caption(prediction: LinearPrediction) -> str:
    data = prediction.data
    return (
        f"The linear model with {data.m} contexts, {data.V} tokens and fixed embeddings of dimension {data.d}. Left: "
        "next-token probabilities; contexts with the same support stand together. Middle: W^mm, the direction in which "
        "the decoder diverges. Right: W*, the finite part that it converges to on the data subspace. Tokens (rows) are "
        "in one order, with tokens of similar contexts side by side. Red is positive, blue negative, white 0. "
        f"{prediction.summary()}"
    )


def pattern_triple(prediction: FeaturePrediction, *, stats: Any = None, most: int | None = MANY) -> Figure:
    """Draw the support pattern, its centred proxy, and the certified direction."""
    S = dense(prediction.P) > 0
    S_tilde, L_mm = proxy(S), centre_columns(prediction.L_mm)
    order = feature_order(prediction, stats, most=most)
    reach = float(max(np.abs(S_tilde).max(), np.abs(L_mm).max())) or 1.0
    panels = [
        order.logits("S: which token may follow", S.astype(np.float64), 0.0, 1.0, "1 = may follow"),
        order.logits("S~: columns centred (proxy)", S_tilde, -reach, reach, "logit"),
        order.logits("L^mm: predicted direction", L_mm, -reach, reach, "logit"),
    ]
    distance = float(np.linalg.norm(S_tilde / _norm(S_tilde) - L_mm / _norm(L_mm)))
    caption = (
        f"Left: the support pattern, which is all that the direction depends on. Middle: the proxy S~, its columns "
        f"centred; nuclear norm {prediction.proxy_nuclear_norm:.6g}. Right: L^mm, the matrix of smallest nuclear norm "
        f"({prediction.nuclear_norm:.6g}, proven within {prediction.certificate.relative_gap:.1e}) that keeps every "
        f"possible next token at least 1 above every impossible one. Distance of the two, normalised: {distance:.3f}. "
        f"{prediction.proxy_sentence} {order.sentence()}"
    )
    return Figure("pattern-triple", "From sparsity to geometry", caption, panels, columns=3)


def _norm(L: Any) -> float:
    return float(np.linalg.norm(L)) or 1.0


def labelled_contexts(
    prediction: FeaturePrediction,
    stats: Any,
    *,
    run: Run | Factors | None = None,
    groups: int = 8,
    each: int = 6,
) -> Figure:
    """Cosines between contexts of the largest support groups, a few of each, with their tokens on the axes."""
    chosen = _of_largest(prediction.context_groups, groups, each)
    H = None if run is None else _labelled_factors(run)[1][:, chosen]
    order = order_groups(prediction.context_groups[chosen], cosines(prediction.H[:, chosen]))
    names = [context_names(stats, prediction.reduction.m)[int(j)] for j in chosen]
    panels = _panels("contexts", cosines(prediction.H[:, chosen]), None if H is None else cosines(H), order, names)
    supports = len(np.unique(prediction.context_groups[chosen]))
    caption = (
        f"Cosines between {chosen.size} contexts of {supports} support groups (the largest groups of the text, at most "
        f"{each} contexts of each): {_source(run)}. Contexts with the same possible next tokens stand between thin "
        "lines; theory says that they collapse to one direction (cosine 1, dark red), however different their tokens "
        "and probabilities are. Contexts without a common next token tend to point apart (blue)."
    )
    return Figure("labelled-contexts", "Contexts that may go on alike point alike", caption, panels, columns=2)


def labelled_tokens(
    prediction: FeaturePrediction, stats: Any, *, run: Run | Factors | None = None, most: int = 50
) -> Figure:
    """Cosines between the tokens that may follow most contexts, with the tokens on the axes."""
    degree = np.diff(prediction.P.tocsr().indptr)
    chosen = np.sort(np.argsort(-degree, kind="stable")[:most])
    W = None if run is None else _labelled_factors(run)[0][chosen]
    order = order_groups(prediction.token_groups[chosen], cosines(prediction.W[chosen].T))
    names = [token_names(stats, prediction.reduction.V)[int(z)] for z in chosen]
    panels = _panels("tokens", cosines(prediction.W[chosen].T), None if W is None else cosines(W.T), order, names)
    caption = (
        f"Cosines between the {chosen.size} tokens that may follow the most contexts: {_source(run)}. Tokens that follow "
        "the same contexts stand between thin lines and share one direction (cosine 1, dark red); tokens that compete "
        "for few common contexts tend to point apart (blue). Neighbours have a high predicted cosine."
    )
    return Figure("labelled-tokens", "Tokens that may follow alike point alike", caption, panels, columns=2)


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


def _labelled_factors(run: Run | Factors) -> Factors:
    return (run.W, run.H) if isinstance(run, Run) else run


def _source(run: Run | Factors | None) -> str:
    return (
        "as predicted from the supports alone"
        if run is None
        else "as predicted from the supports (left) and as trained"
    )


def scaled_logits(L: Float) -> Float:
    """Logits with columns centred, scaled to a root mean square of 1: what softmax and scale cannot change."""
    centred = L - L.mean(axis=0, keepdims=True)
    size = float(np.sqrt(np.mean(centred**2))) if centred.size else 0.0
    return np.asarray(centred / size if size > 0 else centred)


SHOWN = 150
"""Contexts or tokens in each of the many small panels."""


class Snapshots:
    """A probe that keeps W and H at the first record at or after each wanted step; it adds no measurement.

    ``train(..., probes={**others, "snapshots": kept})``, then ``evolution(kept.taken, prediction)``.
    """

    def __init__(self, steps: Iterable[int]) -> None:
        self._wanted = sorted({int(step) for step in steps})
        self.taken: dict[int, Factors] = {}

    def __call__(self, state: State) -> Mapping[str, float]:
        """Keep the state where a wanted step has been reached."""
        due = [step for step in self._wanted if step <= state.step]
        if due:
            self.taken[state.step] = (state.W.copy(), state.H.copy())
            self._wanted = self._wanted[len(due) :]
        return {}


def evolution(
    snapshots: Mapping[int, Factors],
    prediction: FeaturePrediction,
    *,
    stats: Any = None,
    most: int | None = SHOWN,
) -> Figure:
    """Rows cos(H, H), cos(W, W) and logits; columns the steps (step -> (W, H)) and then L^mm."""
    if not snapshots:
        raise InputError("An evolution needs snapshots of at least one step; got none. Record them with Snapshots.")
    sources = {f"step {step:,}": snapshots[step] for step in sorted(snapshots)}
    sources["L^mm"] = (prediction.W, prediction.H)
    order = feature_order(prediction, stats, most=most)
    logits = {name: scaled_logits(W @ H) for name, (W, H) in sources.items()}
    reach = max(float(np.abs(L).max(initial=0.0)) for L in logits.values()) or 1.0
    panels = [
        *(order.context_cosines(f"cos(H, H), {name}", H) for name, (_, H) in sources.items()),
        *(order.token_cosines(f"cos(W, W), {name}", W) for name, (W, _) in sources.items()),
        *(order.logits(f"logits, {name}", L, -reach, reach, "scaled logit") for name, L in logits.items()),
    ]
    caption = (
        "How geometry appears during training: cosines between contexts (top), between words (middle) and logits "
        "(bottom; columns centred, root mean square 1), at growing steps from left to right; the last column is L^mm, "
        f"what theory predicts of the limit. {order.sentence()}"
    )
    return Figure("evolution", "How geometry appears during training", caption, panels, columns=len(sources))
