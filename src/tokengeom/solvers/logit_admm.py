"""One point of the regularisation path of learned features, by accelerated ADMM that holds down to lambda = 1e-12.

``min CE(L)/lambda + ||X||_*,  X = diag(r) L diag(c)``   with the loop of ``splitting``, in the scaled logits X

The proximal map of the loss separates by context. With ``kappa_ij = a_i pi_j / (lambda rho r_i^2 c_j^2)`` and ``l_j``
the column's log-sum-exp, every entry solves a scalar equation:

``u + kappa (g(u) - p) = x - log p - l``   with ``g = p e^u`` on support, ``g = e^u`` off it (p and log p are 0 there)

and ``l`` is the root of ``sum_i a_i (g_i - p_i) = 0``; the logit is then ``u + log p + l``. Newton's method solves for
u and l together: the step of u is eliminated entry by entry, which leaves one division per column. The unknowns are
log-ratios, so nothing of size kappa ~ 1e12 is ever subtracted from the logits. Started at the last roots it takes
three or four steps.

where ``x = w / (r c)`` is the point to move, V' x m', and ``p`` the probabilities.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, final

import numpy as np

from tokengeom.core.numerics import blas_threads_for
from tokengeom.problems.backend import Array, Blocks
from tokengeom.problems.base import Solution
from tokengeom.problems.columns import Columns, Computed, mapped
from tokengeom.solvers.splitting import AbstractSplitting, AbstractTerm, Bounds, Iterate

if TYPE_CHECKING:
    from tokengeom.problems.regularised_logits import RegularisedLogits

NEWTON_STEPS = 200
ROOT_TOLERANCE = 1e-6
EXACT_STEPS = 2
"""Steps after all steps are below the tolerance: Newton's method squares the error, and these do not cancel."""
CUT_FROM = 1e-3
"""Share by which the largest singular value of a change is too large from which on it is cut."""
LARGEST_DIVISOR = 5.0
"""Largest number by which the first rho is divided."""
LARGEST_LEVEL_STEP = 5.0
LARGEST_RISE = 2.0
"""Newton's steps are cut at these: an exponential is far from its tangent. Where u is far below 0, its exponential is
0, and it may rise by half of its distance; a level that is cut again may move twice as far as before."""


@dataclass(frozen=True)
class WarmStart:
    """Where a solve ended, for the start of the next.

    ``Z``, ``Y``, ``rho``
        Scaled logits and dual, in blocks, and penalty.
    ``u``, ``levels``
        The roots of the last proximal map.
    ``r``, ``c``
        Weights of rows and columns, where the norm has weights that are solved for.
    """

    Z: Blocks
    Y: Blocks
    rho: float
    u: Columns | None = None
    levels: list[Array] | None = None
    r: Array | None = None
    c: Array | None = None

    def state(self) -> Columns:
        """``w = Z + Y / rho``, the state of the iteration."""
        return self.Z.layout.kept(Computed(self.Z.layout, lambda k: self.Z[k] + self.Y[k] / self.rho))


