"""What changes with the embedding dimension d.

`phase_diagram`   how often random data are separable, by d / m and support size
`small_d`         loss gap, similarity and collapse of trained models, by d
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom.core.errors import InputError
from tokengeom.core.numerics import Float
from tokengeom.figures.base import Curve, Figure, HeatmapPanel, LinePanel


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
    """Share of separable draws, one heat-map per vocabulary size; in theory all draws with d >= m are separable."""
    if not grids:
        raise InputError("A phase diagram needs at least one grid; got none.")
    panels = [_phase_panel(grid) for grid in grids]
    return Figure("phase-diagram", "How often are random data separable?", _phase_caption(grids, m), panels, columns=3)


def _phase_panel(grid: PhaseGrid) -> HeatmapPanel:
    shape = (len(grid.sizes), len(grid.ratios))
    if np.shape(grid.probability) != shape:
        raise InputError(
            f"Probabilities must have one row per support size and one column per ratio, shape {shape}; "
            f"got {np.shape(grid.probability)} for V={grid.V}."
        )
    beyond = int(np.searchsorted(np.asarray(grid.ratios), 1.0 - 1e-12))
    return HeatmapPanel(
        f"V = {grid.V} tokens",
        np.asarray(grid.probability, dtype=np.float64)[::-1],
        "dimension / contexts, d / m",
        "support size |S|",
        [f"{ratio:.3g}" for ratio in grid.ratios],
        [str(size) for size in reversed(grid.sizes)],
        [beyond] if 0 < beyond < len(grid.ratios) else [],
        low=0.0,
        high=1.0,
        colour_label="share separable",
    )


def _phase_caption(grids: Sequence[PhaseGrid], m: int | None) -> str:
    contexts = "" if m is None else f"{m} contexts, "
    trials = sorted({grid.trials for grid in grids})
    draws = f"{trials[0]}" if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    return (
        f"Share of random data ({contexts}random supports of equal size, Gaussian embeddings; {draws} draws per cell) "
        "for which some decoder gives every token of a support the same logit, and every other token a lower one. "
        "Yellow: always; dark blue: never; grey: not measured. Thin vertical line: d = m. From there on the embeddings "
        "are linearly independent and every draw is separable; to its left, it depends on the size of the supports."
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
    """Loss gap, similarity and collapse of runs that differ in d.

    ``dims``                    dimensions, k
    ``loss_gap``, ``collapse``  k, or k x seeds (mean and range are drawn)
    ``similarity``              name -> the same, such as "contexts" and "tokens"
    ``rank``, ``V``             rank of L^mm and size of the vocabulary, marked where given
    """
    d = np.asarray(dims, dtype=np.float64)
    marks = [(name, float(v)) for name, v in (("rank of L^mm", rank), ("vocabulary V", V)) if v is not None]
    x = "dimension d"
    similar = [_curve(name, d, values) for name, values in similarity.items()]
    equal = [("equal geometry", 1.0)]
    gap, spread = [_curve("loss gap", d, loss_gap)], [_curve("spread", d, collapse)]
    panels = [
        LinePanel("Loss gap", x, "CE - H, nats", gap, "log", "log", (), marks),
        LinePanel("Similarity with the prediction", x, "SIM", similar, "log", "linear", equal, marks),
        LinePanel("Collapse in support groups", x, "within / between", spread, "log", "log", (), marks),
    ]
    known = "" if rank is None else f" L^mm has rank {rank}; that many dimensions are expected to suffice."
    several = any(np.ndim(values) > 1 for values in (loss_gap, collapse, *similarity.values()))
    bands = " Bands: range over seeds." if several else ""
    caption = (
        f"Models with {d.min():g} to {d.max():g} embedding dimensions and the same training settings. Left: loss minus "
        "entropy. Middle: structural similarity of their cosines with the predicted ones (1 if they are equal). Right: "
        "spread of the directions of contexts that share a support, relative to the spread of all; 0 is full collapse."
        f"{known}{bands}"
    )
    return Figure("small-d", "What few dimensions cost", caption, panels, columns=3)


def _curve(label: str, d: Float, values: Float) -> Curve:
    y = np.asarray(values, dtype=np.float64)
    if y.shape[:1] != d.shape or y.ndim > 2:
        raise InputError(f"'{label}' must have one row for each of the {d.size} dimensions; got shape {y.shape}.")
    return Curve(label, d, y) if y.ndim == 1 else Curve(label, d, y.mean(axis=1), y.min(axis=1), y.max(axis=1))
