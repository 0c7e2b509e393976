"""The linear model in the plane: embeddings as points, decoder rows as stars [thrampoulidis2024, Fig. 1].

Tokens that occur in the same supports have the same row of W^mm (one star with all their names) and differ in W*.
"""

from __future__ import annotations

import numpy as np

from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.figures.base import Figure, Points, ScatterPanel
from tokengeom.figures.ordering import names_of
from tokengeom.theory.linear import LinearPrediction

STARS = 6
"""Index in the palette for decoder rows: grey, since colours stand for contexts."""


def linear_plane(prediction: LinearPrediction) -> Figure:
    """Direction W^mm and finite part W* of a prediction with embeddings in two dimensions."""
    data = prediction.data
    if data.d != 2:
        raise InputError(
            f"The plane needs embeddings of dimension 2; got d={data.d}. Use linear_heatmaps for other dimensions."
        )
    panels = [
        ScatterPanel(
            f"{title}: rows of {name}",
            "first coordinate",
            "second coordinate",
            [*_embeddings(prediction, W), _rows(prediction, W, f"rows of {name}, by token")],
            equal=True,
            from_origin=True,
        )
        for title, name, W in (
            ("Direction", "W^mm", prediction.W_mm),
            ("Finite part", "W*", prediction.W_star),
        )
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
