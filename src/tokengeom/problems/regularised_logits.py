"""The regularised loss of logits: one point of the regularisation path of learned features, with its dual.

``min_L CE(L) + lambda ||L||_*``

with the dual

``max_R sum_j pi_j Ent(r_j)  s.t.  ||(P - R) diag(pi)||_2 <= lambda``

where

``P``      next-token probabilities, V x m; ``pi`` share of each context, m
``L``      logits, V x m; ``CE(L) = H + sum_j pi_j KL(p_j || softmax L_j)``
``R``      dual: one distribution per column, V x m; at the optimum ``R = softmax(L)``
``Ent``    entropy: the dual is the most uncertain prediction whose error has spectral norm <= lambda

Both sides are computed relative to the entropy floor H, as sums of terms that do not cancel: ``CE - H = sum pi
(sum_on p (e^d - 1 - d) + sum_off q)`` with ``d = log q - log p``, which keeps its digits at 1e-14. Any R is made
feasible by moving it towards P: ``P + t (R - P)``, ``t = min(1, lambda / ||(P - R) diag(pi)||_2)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from tokengeom.errors import ProblemError
from tokengeom.numerics import Bool, Float, Matrix, dense, excess_exponential, log_sum_exp
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.supports import as_support


@final
@dataclass(frozen=True)
class RegularisedLogits(AbstractProblem[Float, Float]):
    """``CE(L) + lam ||L||_*``; objective and bound are given without the entropy floor H.

    A dual is given as the change ``R - P`` (V x m, columns sum to 0, >= 0 off support), which stays exact
    where R itself would round to P.
    """

    P: Float
    pi: Float
    lam: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam > 0):
            raise ProblemError(
                f"A regularisation strength must be > 0; got lambda={self.lam}. At lambda = 0 the loss has no "
                "minimiser. Use a small positive number; the path can be followed to 1e-12 and below."
            )

    @staticmethod
    def from_probabilities(P: Matrix, pi: ArrayLike, lam: float) -> RegularisedLogits:
        """The problem of checked probabilities (columns sum to 1) and shares (> 0, sum to 1)."""
        probabilities, shares = dense(P), np.asarray(pi, dtype=np.float64)
        as_support(probabilities)
        sums = probabilities.sum(axis=0)
        if (probabilities < 0).any() or not np.allclose(sums, 1.0, atol=1e-9):
            raise ProblemError(
                f"Each column of P must be a distribution: >= 0 with sum 1; the sums range from {sums.min():.6g} to "
                f"{sums.max():.6g}. Likely counts. Divide by their sums."
            )
        if shares.shape != sums.shape or not (shares > 0).all() or not np.isclose(shares.sum(), 1.0):
            raise ProblemError(
                f"Shares must be one positive number per context with sum 1; got pi of shape {shares.shape} and sum "
                f"{shares.sum():.6g} for m={sums.size}. Drop contexts that never occur."
            )
        return RegularisedLogits(probabilities, shares, lam)

    def at(self, lam: float) -> RegularisedLogits:
        """The same data with another strength."""
        return RegularisedLogits(self.P, self.pi, lam)

    @cached_property
    def S(self) -> Bool:
        """Support, V x m."""
        return np.asarray(self.P > 0)

    @cached_property
    def log_P(self) -> Float:
        """``log P`` on support, 0 elsewhere, V x m."""
        return np.log(np.where(self.S, self.P, 1.0))

    def log_ratio(self, L: Float) -> tuple[Float, Float]:
        """``d = log q - log p`` on support and ``q`` off support, each 0 elsewhere, with q = softmax L."""
        log_q = L - log_sum_exp(L)
        return np.where(self.S, log_q - self.log_P, 0.0), np.where(self.S, 0.0, np.exp(log_q))

    def loss_gap(self, L: Float) -> float:
        """``CE(L) - H``, a sum of terms >= 0."""
        d, off = self.log_ratio(L)
        return float((self.P * excess_exponential(d) + off).sum(axis=0) @ self.pi)

    def dual_change(self, L: Float) -> Float:
        """``R - P`` for ``R = softmax(L)``, V x m."""
        d, off = self.log_ratio(L)
        return np.asarray(self.P * np.expm1(d) + off)

    def entropy_gain(self, change: Float) -> float:
        """``sum_j pi_j (Ent(p_j + change_j) - Ent(p_j))``, with slope and curvature summed separately."""
        e = np.where(self.S, change / np.where(self.S, self.P, 1.0), 0.0)
        off = np.where(self.S, 0.0, np.maximum(change, 0.0))
        # -(1 + e) log(1 + e) + e is the curvature; the terms in e (1 + log p) and off sum to the slope.
        curvature = -self.P * ((1.0 + e) * np.log1p(np.where(e > -1.0, e, 0.0)) - e)
        slope = np.where(self.S, -change * (1.0 + self.log_P), 0.0) - off * np.log(np.where(off > 0, off, 1.0))
        return float((curvature + slope).sum(axis=0) @ self.pi)

    def certify(self, x: Float, dual: Float | None) -> Certificate:
        """Certificate of logits and a dual change ``R - P``, which is made feasible; value and bound without H."""
        if not np.isfinite(x).all():
            raise ProblemError("Logits must be finite; L holds NaN or infinity. Likely a run that diverged.")
        nuclear = float(np.linalg.svd(x, compute_uv=False).sum())
        value = self.loss_gap(x) + self.lam * nuclear
        if dual is None:
            return Certificate(0.0, float("inf"), value, float("-inf"))
        change, moved = self.repair_dual(dual)
        spectral = float(np.linalg.norm(change * self.pi, 2))
        t = min(1.0, self.lam / max(spectral, 1e-300))
        return Certificate(0.0, max(moved, spectral / self.lam - 1.0, 0.0), value, self.entropy_gain(t * change))

    def repair_dual(self, change: Float) -> tuple[Float, float]:
        """A feasible change near the given one, and the largest difference in units of lambda.

        Entries are clipped at 0 off support and at -P on it; column sums are restored in proportion to P.
        """
        clipped = np.where(self.S, np.maximum(change, -self.P), np.maximum(change, 0.0))
        fixed = clipped - self.P * clipped.sum(axis=0)
        return fixed, float(np.abs(fixed - change).max() / self.lam)
