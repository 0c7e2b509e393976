"""What is lost when embeddings have few dimensions: loss, similarity and collapse against d."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, LinePanel
from tokengeom.numerics import Float


def small_d(
    dims: Float,
    loss_gap: Float,
    similarity: Mapping[str, Float],
    collapse: Float,
    *,
    rank: int | None = None,
    V: int | None = None,
) -> Figure:
    """Draw measurements of runs that differ in d.

    ``dims``                  dimensions, k
    ``loss_gap``, ``collapse``  k, or k x seeds (mean and range are drawn)
    ``similarity``            name -> the same, such as "contexts" and "words"
    ``rank``, ``V``           marked where given: the rank of L^mm, and the vocabulary
    """
    d = np.asarray(dims, dtype=np.float64)
    marks = [(name, float(v)) for name, v in (("rank of L^mm", rank), ("vocabulary V", V)) if v is not None]
    x = "dimension d"
    similar = [_curve(name, d, values) for name, values in similarity.items()]
    floor = [("equal geometry", 1.0)]
    panels = [
        LinePanel("Loss above the entropy", x, "CE - H, nats", [_curve("loss", d, loss_gap)], "log", "log", (), marks),
        LinePanel("Similarity with the prediction", x, "SIM", similar, "log", "linear", floor, marks),
        LinePanel(
            "Collapse in support groups",
            x,
            "within / between",
            [_curve("spread", d, collapse)],
            "log",
            "log",
            (),
            marks,
        ),
    ]
    known = (
        "" if rank is None else f" The prediction L^mm has rank {rank}: from there on nothing is expected to be lost."
    )
    several = any(np.ndim(values) > 1 for values in (loss_gap, collapse, *similarity.values()))
    bands = " Bands: range over seeds." if several else ""
    caption = (
        f"Models with embeddings of {d.min():g} to {d.max():g} dimensions, trained alike. Left: how far the loss stays "
        "above the entropy. Middle: structural similarity of their cosines with the predicted ones (1 where they agree"
        "). Right: spread of the directions of contexts that share a support, against the spread over all; 0 is "
        f"full collapse.{known}{bands}"
    )
    return Figure("small-d", "What is lost in few dimensions", caption, panels, columns=3)


def _curve(label: str, d: Float, values: Float) -> Curve:
    found = np.asarray(values, dtype=np.float64)
    if found.shape[:1] != d.shape or found.ndim > 2:
        raise InputError(f"'{label}' must have a row for each of the {d.size} dimensions; got shape {found.shape}.")
    if found.ndim == 1:
        return Curve(label, d, found)
    return Curve(label, d, found.mean(axis=1), found.min(axis=1), found.max(axis=1))
