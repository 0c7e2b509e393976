"""Reduced loss: cross-entropy whose softmax runs over the effective supports only.

::

    min_W f(W) = sum_j pi_j ( log sum_{z in S^_j} exp (W h_j)_z  -  sum_z p_jz (W h_j)_z )

where ``W`` is V x d, ``H`` d x m, ``P`` V x m, ``pi`` m, and ``S^`` the V x m effective support. The minimum
is attained, is the infimum of the true loss, and its minimiser in ``F^`` is the finite part of the limit
(docs/theory.md 2.2). Dual: the largest mean entropy ``sum_j pi_j Ent(q_j)`` of distributions ``q_j`` on ``S^_j`` with
the same moments, ``sum_j pi_j (q_j - p_j) h_j^T = 0``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.numerics import Float, log_sum_exp, x_log_x
from tokengeom.problems.base import AbstractProblem, Certificate

if TYPE_CHECKING:
    from tokengeom.problems.columns import Bool


@dataclass(frozen=True, eq=False)
class ReducedLoss(AbstractProblem[Float, Float]):
    """Effective supports ``S`` (V x m), probabilities ``P``, weights ``pi`` (m), embeddings ``H`` (d x m)."""

    S: Bool
    P: Float
    pi: Float
    H: Float

    def distribution(self, W: Float) -> Float:
        """Softmax over the effective supports. V x m."""
        L = np.where(self.S, W @ self.H, -np.inf)
        return np.asarray(np.exp(L - log_sum_exp(L)))

    def value(self, W: Float) -> float:
        """``f(W)`` in nats."""
        L = W @ self.H
        inside = log_sum_exp(np.where(self.S, L, -np.inf))
        return float(self.pi @ (inside - np.sum(self.P * L, axis=0)))

    def gradient(self, W: Float) -> Float:
        """``sum_j pi_j (q_j - p_j) h_j^T``. V x d."""
        return np.asarray(((self.distribution(W) - self.P) * self.pi) @ self.H.T)

    def certify(self, x: Float, dual: Float | None) -> Certificate:
        """Judge a decoder and distributions ``dual`` (V x m): moments, and loss against entropy.

        The problem has no constraint on W, so the primal residual is 0.
        """
        value = self.value(x)
        if dual is None:
            return Certificate(0.0, math.inf, value, -math.inf)
        moment = float(np.linalg.norm(((dual - self.P) * self.pi) @ self.H.T))
        scale = float(self.pi @ np.linalg.norm(self.H, axis=0))
        bound = -float(self.pi @ x_log_x(dual).sum(axis=0))
        return Certificate(0.0, moment / max(scale, 1e-300), value, bound)
