"""Effective supports and the reduced loss: the limit of training for data that need not be compatible or separable.

A direction W never increases the loss if and only if it has equal in-support logits and margins ``>= 0``. Let
``s_jv(W)`` be its margin at the pair (j, v), v off support. The linear program

::

    max sum_jv s_jv  s.t.  0 <= s_jv <= min(1, margin_jv(W)),  in-support logits of W equal

has an optimum at which every slack is 0 or 1. The pairs with slack 0 are added to the supports, which gives the
effective supports ``S^`` (docs/theory.md 2.2). The dual has the multipliers of NTP-SVM: ``A H^T = 0`` with ``-A_jv >=
1`` exactly at those pairs. A direction that separates all other pairs strictly and such an A together prove the
answer.

The reduced loss is the cross-entropy whose softmax runs over the effective supports only:

::

    min_W f(W) = sum_j pi_j ( log sum_{z in S^_j} exp (W h_j)_z  -  sum_z p_jz (W h_j)_z )

where ``W`` is V x d, ``H`` d x m, ``P`` V x m, ``pi`` m, and ``S^`` V x m. The minimum is attained and is the infimum
of the loss; its minimiser in ``F^`` is W_star, the finite part of the limit. Dual: the largest mean entropy ``sum_j
pi_j Ent(q_j)`` of distributions ``q_j`` on ``S^_j`` with the same moments, ``sum_j pi_j (q_j - p_j) h_j^T = 0``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tokengeom.core.numerics import Bool, Float, log_sum_exp, x_log_x
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.supports import in_support_spread, margins, repair_multipliers


@dataclass(frozen=True, eq=False)
class EffectiveSupportProblem(AbstractProblem[Float, Float]):
    """Supports ``S`` (V x m) and embeddings ``H`` (d x m)."""

    S: Bool
    H: Float

    def certify(self, x: Float, dual: Float | None) -> Certificate:
        """Certificate of a direction ``x`` (V x d) and multipliers ``dual`` (V x m, 0 when no pair is added).

        ``value`` is the number of pairs that x separates by at least 1/2; ``bound`` is the number of pairs that the
        multipliers do not prove inseparable.
        """
        L = x @ self.H
        gaps = margins(L, self.S)
        value = float(np.count_nonzero(gaps[~self.S] >= 0.5))
        primal = max(in_support_spread(L, self.S), max(0.0, -float(np.min(gaps, initial=0.0))))
        off = float(np.count_nonzero(~self.S))
        if dual is None or not dual.any():
            return Certificate(primal, 0.0 if dual is not None else np.inf, value, off)
        A = repair_multipliers(dual, self.S)
        blocked = -A[~self.S] > 1e-7 * float(np.max(-A[~self.S], initial=0.0))
        uncancelled = float(np.abs(A).sum(axis=0) @ np.linalg.norm(self.H, axis=0))
        residual = float(np.linalg.norm(A @ self.H.T)) / max(uncancelled, 1e-300)
        return Certificate(primal, residual, value, off - float(np.count_nonzero(blocked)))


@dataclass(frozen=True, eq=False)
class ReducedLoss(AbstractProblem[Float, Float]):
    """Effective supports ``S`` (V x m), probabilities ``P``, weights ``pi`` (m), embeddings ``H`` (d x m)."""

    S: Bool
    P: Float
    pi: Float
    H: Float

    def distribution(self, W: Float) -> Float:
        """Softmax over the effective supports, V x m."""
        L = np.where(self.S, W @ self.H, -np.inf)
        return np.asarray(np.exp(L - log_sum_exp(L)))

    def value(self, W: Float) -> float:
        """``f(W)`` in nats."""
        L = W @ self.H
        inside = log_sum_exp(np.where(self.S, L, -np.inf))
        return float(self.pi @ (inside - np.sum(self.P * L, axis=0)))

    def gradient(self, W: Float) -> Float:
        """``sum_j pi_j (q_j - p_j) h_j^T``, V x d."""
        return np.asarray(((self.distribution(W) - self.P) * self.pi) @ self.H.T)

    def certify(self, x: Float, dual: Float | None) -> Certificate:
        """Certificate of a decoder and distributions ``dual`` (V x m): moments, loss, and entropy as its bound.

        The problem has no constraint on W, so the primal residual is 0.
        """
        value = self.value(x)
        if dual is None:
            return Certificate(0.0, math.inf, value, -math.inf)
        moment = float(np.linalg.norm(((dual - self.P) * self.pi) @ self.H.T))
        scale = float(self.pi @ np.linalg.norm(self.H, axis=0))
        bound = -float(self.pi @ x_log_x(dual).sum(axis=0))
        return Certificate(0.0, moment / max(scale, 1e-300), value, bound)
