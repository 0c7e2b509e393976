"""Heat-maps of the linear model: P | W^mm | W*, tokens in one order."""

from __future__ import annotations

import numpy as np

from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.figures.names import context_names, token_names
from tokengeom.figures.ordering import order_by_cosines, order_groups
from tokengeom.theory.feature_prediction import cosines
from tokengeom.theory.linear import LinearPrediction

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
