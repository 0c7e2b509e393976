"""Agreement numbers of a decoder with fixed embeddings: direction, finite part, and margins in each norm.

``cosine``, ``cosine_without_finite``   ``cos(W, W^mm)`` and ``cos(W - W*, W^mm)``; 1 is best
``finite_error``                        ``||P_F(W) - W*|| / ||W*||``; 0 is best, absolute when ``W* = 0``
``margin_{norm}``                       smallest margin per unit of a norm; larger is better

The first three are sums over tokens, so that tokens (rows of W) are resampled and permuted. A margin is a minimum: a
bootstrap of a minimum means nothing, and it gets a null but no interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.geometry.agreement import AbstractNumbers, Better
from tokengeom.geometry.logit_numbers import FiniteDecoder
from tokengeom.geometry.probes import margin
from tokengeom.problems.ntp_svm import NORMS

if TYPE_CHECKING:
    from tokengeom.factors import Factors
    from tokengeom.numerics import Float, Int
    from tokengeom.theory.linear import LinearPrediction


@dataclass(frozen=True, eq=False)
class DecoderNumbers(AbstractNumbers):
    """Cosines and error on F, over the V tokens."""

    run: Factors
    prediction: LinearPrediction
    items: str = "tokens"

    @cached_property
    def _finite(self) -> FiniteDecoder:
        return FiniteDecoder.of(self.prediction)

    @property
    def size(self) -> int:
        """Tokens to draw from."""
        return int(self.run.W.shape[0])

    @property
    def better(self) -> Mapping[str, Better]:
        """Cosines rise, the error falls."""
        return {"cosine": "higher", "cosine_without_finite": "higher", "finite_error": "lower"}

    def resampled(self, draws: Float) -> dict[str, Float]:
        """Each number in each resample of tokens."""
        W, W_mm, W_star = self.run.W, self.prediction.W_mm, self.prediction.W_star
        error = draws @ np.sum((self._finite.project(W) - W_star) ** 2, axis=1)
        size = draws @ np.sum(W_star**2, axis=1)
        return {
            "cosine": _row_cosine(W, W_mm, draws),
            "cosine_without_finite": _row_cosine(W - W_star, W_mm, draws),
            "finite_error": np.sqrt(error / np.where(size > 0, size, 1.0)),
        }

    def permuted(self, orders: Int) -> dict[str, Float]:
        """Each number when the run's tokens change places; the error on F only where a projection is a product."""
        W, W_mm, W_star = self.run.W, self.prediction.W_mm, self.prediction.W_star
        found = {
            "cosine": _moved_cosine(W, W_mm, orders),
            "cosine_without_finite": _moved_cosine(W - W_star, W_mm, orders),
        }
        if self._finite.is_factored:
            found["finite_error"] = np.array([self._finite.error(W[order]) for order in orders])
        return found


@dataclass(frozen=True, eq=False)
class MarginNumbers(AbstractNumbers):
    """Normalised margins on the effective supports."""

    run: Factors
    prediction: LinearPrediction
    items: str = "tokens"

    @property
    def size(self) -> int:
        """Tokens to permute."""
        return int(self.run.W.shape[0])

    @property
    def better(self) -> Mapping[str, Better]:
        """Larger margins separate better."""
        return {f"margin_{name}": "higher" for name in NORMS}

    def values(self) -> Mapping[str, float]:
        """The margins themselves."""
        L, S = self.run.W @ self.run.H, self.prediction.effective_support
        return {f"margin_{name}": margin(L, S, norm.value(self.run.W)) for name, norm in NORMS.items()}

    def resampled(self, draws: Float) -> dict[str, Float]:
        """No interval: a bootstrap of a minimum means nothing."""
        return {}

    def permuted(self, orders: Int) -> dict[str, Float]:
        """Margins when tokens change places; no norm of W changes with them."""
        L, S = self.run.W @ self.run.H, self.prediction.effective_support
        smallest = np.array([margin(L[order], S, 1.0) for order in orders])
        sizes = {name: norm.value(self.run.W) for name, norm in NORMS.items()}
        return {f"margin_{name}": smallest / (size if size > 0 else np.nan) for name, size in sizes.items()}


def _row_cosine(X: Float, Y: Float, draws: Float) -> Float:
    cross, xx, yy = (draws @ np.einsum("vd,vd->v", A, B) for A, B in ((X, Y), (X, X), (Y, Y)))
    size = np.sqrt(xx * yy)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > 0, cross / size, np.nan)


def _moved_cosine(X: Float, Y: Float, orders: Int) -> Float:
    G = X @ Y.T
    size = float(np.linalg.norm(X) * np.linalg.norm(Y))
    cross = G[orders, np.arange(G.shape[1])].sum(axis=1)
    return np.asarray(cross / (size if size > 0 else np.nan))