@final
class RegularisedLoss(AbstractTerm):
    """``CE / lambda`` of scaled logits with its proximal map, which starts at the roots of the last one.

    ``change``
        ``softmax - P`` of the last proximal point, V' x m'.
    ``cuts``
        Whether its large singular values are cut where it is made feasible; else it is scaled.
    """

    def __init__(self, problem: RegularisedLogits, start: WarmStart | None = None) -> None:
        self.problem, layout, self.cuts = problem, problem.layout, False
        self.change = Columns(layout)
        known = None if start is None else start.u
        # In several blocks the roots, which are only a start, are kept in single precision.
        self.u = Columns(layout, single=layout.several) if known is None else known.copy()
        levels = None if start is None else start.levels
        self.levels: list[Array | None] = [None] * len(layout) if levels is None else [*levels]

    def prox(self, k: int, w: Array, rho: float) -> Array:
        """Scaled logits ``argmin CE/lambda + rho/2 ||. - w||^2`` of block k."""
        problem, xp = self.problem.part(k), self.problem.backend.xp
        compiled = xp is np
        u, level, change = self._compiled_roots(k, problem, w, rho) if compiled else self._roots(k, problem, w, rho)
        self.u[k], self.levels[k], self.change[k] = u, level, change
        return (u + problem.log_P + level) * problem.weight

    def gap_at_roots(self, problem: RegularisedLogits) -> float:
        """``CE - H`` at the last proximal point, by the same problem without weights."""
        u, levels = self.u, cast("list[Array]", self.levels)
        return problem.loss_gap(Computed(problem.layout, lambda k: u[k] + problem.part(k).log_P + levels[k]))

    def _compiled_roots(self, k: int, problem: RegularisedLogits, w: Array, rho: float) -> tuple[Array, Array, Array]:
        """As `_roots`, on a CPU: compiled, with one row per column of the problem."""
        from tokengeom.solvers.softmax_prox import solve

        P, shift = (np.ascontiguousarray(x.T) for x in (problem.P, w / problem.weight - problem.log_P))
        known = self.levels[k]
        level = (shift * P) @ problem.a if known is None else known.copy()
        u = np.array(self.u[k].T, np.float64) if k in self.u else np.minimum(shift - level[:, None], 0.0)
        u, change = np.ascontiguousarray(u), np.empty_like(shift)
        row, column = problem.a / problem.r**2, problem.pi / problem.c**2 / (problem.lam * rho)
        solve(shift, P, problem.a, row, column, u, level, change)
        return np.ascontiguousarray(u.T), level, np.ascontiguousarray(change.T)

    def _roots(self, k: int, problem: RegularisedLogits, w: Array, rho: float) -> tuple[Array, Array, Array]:
        """Roots, levels and ``softmax - P`` of block k, by Newton's method on whole arrays."""
        xp = problem.backend.xp
        P, a = problem.P, problem.a[:, None]
        kappa = (problem.a / problem.r**2)[:, None] * (problem.pi / problem.c**2 / (problem.lam * rho))[None, :]
        shift = w / problem.weight - problem.log_P
        known = self.levels[k]
        level = (a * P * shift).sum(0) if known is None else known
        u = self.u[k] if k in self.u else problem.backend.at_most(shift - level, 0.0)
        exact, most = 0, 0.0 * level + LARGEST_LEVEL_STEP
        for _ in range(NEWTON_STEPS):
            growth = problem.positive_P * xp.exp(u)
            # Far from the root the difference is good enough; near it P e^u - P would cancel.
            change = xp.where(problem.S, P * xp.expm1(u), growth) if exact else growth - P
            residual = u + kappa * change - (shift - level)
            inverse = 1.0 / (1.0 + kappa * growth)
            pull = a * growth * inverse
            # Far below the root every exponential may be 0; the step is then cut below.
            rise = ((a * change).sum(0) - (pull * residual).sum(0)) / problem.backend.at_least(pull.sum(0), 1e-300)
            rise = xp.clip(rise, -most, most)
            most = xp.where(abs(rise) >= most, 2.0 * most, LARGEST_LEVEL_STEP)
            step = xp.minimum(-(residual + rise) * inverse, problem.backend.at_least(-0.5 * u, LARGEST_RISE))
            u, level = u + step, level + rise
            if exact == EXACT_STEPS:
                break
            # Columns do not depend on each other, so a process does not ask the others when to stop.
            if exact or rise.shape[0] == 0 or max(float(abs(step).max()), float(abs(rise).max())) <= ROOT_TOLERANCE:
                exact += 1
        return u, level, xp.where(problem.S, P * xp.expm1(u), xp.exp(u))

    def bounds(self, at: Iterate) -> Bounds:
        """The better of the values at both halves of the step, and the bound of the change, scaled to be feasible."""
        problem = self.problem
        norm_of_Z = float(problem.backend.fast_singular_values(at.Z).sum())
        at_Z = problem.loss_gap(problem.weighted(at.Z, -1)) + problem.lam * norm_of_Z
        at_X = problem.loss_gap(problem.weighted(at.X, -1)) + problem.lam * at.nuclear_norm
        # Singular values from a Gram matrix have half the digits, so a tie goes to X, whose norm is exact.
        value, answer = (at_X, at.X) if at_X <= at_Z * (1.0 + 1e-9) else (at_Z, at.Z)
        change, bound = self.feasible_change()
        return Bounds(value, answer, bound, change)

    def feasible_change(self) -> tuple[Blocks, float]:
        """The change of the last proximal point, made feasible, and the lower bound that it gives.

        Scaling it lowers every singular value, of which few are too large. Cutting these alone costs less, as long as
        few probabilities are then below 0; where it costs more it is not tried again.
        """
        change, bound, above = self._scaled(self.change)
        if self.cuts and above > CUT_FROM:
            cut = self._scaled(self.problem.layout.kept(self._cut(self.change)))
            self.cuts = cut[1] > bound
            change, bound = cut[:2] if self.cuts else (change, bound)
        return change, bound

    def _scaled(self, change: Blocks) -> tuple[Blocks, float, float]:
        """A change scaled to be feasible, its bound, and by which share it was too large."""
        problem = self.problem
        scaled = problem.each(lambda part, block: part.scaled_dual(block), change)
        above = float(problem.backend.fast_singular_values(scaled)[-1]) / problem.lam
        feasible = mapped(lambda block: block / max(above, 1.0), change)
        return feasible, problem.entropy_gain(feasible)[0], above - 1.0

    def _cut(self, change: Blocks) -> Blocks:
        """A change whose singular values are at most lambda, up to the repair of negative probabilities."""
        problem, backend = self.problem, self.problem.backend
        scaled = problem.each(lambda part, block: part.scaled_dual(block), change)
        eigenvalues, Q = backend.eigh(backend.gram(scaled))
        high = eigenvalues > problem.lam**2
        Q, excess = Q[:, high], 1.0 - problem.lam / eigenvalues[high] ** 0.5
        by_rows = backend.by_rows(scaled)

        def cut(part: RegularisedLogits, block: Array) -> Array:
            x = part.scaled_dual(block)
            above = (Q * excess) @ (Q.T @ x) if by_rows else (x @ (Q * excess)) @ Q.T
            return part.repair_dual(block - above / part.scaled_dual(1.0))[0]

        return problem.each(cut, change)


