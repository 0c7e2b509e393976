"""Batches of raw windows, drawn from the corpus' own distribution.

A window is a pair (context j, next token z) with probability ``pi_j p_{j,z}``. Its label is one-hot, so that the
mean over many batches of the gradient is the gradient of the exact loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tokengeom.numerics import Float
from tokengeom.training.objective import Int, SoftLabels


@dataclass
class WindowSampler:
    """Draws windows with an explicit generator whose state can be stored and put back."""

    labels: SoftLabels
    generator: np.random.Generator
    _cumulative: Float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        total = np.cumsum(self.labels.weight[self.labels.context] * self.labels.share)
        self._cumulative = total / total[-1]

    def draw(self, steps: int, batch: int) -> Int:
        """Pair index of each window, steps x batch; two calls give the same windows as one call for both."""
        uniform = self.generator.random((steps, batch))
        return np.searchsorted(self._cumulative, uniform, side="right").astype(np.int64)

    def state(self) -> dict[str, Any]:
        """State of the generator, as JSON can hold it."""
        return dict(self.generator.bit_generator.state)

    def load(self, state: dict[str, Any]) -> None:
        """Put the generator back."""
        self.generator.bit_generator.state = state
