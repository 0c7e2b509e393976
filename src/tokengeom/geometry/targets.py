"""What a run is held against: the geometry of L_mm, and that of the proxy, as factors.

``M = U Sigma V^T``,  ``W = U Sigma^{1/2}`` (V x r),  ``H = Sigma^{1/2} V^T`` (r x m),  for M = L_mm and M = S~

Words and contexts of both are compared through their cosines and Grams, which do not depend on the rotation that W and
H are free up to. Factors are kept, not V x m or m x m matrices, so that a comparison costs no more than a step of
training.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.geometry.similarity import centred_words, unit_columns
from tokengeom.theory.closed_forms import RANK_TOLERANCE

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.supports import SupportReduction


@dataclass(frozen=True, eq=False)
class Factors:
    """A decoder W (V x d) and embeddings H (d x m), seen as words and contexts.

    ``bias``
        V, or None: part of the logits, not of the words' geometry.
    """

    W: Float
    H: Float
    bias: Float | None = None

    @cached_property
    def words(self) -> Float:
        """Words as columns, d x V, the mean word removed (what softmax cannot see)."""
        return centred_words(self.W)

    @cached_property
    def word_directions(self) -> Float:
        """Unit vectors of the words, d x V."""
        return unit_columns(self.words)

    @cached_property
    def context_directions(self) -> Float:
        """Unit vectors of the contexts, d x m."""
        return unit_columns(self.H)

    @cached_property
    def centred_logits(self) -> tuple[Float, Float]:
        """Factors (V x k, k x m) of the logits with each column's mean removed, the bias among them."""
        W = self.words.T
        if self.bias is None:
            return W, self.H
        ones = np.ones((1, self.H.shape[1]))
        return np.column_stack([W, self.bias - self.bias.mean()]), np.vstack([self.H, ones])


def direction_factors(prediction: Any) -> Factors:
    """Words and contexts of L_mm, as a prediction gives them."""
    return Factors(prediction.W, prediction.H)


def proxy_factors(reduction: SupportReduction) -> Factors:
    """Words and contexts of ``S~``, from the merged pattern: same rows and columns get the same vectors."""
    a, n = reduction.a, reduction.n
    merged = reduction.S_red - (a @ reduction.S_red) / reduction.V
    U, s, Vt = np.linalg.svd(merged * np.sqrt(a)[:, None] * np.sqrt(n), full_matrices=False)
    r = int((s > RANK_TOLERANCE * s[0]).sum()) if s.size else 0
    W = U[:, :r] / np.sqrt(a)[:, None] * np.sqrt(s[:r])
    H = np.sqrt(s[:r])[:, None] * Vt[:r] / np.sqrt(n)
    padded = np.concatenate([H, np.zeros((r, 1))], axis=1)
    return Factors(W[reduction.row_of], padded[:, reduction.column_of])


def logit_inner(x: Factors, y: Factors) -> float:
    """``<L_x, L_y>`` of centred logits, from the factors alone."""
    (A, B), (C, D) = x.centred_logits, y.centred_logits
    return float(np.sum((A.T @ C) * (B @ D.T)))


def factored_logit_distance(x: Factors, y: Factors) -> float:
    """Distance of centred normalised logits, ``sqrt(2 - 2 cos)``; NaN when one is 0."""
    size = np.sqrt(logit_inner(x, x) * logit_inner(y, y))
    return float(np.sqrt(max(2.0 - 2.0 * logit_inner(x, y) / size, 0.0))) if size > 0 else float("nan")
