"""Compatibility: the equations that a decoder must satisfy to give every context its log-probability ratios.

::

    min ||W||_F  s.t.  (W h_j)_z - (W h_j)_z' = log(p_jz / p_jz')   for z, z' in S_j,  j = 1..m

or ``Pi_S(W H) = L_in`` with ``Pi_S`` the centring of each column on its support and ``L_in = Pi_S(log P)``.

The solution is W_star, the finite part of the limit. It is ``Y H^T`` for some Y in the range of ``Pi_S``, which is
the dual answer: ``<Y, L_in> / ||Y H^T||`` is a lower bound on the optimum. A ``Y`` with ``Y H^T = 0`` and ``<Y, L_in>
!= 0`` proves that no W exists, and its nonzero columns name the contexts in conflict [thrampoulidis2024, sec. 3].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.supports import centre_on


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
