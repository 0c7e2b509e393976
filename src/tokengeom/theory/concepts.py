"""Concepts: singular vectors of S~ or L_mm, the tokens and contexts typical of them, and the order of learning.

``S~ = U Sigma V^T``  (or ``L_mm``):  u_k says which tokens, v_k which contexts carry concept k

where
    U, V^T    V x r and r x m; sign = side of the concept, size = typicality, ``sigma_k`` = importance
    s_i(t)    strength of concept i at time t of the square-loss surrogate from spectral initialisation:
              ``s_i(t) = sigma_i / (1 + (sigma_i e^{2 delta} - 1) e^{-2 sigma_i t})``  [zhao2025]

In that surrogate, concepts with larger sigma are learned earlier. The sign of a singular vector is arbitrary; here its
largest token entry is positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, Int

TYPICAL = 0.1
"""Share of the largest entry from which a token or context is typical of a concept; rounding is far below."""


@dataclass(frozen=True)
class Concept:
    """One concept: the typical tokens and contexts of its positive and its negative side, the most typical first."""

    index: int
    importance: float
    tokens: tuple[Int, Int]
    contexts: tuple[Int, Int]

    def token_texts(self, vocabulary: Sequence[str]) -> tuple[list[str], list[str]]:
        """Typical tokens as text, positive side and negative side."""
        positive, negative = ([vocabulary[int(z)] for z in side] for side in self.tokens)
        return positive, negative


@dataclass(frozen=True)
class Concepts:
    """The concepts of a matrix, most important first."""

    U: Float
    singular_values: Float
    Vt: Float

    @staticmethod
    def of(M: ArrayLike, *, count: int | None = None) -> Concepts:
        """Concepts of a V x m matrix (S~ or L_mm); zero singular values are left out."""
        dense = np.asarray(M, dtype=np.float64)
        if dense.ndim != 2 or not np.isfinite(dense).all():
            raise ProblemError(
                f"Concepts need a finite V x m matrix; got shape {dense.shape} with "
                f"{int((~np.isfinite(dense)).sum())} entries that are NaN or infinite. Pass S~ or L_mm."
            )
        U, s, Vt = np.linalg.svd(dense, full_matrices=False)
        return Concepts.from_svd(U, s, Vt, count=count)

    @staticmethod
    def from_svd(U: Float, s: Float, Vt: Float, *, count: int | None = None) -> Concepts:
        """Concepts of given singular triplets, such as those of ``predict_proxy``; fixes the signs."""
        if count is not None and count < 1:
            raise ProblemError(f"The number of concepts must be at least 1; got count={count}.")
        kept = int((s > 1e-9 * max(float(s[0]), 1e-300)).sum()) if s.size else 0
        kept = kept if count is None else min(kept, count)
        U, s, Vt = U[:, :kept], s[:kept], Vt[:kept]
        largest = np.abs(U).argmax(axis=0) if kept else np.zeros(0, dtype=np.int64)
        sign = np.where(U[largest, np.arange(kept)] < 0, -1.0, 1.0)
        return Concepts(U * sign, s, Vt * sign[:, None])

    def __len__(self) -> int:
        return int(self.singular_values.size)

    def concept(self, k: int, *, typical: int = 8) -> Concept:
        """Concept k with up to ``typical`` tokens and contexts per side."""
        return Concept(k, float(self.singular_values[k]), _sides(self.U[:, k], typical), _sides(self.Vt[k], typical))

    def learning_curve(self, times: ArrayLike, *, delta: float = 5.0) -> Float:
        """Predicted strength of each concept at each time, r x T; rises from e^{-2 delta} to sigma."""
        return learning_curve(self.singular_values, times, delta=delta)

    def half_times(self, *, delta: float = 5.0) -> Float:
        """Time at which each concept reaches half of its strength, r: the predicted order of learning."""
        s = self.singular_values
        return np.asarray(np.log(np.maximum(s * np.exp(2.0 * delta) - 1.0, 1.0)) / (2.0 * s))


def learning_curve(singular_values: Float, times: ArrayLike, *, delta: float = 5.0) -> Float:
    """``s_i(t) = sigma_i / (1 + (sigma_i e^{2 delta} - 1) e^{-2 sigma_i t})``, r x T."""
    s = np.asarray(singular_values, dtype=np.float64)[:, None]
    t = np.asarray(times, dtype=np.float64)[None, :]
    return np.asarray(s / (1.0 + (s * np.exp(2.0 * delta) - 1.0) * np.exp(-2.0 * s * t)))


def _sides(vector: Float, typical: int) -> tuple[Int, Int]:
    order = np.argsort(-np.abs(vector), kind="stable")
    order = order[np.abs(vector[order]) >= TYPICAL * np.abs(vector).max(initial=0.0)]
    return order[vector[order] > 0][:typical], order[vector[order] < 0][:typical]
