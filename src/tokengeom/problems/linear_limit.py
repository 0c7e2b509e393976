"""Problems of the limit of the linear model: compatibility, effective supports, and the reduced loss.

**Compatibility** is a system of equations, which a decoder satisfies if it gives every context its log-probability
ratios::

    min ||W||_F  s.t.  (W h_j)_z - (W h_j)_z' = log(p_jz / p_jz')   for z, z' in S_j,  j = 1..m

or ``Pi_S(W H) = L_in`` with ``Pi_S`` the centring of each column on its support and ``L_in = Pi_S(log P)``.

The solution is W_star, the finite part of the limit. It is ``Y H^T`` for some Y in the range of ``Pi_S``, which is
the dual answer: ``<Y, L_in> / ||Y H^T||`` is a lower bound on the optimum. A ``Y`` with ``Y H^T = 0`` and ``<Y, L_in>
!= 0`` proves that no W exists, and its nonzero columns name the contexts in conflict [thrampoulidis2024, sec. 3].

**Effective supports** and the reduced loss give the limit for data that need not be compatible or separable. A
direction W never increases the loss if and only if it has equal in-support logits and margins ``>= 0``. Let ``s_jv(W)``
be its margin at the pair (j, v), v off support. The linear program

::

    max sum_jv s_jv  s.t.  0 <= s_jv <= min(1, margin_jv(W)),  in-support logits of W equal

has an optimum at which every slack is 0 or 1. The pairs with slack 0 are added to the supports, which gives the
effective supports ``S^`` (docs/theory.md 2.2). The dual has the multipliers of NTP-SVM: ``A H^T = 0`` with ``-A_jv >=
1`` exactly at those pairs. A direction that separates all other pairs strictly and such an A together prove the
answer.

**The reduced loss** is the cross-entropy whose softmax runs over the effective supports only:

::

    min_W f(W) = sum_j pi_j ( log sum_{z in S^_j} exp (W h_j)_z  -  sum_z p_jz (W h_j)_z )

where ``W`` is V x d, ``H`` d x m, ``P`` V x m, ``pi`` m, and ``S^`` V x m. The minimum is attained and is the infimum
of the loss; its minimiser in ``F^`` is W_star, the finite part of the limit. Dual: the largest mean entropy ``sum_j
pi_j Ent(q_j)`` of distributions ``q_j`` on ``S^_j`` with the same moments, ``sum_j pi_j (q_j - p_j) h_j^T = 0``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokengeom.core.numerics import Bool, Float, log_sum_exp, x_log_x
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.supports import centre_on, in_support_spread, margins, repair_multipliers


@dataclass(frozen=True, eq=False)
class CompatibilitySystem(AbstractProblem[Float, Float]):
    """Supports ``S`` and probabilities ``P`` (V x m), embeddings ``H`` (d x m)."""

    S: Bool
    P: Float
    H: Float

    @cached_property
    def target(self) -> Float:
        """``L_in``: log-probabilities centred on the support, 0 elsewhere, V x m."""
        return centre_on(self.S, np.log(np.where(self.S, self.P, 1.0)))

    def certify(self, x: Float, dual: Float | None) -> Certificate:
        """Certificate of a decoder ``x`` (V x d): residual of the equations, and its norm beside the lower bound."""
        scale = max(1.0, float(np.max(np.abs(self.target), initial=0.0)))
        residual = centre_on(self.S, x @ self.H) - self.target
        primal = float(np.max(np.abs(residual), initial=0.0)) / scale
        value = float(np.linalg.norm(x))
        if dual is None:
            return Certificate(primal, math.inf, value, 0.0)
        Y = centre_on(self.S, dual)
        size = float(np.linalg.norm(Y @ self.H.T))
        bound = float(np.vdot(Y, self.target)) / size if size > 0 else 0.0
        return Certificate(primal, self._outside(dual), value, bound)

    def refute(self, Y: Float) -> Certificate:
        """Certificate of a proof that no decoder exists: residual of ``Y H^T = 0``, and ``<Y, L_in>``.

        ``value`` is the cosine between Y and ``L_in``: any number clearly above the residual is a proof.
        """
        size = float(np.linalg.norm(Y))
        if size == 0.0:
            return Certificate(math.inf, math.inf, 0.0, 0.0)
        uncancelled = float(np.linalg.norm(Y, axis=0) @ np.linalg.norm(self.H, axis=0))
        relative = float(np.linalg.norm(Y @ self.H.T)) / uncancelled
        cosine = float(np.vdot(Y, self.target)) / (size * max(float(np.linalg.norm(self.target)), 1e-300))
        return Certificate(relative, self._outside(Y), cosine, cosine)

    def _outside(self, Y: Float) -> float:
        """Largest part of Y outside the range of ``Pi_S``, relative to Y."""
        scale = max(float(np.max(np.abs(Y), initial=0.0)), 1e-300)
        return float(np.max(np.abs(Y - centre_on(self.S, Y)), initial=0.0)) / scale


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