@final
@dataclass(frozen=True)
class LogitADMM(AbstractSplitting):
    """A configured solver for one point of the path: call it with a ``RegularisedLogits``.

    ``tolerance`` is relative to the objective above the entropy floor.
    """

    max_iterations: int = 3000
    check_every: int = 5

    def __call__(
        self, problem: RegularisedLogits, start: WarmStart | None = None
    ) -> tuple[Solution[Array, Array], WarmStart]:
        """The solution (logits, and as its dual ``softmax - P``), and the state to start the next point from."""
        with blas_threads_for(*problem.P.shape):
            return self._solve(problem, start or first_state(problem))

    def _solve(self, problem: RegularisedLogits, start: WarmStart) -> tuple[Solution[Array, Array], WarmStart]:
        began, term, layout = time.perf_counter(), RegularisedLoss(problem, start), problem.layout
        run = self.iterate(term, start.state(), start.rho)
        best, iterations = run.best, run.iterations
        state = WarmStart(run.Z, run.dual(), run.rho, term.u, cast("list[Array]", term.levels))
        # What the acceleration remembers is as large as several matrices, and no longer needed.
        del run, term
        L = layout.kept(problem.weighted(best.answer, -1))
        certificate, x, change = problem.certify(L, best.dual), layout.plain(L), layout.plain(best.dual)
        return self.solution(x, change, certificate, iterations, began, problem.backend), state


def mean_of(s: Array) -> float:
    """The mean of singular values, rising."""
    return float(s.mean())


def first_state(problem: RegularisedLogits, size: Callable[[Array], float] = mean_of) -> WarmStart:
    """Logits 0, whose dual is ``1/V - P``, and rho from the size of the centred support.

    Logits grow as lambda falls, so rho is divided by the square root of the ratio of the largest lambda to this one, or
    by 5 where that is less.

    ``size``
        The size of a matrix, from its nonzero singular values, rising.
    """
    backend, layout, tokens = problem.backend, problem.layout, float(problem.a.sum())

    def centred_support(k: int) -> Array:
        part = problem.part(k)
        S = backend.as_float(part.S)
        return (S - part.a @ S / tokens) * part.weight

    scale = backend.fast_singular_values(Computed(layout, centred_support))
    kept = scale[scale > 1e-6 * max(float(scale[-1]), 1e-300)]
    rho = 1.0 / size(kept) if kept.shape[0] else 1.0
    Y = mapped(lambda block: block / problem.lam, problem.gradient_at_zero())
    # A subgradient of the nuclear norm has spectral norm at most 1.
    above = max(1.0, float(backend.fast_singular_values(Y)[-1]))
    zero = Computed(layout, lambda k: 0.0 * problem.part(k).P)
    return WarmStart(zero, mapped(lambda block: block / above, Y), rho / min(above**0.5, LARGEST_DIVISOR))
