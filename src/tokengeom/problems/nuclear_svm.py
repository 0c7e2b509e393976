"""NTP-SVM*: the smallest nuclear norm that separates every context's support from the rest of the vocabulary.

``min ||L||_*  s.t.  L[z,j] = L[z',j] for z, z' in S_j,   L[z,j] - L[v,j] >= 1 for z in S_j, v not in S_j``

Its solution is L_mm. On the merged pattern, with ``X = diag(sqrt a) L diag(sqrt n)``:

``min ||X||_*  s.t.  X in C``

with the dual

``max <B, G>  s.t.  ||G||_2 <= 1,  sqrt(a)^T G = 0,  G <= 0 off support``

where

``S``      support pattern of the merged problem, V' x g
``a, n``   tokens per merged row (V'), contexts per merged column (g)
``L``      logits, V' x g; ``X`` the same, scaled so that its nuclear norm is that of the logits on all V x m
``C``      matrices whose unscaled columns satisfy the constraints
``B``      ``diag(sqrt a) S diag(sqrt n)``
``G``      dual, V' x g; for feasible X and G, ``<X, G> >= <B, G>`` (each column weighted by its margin)

The solution depends on the pattern alone, not on the probabilities [zhao2024]. It need not be unique.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Matrix
from tokengeom.problems.backend import UNIT, Array, Backend, Blocks
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.columns import Computed, Layout
from tokengeom.problems.supports import SupportReduction, reduce_support

ROUNDING = 128.0
"""Units of rounding per term of an inner product, for a sum in a tree of up to 2^64 terms."""
NEWTON_STEPS = 60
"""Far above the 8 or so steps that a cold start needs, and the 2 that a warm one does."""


@final
@dataclass(frozen=True)
class NuclearSVM(AbstractProblem[Array, Array]):
    """NTP-SVM* on the merged pattern, on the CPU (NumPy) or on a PyTorch device.

    Where the backend spreads columns over processes, each process holds its part of the g columns of every array. Large
    matrices are in blocks of columns, and `part` is the problem of one block: maps that act on columns take its arrays.

    ``own``
        The merged columns that a part has; by default those of this process.

    Answers are logits ``L`` of the merged pattern (V' x g) and duals ``G`` of the scaled problem (V' x g);
    ``reduction.expand`` and ``reduction.expand_dual`` give them for all tokens and contexts.
    """

    reduction: SupportReduction
    backend: Backend = field(default_factory=Backend.on)
    own: slice | None = None

    @staticmethod
    def from_support(S: Matrix, *, merge: bool = True, device: str | None = None) -> NuclearSVM:
        """The problem of a V x m pattern, dense or scipy sparse; ``device`` is None for NumPy."""
        return NuclearSVM(reduce_support(S, merge=merge), Backend.on(device))

    @property
    def shape(self) -> tuple[int, int]:
        """``(V', g)``: rows and columns after merging."""
        rows, columns = self.reduction.S_red.shape
        return rows, columns

    @property
    def columns(self) -> slice:
        """Merged columns that this process, or this part, holds: all of them, unless they are spread."""
        return self.backend.columns(self.shape[1]) if self.own is None else self.own

    @cached_property
    def layout(self) -> Layout:
        """How the columns are cut into blocks."""
        return Layout.of(self.backend, *self.shape) if self.own is None else Layout(self.backend, (slice(None),))

    @cached_property
    def _parts(self) -> list[NuclearSVM]:
        first = self.columns.start
        slices = [slice(first + part.start, first + part.stop) for part in self.layout.slices]
        return [replace(self, own=part) for part in slices] if self.layout.several else [self]

    def part(self, k: int) -> NuclearSVM:
        """The problem of the columns of block k."""
        return self._parts[k]

    def each(self, function: Callable[[NuclearSVM, Array], Array], blocks: Blocks) -> Blocks:
        """A function of each part and the block that belongs to it."""
        return Computed(self.layout, lambda k: function(self.part(k), blocks[k]))

    @cached_property
    def S(self) -> Array:
        """Merged support pattern on the device, V' x g boolean."""
        return self.backend.asarray(self.reduction.S_red[:, self.columns])

    @cached_property
    def a(self) -> Array:
        """Tokens per merged row, V'."""
        return self.backend.asarray(self.reduction.a)

    @cached_property
    def row_scale(self) -> Array:
        """``sqrt a`` as a column, V' x 1."""
        return self.backend.asarray(np.sqrt(self.reduction.a)[:, None])

    @cached_property
    def column_scale(self) -> Array:
        """``sqrt n`` as a row, 1 x g."""
        return self.backend.asarray(np.sqrt(self.reduction.n)[None, self.columns])

    @cached_property
    def support_weight(self) -> Array:
        """Tokens inside each support, ``sum_{v in S_g} a_v``, g."""
        return self.a @ self.backend.as_float(self.S)

    @property
    def B(self) -> Array:
        """Objective of the dual: ``diag(sqrt a) S diag(sqrt n)``, V' x g."""
        return self.backend.as_float(self.S) * self.row_scale * self.column_scale

    def inner(self, G: Array | Blocks) -> float:
        """``<B, G>``."""
        products = self.each(lambda part, block: part._products(block), self.layout.split(G))
        return sum(float(self.backend.total(products[k].sum())) for k in range(len(products)))

    def _products(self, G: Array) -> Array:
        """``B`` times G, entry by entry."""
        return self.backend.xp.where(self.S, G, 0.0) * self.row_scale * self.column_scale

    def scale(self, L: Array) -> Array:
        """``X = diag(sqrt a) L diag(sqrt n)``, V' x g."""
        return L * self.row_scale * self.column_scale

    def unscale(self, X: Array) -> Array:
        """``L`` of ``X = diag(sqrt a) L diag(sqrt n)``, V' x g."""
        return X / self.row_scale / self.column_scale

    def proxy(self) -> Array:
        """``S~`` of the merged pattern, scaled: the support with each column's mean over tokens removed."""
        u = self.row_scale / float(self.reduction.V) ** 0.5
        return self.B - u @ (u.T @ self.B)

    def project(self, X: Array, level: Array | None = None, margin: float = 1.0) -> tuple[Array, Array]:
        """Nearest point of C to X, and the in-support level ``alpha`` of each of its columns.

        Per column, with ``x = X / (sqrt a sqrt n)``: ``alpha`` is the root of the increasing concave
        ``f(alpha) = sum_in a (alpha - x) - sum_off a (x + 1 - alpha)_+``; then support entries become
        ``alpha`` and the others ``min(x, alpha - 1)``. Newton's method is left of the root after one step from any
        start and rises to it in finitely many steps; the ``level`` of the last call is a good start. ``margin`` takes
        the place of 1.
        """
        L, level = nearest_feasible(
            self.backend, self.S, self.unscale(X), self.a, self.support_weight, level, margin=margin
        )
        return self.scale(L), level

    def project_dual(self, G: Array, level: Array | None = None) -> tuple[Array, Array]:
        """Nearest G whose columns sum to 0 (weighted with sqrt a) and that is <= 0 off support, and its levels.

        These G are a cone, whose polar is C with margin 0 in place of 1: ``P(G) = G + P_C(-G)`` (Moreau).
        """
        polar, level = self.project(-G, level, 0.0)
        return G + polar, level

    def primal_violation(self, L: Array) -> float:
        """Largest violation of an equality or a margin by logits L, in units of the margin 1."""
        return 0.0 if 0 in self.shape else largest_violation(self.backend, self.S, L)

    def repair_dual(self, G: Array) -> tuple[Array, float]:
        """G clipped off support, with column sums restored on support; and the largest change that this made."""
        fixed = self.backend.xp.where(self.S, G, self.backend.at_most(G, 0.0))
        sums = (self.row_scale * fixed).sum(0) / self.support_weight
        fixed = fixed - self.backend.as_float(self.S) * self.row_scale * sums
        return fixed, self.backend.largest(abs(fixed - G))

    def certify(self, x: Array | Blocks, dual: Array | Blocks | None) -> Certificate:
        """Certificate of logits and a dual, both made feasible first: value and bound are then proven.

        The value is an upper bound of the nuclear norm of the feasible point nearest to ``x``. What rounding leaves of
        its violation, at most ``delta`` in each of V x m entries, adds ``sqrt(V' V m) delta``. The bound is that of
        ``dual`` clipped off support, with column sums restored on support, divided by its spectral norm if that is
        above 1. The residuals say how far the answers were from feasible before.
        """
        L = self._checked(x, "L")
        if 0 in self.shape:
            return Certificate(0.0, 0.0, 0.0, 0.0)
        Z = self.each(lambda part, block: part.project(part.scale(block))[0], L)
        delta = self._largest_violation(self.each(lambda part, block: part.unscale(block), Z))
        entries = float(self.shape[0]) * self.reduction.V * self.reduction.m
        value = self.backend.proven_nuclear_norm(Z) + 2.0 * entries**0.5 * delta
        violation = self._largest_violation(L)
        if dual is None:
            return Certificate(violation, float("inf"), value, float("-inf"))
        given = self._checked(dual, "the dual")
        G = self.each(lambda part, block: part.repair_dual(block)[0], given)
        change = max(self.backend.largest(abs(G[k] - given[k])) for k in range(len(G)))
        spectral = self.proven_dual_norm(G)
        inner = self._proven_inner(G)
        bound = inner / max(1.0, spectral) if inner > 0 else inner
        return Certificate(violation, max(change, spectral - 1.0, 0.0), value, bound)

    def _largest_violation(self, L: Blocks) -> float:
        return max(self.part(k).primal_violation(L[k]) for k in range(len(L)))

    def _proven_inner(self, G: Blocks) -> float:
        """``<B, G>``, rounded downwards, with the sums of columns that are not exactly 0 taken off."""
        total, inner, size, excess = self.backend.total, 0.0, 0.0, 0.0
        for k in range(len(G)):
            part, block = self.part(k), G[k]
            products = part._products(block)
            inner += float(total(products.sum()))
            size += float(total(abs(products).sum()))
            excess += float(total((part.column_scale * part._column_excess(block)).sum()))
        return inner - (ROUNDING + len(G) + self.backend.world) * UNIT * size - excess

    def proven_dual_norm(self, G: Array | Blocks) -> float:
        """An upper bound of the spectral norm of a dual whose columns sum to 0 up to rounding.

        A column that sums to ``delta`` stands for the one with ``delta / support_weight`` taken off every support entry
        in proportion to ``sqrt a``, whose sum is exactly 0; the difference has the Frobenius norm that is added here.
        """
        blocks = self.layout.split(G)
        moved = self.each(lambda part, block: part._column_excess(block) / part.support_weight**0.5, blocks)
        return self.backend.proven_spectral_norm(blocks) + 1.1 * self.backend.norm(moved)

    def _column_excess(self, G: Array) -> Array:
        """A bound on how far each column of a dual is from summing to 0, g."""
        scaled = self.row_scale * G
        return abs(scaled.sum(0)) + 4.0 * self.shape[0] * UNIT * abs(scaled).sum(0)

    def _checked(self, x: Array | Blocks, name: str) -> Blocks:
        own = (self.shape[0], self.columns.stop - self.columns.start)
        if not isinstance(x, Blocks) and tuple(x.shape) != own:
            raise ProblemError(
                "An answer must have one row per merged token and one column per support group, "
                f"{own}; got {name} of shape {tuple(x.shape)}. Likely logits on all tokens and "
                "contexts. Average them with reduction.reduce, or build the problem with merge=False."
            )
        blocks = self.layout.split(x)
        if not self.backend.all_finite(blocks):
            raise ProblemError(
                f"An answer must be finite; {name} holds NaN or infinity. Likely a solver or a training run "
                "that diverged. Check its status."
            )
        return blocks


def nearest_feasible(
    backend: Backend, S: Array, x: Array, a: Array, weight: Array, level: Array | None, *, margin: float = 1.0
) -> tuple[Array, Array]:
    """The nearest feasible logits to x when row i counts ``a_i``, and their levels, as in `NuclearSVM.project`.

    ``weight`` is the sum of a inside each support.
    """
    xp = backend.xp
    inside = a @ xp.where(S, x, 0.0)
    raised = xp.where(S, -np.inf, x + margin)
    alpha = inside / weight if level is None else level
    for _ in range(NEWTON_STEPS):
        excess = raised - alpha
        slope = weight + a @ backend.as_float(excess > 0)
        step = (weight * alpha - inside - a @ backend.at_least(excess, 0.0)) / slope
        alpha = alpha - step
        # Columns do not depend on each other, so a process does not ask the others when to stop.
        if alpha.shape[0] == 0 or float(abs(step).max()) <= 1e-13 * (1.0 + float(abs(alpha).max())):
            break
    return xp.where(S, alpha, xp.minimum(x, alpha - margin)), alpha


def largest_violation(backend: Backend, S: Array, L: Array) -> float:
    """Largest violation of equal in-support logits, or of a margin of 1, by logits L."""
    xp = backend.xp
    low, high = xp.amin(xp.where(S, L, np.inf), 0), xp.amax(xp.where(S, L, -np.inf), 0)
    off = xp.amax(xp.where(S, -np.inf, L), 0)
    return max(backend.largest(xp.maximum(high - low, 1.0 - (low - off))), 0.0)
