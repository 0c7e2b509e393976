"""The linear model in the plane: embeddings as points, rows of W^mm as stars, supports as coloured words.

A picture of [thrampoulidis2024, Fig. 1]. Tokens that occur in the same supports share a row of W^mm (one star, all
their names) and differ in W*.
"""

from __future__ import annotations

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Figure, Points, ScatterPanel
from tokengeom.figures.ordering import context_names, token_names
from tokengeom.numerics import Float
from tokengeom.theory.linear import LinearPrediction

STARS = 6
"""Place in the palette of decoder rows: grey, so that colour stays with the contexts."""


def linear_plane(prediction: LinearPrediction) -> Figure:
    """Draw a prediction with two-dimensional embeddings: the direction W^mm, and beside it the finite part W*."""
    data = prediction.data
    if data.d != 2:
        raise InputError(
            f"The plane needs embeddings of dimension 2; got d={data.d}. For other dimensions use linear_heatmaps."
        )
    mm = ScatterPanel(
        "Direction: rows of W^mm",
        "first coordinate",
        "second coordinate",
        [*_embeddings(prediction, prediction.W_mm), _rows(prediction, prediction.W_mm, "rows of W^mm, by token")],
        equal=True,
        from_origin=True,
    )
    star = ScatterPanel(
        "Finite part: rows of W*",
        "first coordinate",
        "second coordinate",
        [*_embeddings(prediction, prediction.W_star), _rows(prediction, prediction.W_star, "rows of W*, by token")],
        equal=True,
        from_origin=True,
    )
    return Figure("linear-plane", "The limit of training in the plane", _caption(prediction), [mm, star], columns=2)


def _embeddings(prediction: LinearPrediction, rows: Float) -> list[Points]:
    """Each context in its own colour, with the words of its support; scaled to the size of the rows beside it."""
    data = prediction.data
    names, tokens = context_names(data, data.m), token_names(data, data.V)
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
    """Rows of a decoder, those that coincide drawn once with all their names."""
    tokens = token_names(prediction.data, prediction.data.V)
    size = float(np.abs(W).max()) or 1.0
    keys = np.round(W / size, 6) + 0.0
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    members = [[tokens[int(z)] for z in np.flatnonzero(inverse.reshape(-1) == g)] for g in range(len(distinct))]
    words = [" = ".join(names) for names in members]
    return Points(label, distinct[:, 0] * size, distinct[:, 1] * size, words, "star", colour=STARS)


def _caption(prediction: LinearPrediction) -> str:
    data = prediction.data
    return (
        f"The linear model with {data.m} contexts, {data.V} tokens and fixed embeddings in the plane. "
        "Points: embeddings, each in the colour of its context, with the tokens that may follow it (its support) in "
        "the same colour; drawn at the scale of the stars. Stars: rows of the max-margin decoder W^mm (left), the "
        "direction in which training diverges, and of the finite part W* (right), which it converges to beside it. "
        "Left, a star lies ahead of the contexts that its token may follow, and tokens with the same contexts share "
        f"one star. {prediction.summary()}"
    )
