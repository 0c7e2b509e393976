"""The regularised loss of logits: one point of the regularisation path of learned features, with its dual.

``min_L CE(L) + lambda ||diag(r) L diag(c)||_*``

with the dual

``max_R sum_j pi_j Ent(r_j)  s.t.  ||diag(1/r) (P - R) diag(pi) diag(1/c)||_2 <= lambda``

where

``P``      next-token probabilities, V x m; ``pi`` share of each context, m
``L``      logits, V x m; ``CE(L) = H + sum_j pi_j KL(p_j || softmax L_j)``
``R``      dual: one distribution per column, V x m; at the optimum ``R = softmax(L)``
``Ent``    entropy: the dual is the most uncertain prediction whose error has spectral norm <= lambda
``r, c``   weights of the norm, V and m: all 1 for the nuclear norm of the logits themselves

**Merging.** Tokens with equal rows of P, and contexts with equal columns of P and equal shares, are merged into one row
or column, with ``a`` tokens and ``n`` contexts each, ``r = sqrt a`` and ``c = sqrt n``. This is exact: permuting such
tokens or contexts changes neither loss nor norm, both are convex, so averaging an optimum over the permutations gives
an optimum that is constant on the groups; and ``||E_r L E_c^T||_* = ||diag(sqrt a) L diag(sqrt n)||_*``, since the
matrices ``E_r, E_c`` that repeat rows and columns have orthogonal columns of these norms. All tokens that no context
allows are one row.

Both sides are computed relative to the entropy floor H, as sums of terms that do not cancel: ``CE - H = sum pi
(sum_on p (e^d - 1 - d) + sum_off q)`` with ``d = log q - log p``, which keeps its digits at 1e-14.

**What is proven.** For a feasible R the dual value bounds ``CE(L) - H + lambda ||L||_*`` from below for every L, so no
logits of loss gap g have a norm below ``(bound - g) / lambda``. The bound of `certify` holds as computed: R is made
feasible as stored, its spectral norm is bounded from above (`Backend.proven_spectral_norm`), and the rounding of the
entropy is subtracted (each column of P is taken as divided by its exact sum).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csc_array

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, Int, Matrix, dense, excess_exponential
from tokengeom.problems.backend import UNIT, Array, Backend, Blocks
from tokengeom.problems.base import AbstractProblem, Certificate
from tokengeom.problems.columns import Computed, Layout, SparseColumns, mapped
from tokengeom.problems.supports import as_support, merge_equal

ENTROPY_ROUNDING = 256.0
"""Units of rounding per term of the entropy: logarithms within 4, products, and what their sums add to them."""


@final
@dataclass(frozen=True, eq=False)
class RegularisedLogits(AbstractProblem[Array, Array]):
    """``CE(L) + lam ||diag(r) L diag(c)||_*`` on merged tokens and contexts, without the entropy floor H.

    ``a``, ``n``
        Tokens per row, V', and contexts per column, m'; ``pi`` is the share of all contexts of a column together.
    ``r``, ``c``
        Weights of the norm, V' and m'.

    A dual is given as the change ``R - P`` (V' x m', columns sum to 0 over tokens, >= 0 off support), which stays exact
    where R itself would round to P.

    Large matrices are in blocks of columns. P is then sparse, and `part` is the problem of one block with a dense P:
    maps that act on columns take its arrays.
    """

    P: Array
    pi: Array
    lam: float
    a: Array
    n: Array
    r: Array
    c: Array
    backend: Backend

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam > 0):
            raise ProblemError(
                f"A regularisation strength must be > 0; got lambda={self.lam}. At lambda = 0 the loss has no "
                "minimiser. Use a small positive number; the path can be followed to 1e-12 and below."
            )

    @staticmethod
    def from_probabilities(
        P: Matrix,
        pi: ArrayLike,
        lam: float,
        *,
        a: ArrayLike | None = None,
        n: ArrayLike | None = None,
        backend: Backend | None = None,
    ) -> RegularisedLogits:
        """The problem of checked probabilities (columns sum to 1 over tokens) and shares (> 0, sum to 1)."""
        on = Backend.on() if backend is None else backend
        shape: tuple[int, int] = getattr(P, "shape", None) or np.shape(P)
        layout = Layout.of(on, *shape)
        probabilities: Any = csc_array(P) if layout.several else dense(P)
        shares = np.asarray(pi, dtype=np.float64)
        if not layout.several:
            as_support(probabilities)
        tokens = np.ones(shape[0]) if a is None else np.asarray(a, dtype=np.float64)
        contexts = np.ones(shape[1]) if n is None else np.asarray(n, dtype=np.float64)
        sums = tokens @ probabilities
        if probabilities.min() < 0 or not np.allclose(sums, 1.0, atol=1e-9):
            raise ProblemError(
                f"Each column of P must be a distribution: >= 0 with sum 1; the sums range from {sums.min():.6g} to "
                f"{sums.max():.6g}. Likely counts. Divide by their sums."
            )
        if shares.shape != sums.shape or not (shares > 0).all() or not np.isclose(shares.sum(), 1.0):
            raise ProblemError(
                f"Shares must be one positive number per context with sum 1; got pi of shape {shares.shape} and sum "
                f"{shares.sum():.6g} for m={sums.size}. Drop contexts that never occur."
            )
        # Where columns are spread over processes, each holds its own part of whatever has one entry per context.
        own = on.columns(shares.size)
        plain = (shares[own], tokens, contexts[own], np.sqrt(tokens), np.sqrt(contexts[own]))
        on_pi, on_a, on_n, on_r, on_c = (on.asarray(x) for x in plain)
        held = probabilities[:, own]
        on_P = SparseColumns(layout, csc_array(held)) if layout.several else on.asarray(held)
        problem = RegularisedLogits(on_P, on_pi, lam, on_a, on_n, on_r, on_c, on)
        problem.__dict__["layout"] = layout
        return problem

    @cached_property
    def layout(self) -> Layout:
        """How the columns are cut into blocks: one, where P is dense."""
        return self.P.layout if isinstance(self.P, SparseColumns) else Layout(self.backend, (slice(None),))

    def part(self, k: int) -> RegularisedLogits:
        """The problem of the columns of block k, with a dense P; itself, where there is one block."""
        if not isinstance(self.P, SparseColumns):
            return self
        part = self.layout.slices[k]
        return replace(self, P=self.P[k], pi=self.pi[part], n=self.n[part], c=self.c[part])

    def blocks_of_P(self) -> Blocks:
        """P in dense blocks."""
        return Computed(self.layout, lambda k: self.part(k).P)

    def each(self, function: Callable[[RegularisedLogits, Array], Array], blocks: Blocks) -> Blocks:
        """A function of each part and the block that belongs to it."""
        return Computed(self.layout, lambda k: function(self.part(k), blocks[k]))

    def at(self, lam: float) -> RegularisedLogits:
        """The same data with another strength."""
        return self._with(lam=lam)

    def reweighted(self, r: Array, c: Array) -> RegularisedLogits:
        """The same data with other weights of the norm, V' and m'."""
        return self._with(r=r, c=c)

    def _with(self, **changed: object) -> RegularisedLogits:
        new = replace(self, **changed)  # type: ignore[arg-type]
        if not self.layout.several:
            # Logarithms of all probabilities cost as much as a step of a solver.
            new.__dict__.update(S=self.S, log_P=self.log_P, positive_P=self.positive_P, on_support=self.on_support)
        return new

    @cached_property
    def S(self) -> Array:
        """Support, V' x m'."""
        return self.P > 0

    @cached_property
    def log_P(self) -> Array:
        """``log P`` on support, 0 elsewhere, V' x m'."""
        return self.backend.xp.log(self.positive_P)

    @cached_property
    def positive_P(self) -> Array:
        """P on support, 1 elsewhere, V' x m'."""
        return self.backend.xp.where(self.S, self.P, 1.0)

    @cached_property
    def weight(self) -> Array:
        """``r c^T``, V' x m'."""
        return self.r[:, None] * self.c[None, :]

    @property
    def zero_gap(self) -> float:
        """``CE - H`` of logits 0: no point of the path has a larger one."""
        return self.loss_gap(Computed(self.layout, lambda k: 0.0 * self.part(k).P))

    @property
    def largest_lam(self) -> float:
        """Strength from which on logits 0 are optimal: the spectral norm of the gradient there."""
        return float(self.backend.fast_singular_values(self.gradient_at_zero())[-1])

    def gradient_at_zero(self) -> Blocks:
        """``diag(1/r) (1/V - P) diag(pi) diag(1/c)`` in blocks: the scaled dual of logits 0."""
        uniform = 1.0 / float(self.a.sum())

        def of(k: int) -> Array:
            part = self.part(k)
            return part.scaled_dual(uniform - part.P)

        return Computed(self.layout, of)

    def scaled_dual(self, change: Array) -> Array:
        """``diag(1/r) (R - P) diag(pi) diag(1/c)`` of all tokens, V' x m', whose spectral norm lambda bounds."""
        return change * ((self.a / self.r)[:, None] * (self.pi / self.c)[None, :])

    @cached_property
    def on_support(self) -> tuple[Array, Array]:
        """Row and column of each entry on support: few of all entries."""
        rows, columns = self.backend.xp.where(self.S)
        return rows, columns

    def log_ratio(self, L: Array) -> tuple[Array, Array]:
        """``d = log q - log p`` of the entries of `on_support`, and ``q`` off support, V' x m', with q = softmax L."""
        xp, on = self.backend.xp, self.on_support
        top = xp.amax(L, 0)
        q = xp.exp(L - top)
        sums = self.a @ q
        q /= sums
        q[on] = 0.0
        return L[on] - (xp.log(sums) + top)[on[1]] - self.log_P[on], q

    def loss_gap(self, L: Array | Blocks) -> float:
        """``CE(L) - H``, a sum of terms >= 0."""
        blocks = self.layout.split(L)
        return sum(self.part(k)._loss_gap(blocks[k]) for k in range(len(blocks)))

    def _loss_gap(self, L: Array) -> float:
        return self._gap_of(*self.log_ratio(L))

    def _gap_of(self, d: Array, off: Array) -> float:
        rows, columns = on = self.on_support
        inside = (self.P[on] * self.a[rows] * self.pi[columns] * excess_exponential(d, self.backend.xp)).sum()
        return float(self.backend.total(inside + (self.a @ off) @ self.pi))

    def _change_of(self, d: Array, off: Array) -> Array:
        """``R - P`` in place of ``off``."""
        off[self.on_support] = self.P[self.on_support] * self.backend.xp.expm1(d)
        return off

    def dual_change(self, L: Array) -> Array:
        """``R - P`` for ``R = softmax(L)``, V' x m'."""
        return self._change_of(*self.log_ratio(L))

    def gap_and_gradient(self, L: Array) -> tuple[float, Array]:
        """``CE(L) - H`` and its gradient ``diag(a) (softmax(L) - P) diag(pi)``, V' x m', of one block."""
        d, off = self.log_ratio(L)
        gap, change = self._gap_of(d, off), self._change_of(d, off)
        change *= self.a[:, None]
        change *= self.pi[None, :]
        return gap, change

    def entropy_gain(self, change: Array | Blocks) -> tuple[float, float]:
        """``sum_j pi_j (Ent(p_j + change_j) - Ent(p_j))``, and a bound on the rounding of this number."""
        blocks = self.layout.split(change)
        gains = [self.part(k)._entropy_gain(blocks[k]) for k in range(len(blocks))]
        if len(gains) == 1:
            return gains[0]
        # Adding up the blocks rounds too.
        added = 4.0 * len(gains) * UNIT * sum(abs(gain) + rounding for gain, rounding in gains)
        return sum(gain for gain, _ in gains), sum(rounding for _, rounding in gains) + added

    def _entropy_gain(self, change: Array) -> tuple[float, float]:
        xp, on = self.backend.xp, self.on_support
        P, given = self.P[on], change[on]
        e = given / P
        # (1 + e) log(1 + e) has the limit 0 at e = -1, where the whole probability is taken away.
        inside = (1.0 + e) * xp.log1p(xp.where(e > -1.0, e, 0.0))
        slope = given * (1.0 + self.log_P[on])
        off = self.backend.at_least(change, 0.0)
        off[on] = 0.0
        spread = off * xp.log(xp.where(off > 0, off, 1.0))
        gain, size = -spread, abs(change) + abs(spread) + off
        gain[on] = P * (e - inside) - slope
        size[on] += P * (abs(e) + abs(inside) + xp.where(e < -0.5, 64.0, 0.0)) + abs(slope)
        # Products with a and pi add their terms in any order, over processes too.
        rows, columns = self.P.shape
        units = ENTROPY_ROUNDING + rows + float(self.backend.total(float(columns))) + self.backend.world
        rounding = units * UNIT * float(self.backend.total((self.a @ size) @ self.pi))
        # Dividing a column by its sum 1 + delta changes its entropy by at most delta (log V + 3).
        excess = float(self.backend.total(self._column_excess(change) @ self.pi))
        rounding += excess * (float(np.log(float(self.a.sum()))) + 3.0)
        return float(self.backend.total((self.a @ gain) @ self.pi)), rounding

    def _column_excess(self, change: Array) -> Array:
        """A bound on how far each column of a change is from summing to 0, m'."""
        return abs(self.a @ change) + 4.0 * self.P.shape[0] * UNIT * (self.a @ abs(change))

    def certify(self, x: Array | Blocks, dual: Array | Blocks | None) -> Certificate:
        """Certificate of logits and a dual change ``R - P``, which is made feasible; value and bound without H."""
        L = self.layout.split(x)
        if not self.backend.all_finite(L):
            raise ProblemError("Logits must be finite; L holds NaN or infinity. Likely a run that diverged.")
        norm = self.backend.proven_nuclear_norm(self.weighted(L))
        value = self.loss_gap(L) + self.lam * norm
        if dual is None:
            return Certificate(0.0, float("inf"), value, float("-inf"))
        bound, residual = self.proven_bound(dual)
        return Certificate(0.0, residual, value, bound)

    def weighted(self, L: Blocks, power: int = 1) -> Blocks:
        """``diag(r) L diag(c)`` in blocks; with ``power`` -1, L of scaled logits."""
        r, c, slices = self.r[:, None], self.c, self.layout.slices
        if power == 1:
            return Computed(self.layout, lambda k: L[k] * (r * c[None, slices[k]]))
        return Computed(self.layout, lambda k: L[k] / (r * c[None, slices[k]]))

    def proven_bound(
        self, dual: Array | Blocks, dual_norm: Callable[[Blocks], float] | None = None
    ) -> tuple[float, float]:
        """The lower bound of the objective that a dual change proves, and how far the dual was from feasible.

        ``dual_norm`` gives an upper bound of the dual norm of a change; by default `proven_dual_norm`.
        """
        given = self.layout.split(dual)
        change = self.each(lambda part, block: part.repair_dual(block)[0], given)
        moved = max(self.backend.largest(abs(change[k] - given[k])) for k in range(len(given))) / self.lam
        spectral = (dual_norm or self.proven_dual_norm)(change)
        scale = min(1.0, self.lam / max(spectral, 1e-300))
        gain, rounding = self.entropy_gain(mapped(lambda block: block * scale, change))
        return gain - rounding, max(moved, spectral / self.lam - 1.0, 0.0)

    def proven_dual_norm(self, change: Array | Blocks) -> float:
        """An upper bound of the dual norm of a change whose columns sum to 0 up to rounding.

        A column that sums to ``delta`` stands for ``change - delta (P + change) / (1 + delta)``, whose sum is exactly
        0; the spectral norm of the difference is at most its Frobenius norm.
        """
        blocks = self.layout.split(change)
        moved = 1.1 * self.backend.norm(self.each(RegularisedLogits.column_repair, blocks))
        scaled = self.each(lambda part, block: part.scaled_dual(block), blocks)
        return self.backend.proven_spectral_norm(scaled) + moved + 8.0 * UNIT * self.backend.norm(scaled)

    def column_repair(self, change: Array) -> Array:
        """The scaled difference, V' x m', between a change and one whose columns sum to exactly 0."""
        return self.scaled_dual((self.P + abs(change)) * self._column_excess(change)[None, :])

    def repair_dual(self, change: Array) -> tuple[Array, float]:
        """A feasible change near the given one, and the largest difference in units of lambda.

        ``R = P + change`` is clipped at 0, and each column divided by its sum: as a change,
        ``(clipped - P s) / (1 + s)`` with s the sum of the clipped change, which is never below -P.
        """
        xp = self.backend.xp
        clipped = xp.where(self.S, xp.maximum(change, -self.P), self.backend.at_least(change, 0.0))
        s = self.a @ clipped
        # A column that takes away nearly all of P has no sum to be divided by: P itself is feasible.
        kept = s > -1.0 + 1e-6
        fixed = xp.where(kept, (clipped - self.P * s) / xp.where(kept, 1.0 + s, 1.0), 0.0)
        fixed = xp.maximum(fixed, -self.P)
        return fixed, self.backend.largest(abs(fixed - change)) / self.lam


