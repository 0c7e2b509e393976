"""How likely random data are separable: a phase diagram over dimension and support size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Figure, HeatmapPanel
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
