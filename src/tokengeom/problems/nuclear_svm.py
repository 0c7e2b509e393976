"""NTP-SVM*: the smallest nuclear norm that separates every context's support from the rest of the vocabulary.

``min ||L||_*  s.t.  L[z,j] = L[z',j] for z, z' in S_j,   L[z,j] - L[v,j] >= 1 for z in S_j, v not in S_j``

On the merged pattern, with ``X = diag(sqrt a) L diag(sqrt n)``:

``min ||X||_*  s.t.  X in C``

with the dual

``max <B, G>  s.t.  ||G||_2 <= 1,  sqrt(a)^T G = 0,  G <= 0 off support``

where

``S``      support pattern of the merged problem, V' x g
``a, n``   tokens per merged row (V'), contexts per merged column (g)
``L``      logits, V' x g; ``X`` the same, scaled so that its nuclear norm is that of the whole V x m
``C``      matrices whose unscaled columns satisfy the constraints
``B``      ``diag(sqrt a) S diag(sqrt n)``
``G``      dual, V' x g; for feasible X and G, ``<X, G> >= <B, G>`` (each column weighted by its margin)

The pattern alone decides the answer, never the probabilities [zhao2024]. It may have more than one answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.problems.arrays import Array, Arrays
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.supports import SupportReduction, reduce_support

NEWTON_STEPS = 60
"""Far above the ~8 steps from a cold start and ~2 from a warm one; the iteration ends by itself."""


@final
@dataclass(frozen=True)
class NuclearSVM(AbstractProblem[Array, Array]):
    """NTP-SVM* on the merged pattern, on the CPU (NumPy) or on a PyTorch device.

    Answers are logits ``L`` of the merged pattern (V' x g) and duals ``G`` of the scaled problem (V' x g);
    ``reduction.expand`` and ``reduction.expand_dual`` bring them to all tokens and contexts.
    """

    reduction: SupportReduction
    arrays: Arrays = field(default_factory=Arrays.on)

    @staticmethod
    def from_support(S: Any, *, merge: bool = True, device: str | None = None) -> NuclearSVM:
        """Build the problem from a V x m pattern (dense or scipy sparse); merging is exact."""
        return NuclearSVM(reduce_support(S, merge=merge), Arrays.on(device))

    @property
    def shape(self) -> tuple[int, int]:
        """``(V', g)``: rows and columns after merging."""
        rows, columns = self.reduction.S_red.shape
        return rows, columns

    @cached_property
    def S(self) -> Array:
        """Merged support pattern on the device, V' x g boolean."""
        return self.arrays.asarray(self.reduction.S_red)

    @cached_property
    def a(self) -> Array:
        """Tokens per merged row, V'."""
        return self.arrays.asarray(self.reduction.a)

    @cached_property
    def row_scale(self) -> Array:
        """``sqrt a`` as a column, V' x 1."""
        return self.arrays.asarray(np.sqrt(self.reduction.a)[:, None])

    @cached_property
    def column_scale(self) -> Array:
        """``sqrt n`` as a row, 1 x g."""
        return self.arrays.asarray(np.sqrt(self.reduction.n)[None, :])

    @cached_property
    def support_weight(self) -> Array:
        """Tokens inside each support, ``sum_{v in S_g} a_v``, g."""
        return self.a @ self.arrays.as_float(self.S)

    @cached_property
    def B(self) -> Array:
        """Objective of the dual: ``diag(sqrt a) S diag(sqrt n)``, V' x g."""
        return self.arrays.as_float(self.S) * self.row_scale * self.column_scale

    def scale(self, L: Array) -> Array:
        """``X = diag(sqrt a) L diag(sqrt n)``: logits to the matrix whose nuclear norm counts."""
        return L * self.row_scale * self.column_scale

    def unscale(self, X: Array) -> Array:
        """Undo ``scale``."""
        return X / self.row_scale / self.column_scale

    def proxy(self) -> Array:
        """``S~`` of the merged pattern, scaled: the support with each column's mean over tokens removed."""
        u = self.row_scale / self.arrays.norm(self.row_scale)
        return self.B - u @ (u.T @ self.B)

    def project(self, X: Array, level: Array | None = None) -> tuple[Array, Array]:
        """Nearest point of C to X, and the in-support level ``alpha`` of each of its columns.

        Per column, with ``x = X / (sqrt a sqrt n)``: ``alpha`` is the root of the increasing concave
        ``f(alpha) = sum_in a (alpha - x) - sum_off a (x + 1 - alpha)_+``; then support entries become
        ``alpha`` and the others ``min(x, alpha - 1)``. Newton from any start is left of the root after one
        step and rises to it in finitely many, so that the last call's ``level`` is a good start.
        """
        xp, arrays = self.arrays.xp, self.arrays
        x = self.unscale(X)
        inside = self.a @ xp.where(self.S, x, 0.0)
        raised = xp.where(self.S, -np.inf, x + 1.0)
        alpha = inside / self.support_weight if level is None else level
        for _ in range(NEWTON_STEPS):
            excess = raised - alpha
            slope = self.support_weight + self.a @ arrays.as_float(excess > 0)
            step = (self.support_weight * alpha - inside - self.a @ arrays.at_least(excess, 0.0)) / slope
            alpha = alpha - step
            if float(abs(step).max()) <= 1e-13 * (1.0 + float(abs(alpha).max())):
                break
        return self.scale(xp.where(self.S, alpha, xp.minimum(x, alpha - 1.0))), alpha

    def primal_violation(self, L: Array) -> float:
        """Largest violation of an equality or a margin by logits L, in units of the margin 1."""
        if 0 in self.shape:
            return 0.0
        low = self.arrays.xp.where(self.S, L, np.inf).min(0)
        high = self.arrays.xp.where(self.S, L, -np.inf).max(0)
        off = self.arrays.xp.where(self.S, -np.inf, L).max(0)
        low, high, off = (part if self.arrays.device is None else part.values for part in (low, high, off))
        return max(float((high - low).max()), float((1.0 - (low - off)).max()), 0.0)

    def repair_dual(self, G: Array) -> tuple[Array, float]:
        """Clip G off support, restore column sums on support; also give the largest change."""
        fixed = self.arrays.xp.where(self.S, G, self.arrays.at_most(G, 0.0))
        sums = (self.row_scale * fixed).sum(0) / self.support_weight
        fixed = fixed - self.arrays.as_float(self.S) * self.row_scale * sums
        return fixed, float(abs(fixed - G).max())

    def certify(self, x: Array, dual: Array | None) -> Certificate:
        """Judge logits and a dual: both are repaired to feasibility, so that value and bound are proven.

        The value is the nuclear norm of the feasible point nearest to ``x``; the bound is that of ``dual``
        clipped off support, with column sums restored on support, divided by its spectral norm if above 1.
        The residuals say how far the answers were from feasible before the repair.
        """
        L = self._checked(x, "L")
        if 0 in self.shape:
            return Certificate(0.0, 0.0, 0.0, 0.0)
        Z, _ = self.project(self.scale(L))
        value = float(self.arrays.singular_values(Z).sum())
        if dual is None:
            return Certificate(self.primal_violation(L), float("inf"), value, float("-inf"))
        G, change = self.repair_dual(self._checked(dual, "the dual"))
        spectral = float(self.arrays.singular_values(G)[-1])
        bound = float((self.B * G).sum()) / max(1.0, spectral)
        return Certificate(self.primal_violation(L), max(change, spectral - 1.0, 0.0), value, bound)

    def _checked(self, x: Array, name: str) -> Array:
        x = self.arrays.asarray(x)
        if tuple(x.shape) != self.shape:
            raise ProblemError(
                f"An answer must have one row a merged token and one column a support group, {self.shape}; "
                f"got {name} of shape {tuple(x.shape)}. Likely logits on all tokens and contexts. Pass them "
                "through reduction.reduce, or build the problem with merge=False."
            )
        if not bool(self.arrays.xp.isfinite(x).all()):
            raise ProblemError(
                f"An answer must be finite; {name} holds NaN or infinity. Likely a solver or a training run "
                "that diverged. Look at its status before certifying."
            )
        return x
