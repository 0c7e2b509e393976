"""Problems in the gamma_2 norm: the regularised loss, one point of its path, and NTP-SVM*, the limit of the path.

``min_L CE(L) + lambda gamma_2(L)``,   ``gamma_2(L) = min_{L = W H} max_i ||w_i|| max_j ||h_j||``

where ``w_i`` are the rows of W and ``h_j`` the columns of H. The largest row and column take the place of the sums of
squares whose smallest value is the nuclear norm: ``gamma_2(L) = max_{r, c} ||diag(r) L diag(c)||_*`` over weights r of
rows and c of columns whose squares sum to 1. So for any r and c the problem of ``regularised_logits`` with these
weights has an optimal value that is at most this one's, and a dual that is feasible there proves a lower bound here:

``max_{R, r, c} sum_j pi_j Ent(R_j)  s.t.  ||diag(1/r) (P - R) diag(pi) diag(1/c)||_2 <= lambda``

At the optimum the rows of W with ``r_i > 0`` have equal norms, and so do the columns of H with ``c_j > 0``.

**Merging.** Tokens with equal rows of P become one row, and contexts with equal columns of P one column, whatever their
shares. This is exact, and multiplicities do not enter the norm. Given any ``L = W H``, replace the columns of H in a
group by their average, weighted with the shares: by Jensen's inequality, column by column, the loss does not rise, and
an average of vectors in a ball is in the ball, so neither does the norm. Replace the rows of W in a group by their
mean: this averages the logits over all permutations of the group's tokens, which change no loss, so the loss does not
rise, and the mean is in the ball too. A repeated row or column does not change a maximum.

**What is proven.** The bound holds as computed, as for the nuclear norm. The value is evaluated at stored factors,
whose largest row times largest column is at least ``gamma_2(W H)``.

**The limit**, as lambda falls to 0, is in direction NTP-SVM* in the gamma_2 norm, the smallest that separates every
support from the rest of the vocabulary:

``min gamma_2(L)  s.t.  L[z,j] = L[z',j] for z, z' in S_j,   L[z,j] - L[v,j] >= 1 for z in S_j, v not in S_j``

with the dual

``max <S, G>  s.t.  gamma_2*(G) <= 1,  1^T G = 0,  G <= 0 off support``

where

``S``      support pattern of the merged problem, V' x g
``L, G``   logits and dual, V' x g; ``gamma_2*(G) <= ||diag(1/r) G diag(1/c)||_2`` for any such weights r, c

Equal rows and columns of the pattern merge without multiplicities: a repeated row or column changes neither the
constraints nor a maximum. So the value is that of the whole problem, and some solution has equal columns for equal
supports. Other solutions may not, in contrast to the nuclear norm (docs/theory.md section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.problems.backend import UNIT, Array, Backend
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.columns import mapped, per_column
from tokengeom.problems.nuclear_svm import largest_violation, nearest_feasible
from tokengeom.problems.regularised_logits import RegularisedLogits


@final
@dataclass(frozen=True, eq=False)
class MaxNormFactors:
    """Factors W (V' x d) and H (d x m', an array or in blocks) of logits, measured by their largest row and column."""

    W: Array
    H: Array

    @property
    def logits(self) -> Array:
        """``W H``, V' x m', in blocks where H is."""
        return mapped(lambda H: self.W @ H, self.H)

    def shortened(self, rows: Array, columns: Array) -> MaxNormFactors:
        """The same with each row of W and each column of H multiplied by its own factor, V' and m'."""
        return MaxNormFactors(self.W * rows[:, None], mapped(lambda H, factor: H * factor, self.H, columns))

    def norm(self, backend: Backend, r: Array | None = None, c: Array | None = None) -> float:
        """``max_i ||w_i|| max_j ||h_j||``, rounded upwards: at least ``gamma_2(W H)``.

        With r or c, ``||diag(r) W||_F`` or ``||H diag(c)||_F`` in place of a maximum.
        """
        if self.W.shape[1] == 0:
            return 0.0
        rows, columns = (self.W**2).sum(1), per_column(lambda H: (H**2).sum(0), self.H)
        row = float(rows.max() if r is None else (r**2 * rows).sum())
        column = backend.largest(columns) if c is None else float(backend.total((c**2 * columns).sum()))
        terms = self.W.shape[1] + sum(held.shape[0] for held in (r, c) if held is not None)
        return float(np.sqrt(row * column) * (1.0 + 2.0 * (terms + 4) * UNIT))


@final
@dataclass(frozen=True, eq=False)
class WeightedDual:
    """A dual matrix (V' x m') with the weights ``r`` of rows and ``c`` of columns that bound its norm.

    The matrix is an array or in blocks.
    """

    matrix: Array
    r: Array
    c: Array

    def normalised(self, backend: Backend) -> WeightedDual:
        """The same with ``sum r^2 <= 1`` and ``sum c^2 <= 1``, in spite of rounding."""
        if not (float(self.r.min()) > 0 and backend.largest(-self.c) < 0):
            raise ProblemError("Weights of rows and columns must be > 0.")
        size = self.r.shape[0] + float(backend.total(float(self.c.shape[0])))
        above = 1.0 + 4.0 * (size + 8.0) * UNIT
        r = float((self.r**2).sum()) ** 0.5 * above
        c = float(backend.total((self.c**2).sum())) ** 0.5 * above
        return replace(self, r=self.r / r, c=self.c / c)


@final
@dataclass(frozen=True, eq=False)
class Gamma2Logits(AbstractProblem[MaxNormFactors, WeightedDual]):
    """``CE(L) + lam gamma_2(L)`` on merged tokens and contexts, without the entropy floor H.

    ``loss``
        Probabilities, shares and strength; its own weights ``r, c`` are not used.
    ``r``, ``c``
        Weights of rows or columns, on the device, that are held: the maximum is over the other ones alone. The norm
        then has ``||diag(r) W||_F`` or ``||H diag(c)||_F`` in place of the longest row or column, and rows or
        columns merge as in the nuclear norm. None where they are free, as in gamma_2.

    A dual holds the change ``R - P`` and its weights.
    """

    loss: RegularisedLogits
    r: Array | None = None
    c: Array | None = None

    def held(self, r: Array, c: Array) -> tuple[Array, Array]:
        """These weights, with those that are held in their place."""
        return r if self.r is None else self.r, c if self.c is None else self.c

    def norm(self, x: MaxNormFactors) -> float:
        """The norm of these factors, at least that of their logits."""
        return x.norm(self.loss.backend, self.r, self.c)

    def value(self, x: MaxNormFactors) -> float:
        """The objective at logits W H."""
        return self.loss.loss_gap(x.logits) + self.loss.lam * self.norm(x)

    def certify(self, x: MaxNormFactors, dual: WeightedDual | None) -> Certificate:
        """Certificate of factors and a dual change, which is made feasible; value and bound without H."""
        backend = self.loss.backend
        given = MaxNormFactors(backend.asarray(x.W), self.loss.layout.split(x.H))
        if not (backend.all_finite(given.W) and backend.all_finite(given.H)):
            raise ProblemError("Factors must be finite; W or H holds NaN or infinity. Likely a run that diverged.")
        value = self.value(given)
        if dual is None:
            return Certificate(0.0, float("inf"), value, float("-inf"))
        matrix, (r, c) = self.loss.layout.split(dual.matrix), (backend.asarray(weights) for weights in (dual.r, dual.c))
        weighted = WeightedDual(matrix, r, c).normalised(backend)
        bound, residual = self.loss.reweighted(*self.held(weighted.r, weighted.c)).proven_bound(weighted.matrix)
        return Certificate(0.0, residual, value, bound)


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
        """The nearest feasible logits to x when row i counts ``p_i``, and the in-support level of each column."""
        return nearest_feasible(self.backend, self.S, x, p, p @ self.backend.as_float(self.S), level)

    def primal_violation(self, L: Array) -> float:
        """Largest violation of an equality or a margin by logits L, in units of the margin 1."""
        return largest_violation(self.backend, self.S, L)

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
        weighted = WeightedDual(*map(backend.asarray, (dual.matrix, dual.r, dual.c))).normalised(backend)
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