@final
@dataclass(frozen=True, eq=False)
class Merging:
    """Which tokens are one row, and which contexts one column, of a merged problem, in this norm or in gamma_2.

    ``row_of``, ``column_of``
        Row of each token, V, and column of each context, m.
    """

    row_of: Int
    column_of: Int

    @staticmethod
    def of(P: csc_array, pi: Float | None = None) -> Merging:
        """Merge equal rows and equal columns of sparse probabilities; given shares, columns of equal shares only."""
        return Merging(*merge_equal(P, pi))

    @staticmethod
    def of_tokens(P: csc_array) -> Merging:
        """Merge equal rows alone: every context is a column of its own."""
        return replace(Merging.of(P, np.arange(P.shape[1], dtype=np.float64)), column_of=np.arange(P.shape[1]))

    @cached_property
    def a(self) -> Float:
        """Tokens per row, V'."""
        return np.bincount(self.row_of).astype(np.float64)

    @cached_property
    def n(self) -> Float:
        """Contexts per column, m'."""
        return np.bincount(self.column_of).astype(np.float64)

    @property
    def entries(self) -> int:
        """Size of the merged problem, V' times m'."""
        return int(self.a.size * self.n.size)

    def problem(self, P: csc_array, pi: Float, lam: float, backend: Backend) -> RegularisedLogits:
        """The regularised loss on merged tokens and contexts."""
        merged, shares = self.merged(P), self.shares(pi)
        return RegularisedLogits.from_probabilities(merged, shares, lam, a=self.a, n=self.n, backend=backend)

    def merged(self, P: csc_array) -> csc_array:
        """Probabilities of merged tokens after merged contexts, V' x m'."""
        rows = np.unique(self.row_of, return_index=True)[1]
        columns = np.unique(self.column_of, return_index=True)[1]
        return csc_array(P.tocsr()[rows].tocsc()[:, columns])

    def shares(self, pi: Float) -> Float:
        """Share of all contexts of each column together, m'."""
        shares = np.bincount(self.column_of, weights=pi)
        return np.asarray(shares / shares.sum())
