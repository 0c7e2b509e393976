"""How likely random data are separable: a phase diagram over dimension and support size.

What is lost when embeddings have few dimensions: loss, similarity and collapse against d.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, HeatmapPanel, LinePanel
from tokengeom.numerics import Float


@dataclass(frozen=True, eq=False)
class PhaseGrid:
    """Share of separable draws for one vocabulary size.

    ``ratios``       d / m, increasing
    ``sizes``        support sizes, increasing
    ``probability``  len(sizes) x len(ratios), in [0, 1]; NaN where nothing was drawn
    ``trials``       draws behind each cell
    """

    V: int
    ratios: Sequence[float]
    sizes: Sequence[int]
    probability: Float
    trials: int


def phase_diagram(grids: Sequence[PhaseGrid], *, m: int | None = None) -> Figure:
    """One heat-map a vocabulary size; the line at d = m is where separability becomes certain in theory."""
    if not grids:
        raise InputError("A phase diagram needs at least one grid; got none.")
    panels = [_panel(grid) for grid in grids]
    return Figure("phase-diagram", "How likely are random data separable?", _caption(grids, m), panels, columns=3)


def _panel(grid: PhaseGrid) -> HeatmapPanel:
    shape = (len(grid.sizes), len(grid.ratios))
    if np.shape(grid.probability) != shape:
        raise InputError(
            f"Probabilities must have a row a support size and a column a ratio, {shape}; "
            f"got shape {np.shape(grid.probability)} for V={grid.V}."
        )
    beyond = int(np.searchsorted(np.asarray(grid.ratios), 1.0 - 1e-12))
    return HeatmapPanel(
        f"V = {grid.V} tokens",
        np.asarray(grid.probability, dtype=np.float64)[::-1],
        "dimension over contexts, d / m",
        "support size |S|",
        [f"{ratio:.3g}" for ratio in grid.ratios],
        [str(size) for size in reversed(grid.sizes)],
        [beyond] if 0 < beyond < len(grid.ratios) else [],
        low=0.0,
        high=1.0,
        colour_label="share separable",
    )


def _caption(grids: Sequence[PhaseGrid], m: int | None) -> str:
    contexts = "" if m is None else f"{m} contexts, "
    trials = sorted({grid.trials for grid in grids})
    drawn = f"{trials[0]}" if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    return (
        f"Share of random data ({contexts}random supports of one size, Gaussian embeddings; {drawn} draws a cell) for "
        "which some decoder gives every possible next token a higher logit than every impossible one. Yellow: always, "
        "dark blue: never, grey: not drawn. The thin vertical line is where d reaches m: from there on the embeddings "
        "are linearly independent and every draw must be separable; to its left it depends on the size of the supports."
    )


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
    ``similarity``            name -> the same, such as "contexts" and "tokens"
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
