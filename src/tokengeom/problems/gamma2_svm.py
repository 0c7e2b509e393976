"""NTP-SVM* in the gamma_2 norm: the smallest gamma_2 norm that separates every support from the rest of the vocabulary.

``min gamma_2(L)  s.t.  L[z,j] = L[z',j] for z, z' in S_j,   L[z,j] - L[v,j] >= 1 for z in S_j, v not in S_j``

with the dual

``max <S, G>  s.t.  gamma_2*(G) <= 1,  1^T G = 0,  G <= 0 off support``

where

``S``      support pattern of the merged problem, V' x g
``L, G``   logits and dual, V' x g; ``gamma_2*(G) <= ||diag(p)^{-1/2} G diag(q)^{-1/2}||_2`` for any distributions p, q

It is the limit of the path of ``gamma2_logits`` as lambda falls to 0, in direction. Equal rows and columns of the
pattern merge without multiplicities: a repeated row or column changes neither the constraints nor a maximum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.problems.backend import UNIT, Array, Backend
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.gamma2_logits import MaxNormFactors, WeightedDual

NEWTON_STEPS = 60


@final
@dataclass(frozen=True)
class Gamma2SVM(AbstractProblem[MaxNormFactors, WeightedDual]):
    """NTP-SVM* in the gamma_2 norm on a merged pattern ``S``, V' x g boolean, without full columns."""

    pattern: Array
    backend: Backend = field(default_factory=Backend.on)

    @cached_property
    def S(self) -> Array:
        """The pattern on the device."""
        return self.backend.asarray(self.pattern)

    def project(self, x: Array, p: Array, level: Array | None = None) -> tuple[Array, Array]:
        """The nearest feasible logits to x when row i counts ``p_i``, and the in-support level of each column.

        Per column, the level is the root of ``sum_in p (level - x) - sum_off p (x + 1 - level)_+``, found by Newton's
        method, which rises to it from the left.
        """
        xp, backend = self.backend.xp, self.backend
        weight = p @ backend.as_float(self.S)
        inside = p @ xp.where(self.S, x, 0.0)
        raised = xp.where(self.S, -np.inf, x + 1.0)
        level = inside / weight if level is None else level
        for _ in range(NEWTON_STEPS):
            excess = raised - level
            slope = weight + p @ backend.as_float(excess > 0)
            step = (weight * level - inside - p @ backend.at_least(excess, 0.0)) / slope
            level = level - step
            if float(abs(step).max()) <= 1e-13 * (1.0 + float(abs(level).max())):
                break
        return xp.where(self.S, level, xp.minimum(x, level - 1.0)), level

    def primal_violation(self, L: Array) -> float:
        """Largest violation of an equality or a margin by logits L, in units of the margin 1."""
        xp = self.backend.xp
        low = xp.amin(xp.where(self.S, L, np.inf), 0)
        high = xp.amax(xp.where(self.S, L, -np.inf), 0)
        off = xp.amax(xp.where(self.S, -np.inf, L), 0)
        return max(self.backend.largest(xp.maximum(high - low, 1.0 - (low - off))), 0.0)

    def certify(self, x: MaxNormFactors, dual: WeightedDual | None) -> Certificate:
        """Certificate of factors and a dual, made feasible: the bound is proven, and so is the value up to rounding.

        Logits that violate constraints by ``delta`` are within ``2 delta`` of feasible ones in every entry, which adds
        at most ``2 delta sqrt(min(V', g))`` to their norm.
        """
        backend = self.backend
        given = MaxNormFactors(backend.asarray(x.W), backend.asarray(x.H))
        if not (backend.all_finite(given.W) and backend.all_finite(given.H)):
            raise ProblemError("Factors must be finite; W or H holds NaN or infinity. Likely a run that diverged.")
        delta = self.primal_violation(given.logits)
        value = given.norm(backend) + 2.0 * delta * min(self.S.shape) ** 0.5
        if dual is None:
            return Certificate(delta, float("inf"), value, float("-inf"))
        weighted = WeightedDual(*(backend.asarray(one) for one in (dual.matrix, dual.r, dual.c))).normalised(backend)
        G, moved = self.repair_dual(weighted.matrix)
        return Certificate(delta, moved, value, self.proven_bound(WeightedDual(G, weighted.r, weighted.c)))

    def repair_dual(self, G: Array) -> tuple[Array, float]:
        """G clipped off support, with column sums restored on support; and the largest change that this made."""
        S = self.backend.as_float(self.S)
        fixed = self.backend.xp.where(self.S, G, self.backend.at_most(G, 0.0))
        fixed = fixed - S * (fixed.sum(0) / S.sum(0))
        return fixed, self.backend.largest(abs(fixed - G))

    def proven_bound(self, dual: WeightedDual) -> float:
        """``<S, G> / gamma_2*(G)``, rounded downwards; a column that sums to ``delta`` has it taken off its support."""
        G, weight = dual.matrix, dual.r[:, None] * dual.c[None, :]
        S, size = self.backend.as_float(self.S), float(G.shape[0] + G.shape[1])
        delta = abs(G.sum(0)) + 4.0 * size * UNIT * abs(G).sum(0)
        inner = float((S * G).sum()) - 2.0 * (size + 8.0) * UNIT * float(abs(S * G).sum()) - float(delta.sum())
        scaled = G / weight
        moved = 1.1 * self.backend.norm(S * (delta / S.sum(0)) / weight) + 8.0 * UNIT * self.backend.norm(scaled)
        spectral = self.backend.proven_spectral_norm(scaled) + moved
        return inner / max(spectral, 1e-300) if inner > 0.0 else 0.0
