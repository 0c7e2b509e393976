"""Problems in the gamma_2 norm, by accelerated ADMM in which the weights of the norm are part of the state.

``min_L f(L) + gamma_2(L) = max_{r, c} min_L f(L) + ||diag(r) L diag(c)||_*``,   ``||r|| = ||c|| = 1``

An iteration is one step of ``splitting`` for the weighted nuclear norm, in ``X = diag(r) L diag(c) = U diag(s) V^T``,
and one step up in the weights. The weighted nuclear norm is concave in ``(r^2, c^2)``, with derivatives ``||w_i||^2 /
2`` and ``||h_j||^2 / 2`` of the factors ``W = diag(1/r) U diag(sqrt s)``, ``H = diag(sqrt s) V^T diag(1/c)``; so
weights are multiplied by a small power of these norms, and are stationary where all rows and columns that carry weight
are equally long. When weights change, logits are kept, and so is the multiplier of their scaled values: with ``t`` the
ratio of new to old weight of each entry, ``Z -> t Z``, and ``w - Z`` stays. At a solution the gradient by the logits of
a column falls with the square of its weight, so a multiplier of the logits themselves would be late.

Anderson acceleration acts on (w, r, c) together. That is what makes it fast: with weights changed between restarts
instead, the stories (104 tokens, 383 contexts) need two to three times as many iterations. When a step is rejected the
power is lowered.

Where the loss is high, weights that follow unfinished logits go astray. There factors are fitted to the loss first
(``gamma2_factors``), and the splitting starts at them, with their weights, to prove that they are optimal.

Where rows and columns are shorter than the others, weights fall towards 0, and logits with small weights, which are
scaled by them, hardly move. A barrier holds small weights at a level in inverse proportion to what is lacking in
length: ``share (1 - length^2) = tolerance``. It costs at most that share of the norm, and is halved where it costs half
the gap. It is smooth, so acceleration is not restarted (docs/experiments.md).
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import ClassVar, cast, final

from tokengeom.core.numerics import blas_threads_for
from tokengeom.problems.backend import Array, Backend, Blocks
from tokengeom.problems.base import Solution
from tokengeom.problems.columns import Computed, plain
from tokengeom.problems.gamma2 import Gamma2Logits, MaxNormFactors, WeightedDual
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.problems.tied_logits import TiedLogits
from tokengeom.solvers.anderson import MEMORY as FEW
from tokengeom.solvers.gamma2_factors import FIT_ACCURACY, Triplets, fit_from_state
from tokengeom.solvers.logit_admm import RegularisedLoss, WarmStart, first_state, mean_of
from tokengeom.solvers.splitting import SMALLEST_SIDE, AbstractSolve, AbstractSplitting, Bounds

POWER = 0.3
"""Power of the squared norms by which weights are multiplied in one iteration."""
SMALLEST_POWER = 0.05
POWER_SHRINK = 0.7
SETTLING = 10
"""Iterations of a solve without a start before its weights begin to change, with many tokens: weights that follow the
first logits, which are far from a solution, differ by factors of hundreds within a few iterations."""
SMALLEST_WEIGHT = 1e-5
"""Smallest ``r^2`` and ``c^2`` as a share of the uniform one, whatever the tolerance."""
WEIGHT_SHARE = 0.1
"""The same, as a share of the tolerance."""
SMALL_SHARE = 0.3
"""Share of the uniform weight below which a weight is small."""
LARGEST_COST = 0.5
"""Share of the gap that the barrier may cost before it is halved."""
MEMORY = 15
LARGEST_REMEMBERED = 10_000_000
"""Entries of the logits up to which acceleration remembers more steps: at low losses that halves the iterations."""
FIRST_RHO = 0.3
"""The first rho at a low loss, in units of 1 over the median singular value of the centred support."""
GUIDING = 10
"""Iterations for one strength, where a strength is looked for."""
GUIDED = 0.05
"""Relative error of the loss at which it is found."""
MOST_GUIDING = 50
HELD = 20
"""Iterations from fitted factors before their weights change."""
FORGIVEN = 100.0
"""How much larger than the primal residual the dual one may be before rho falls: an error of the weights is squared in
the lower bound, and not in the value."""
HALVES: tuple[str, ...] = ("X", "Z")
FIRST_EXCESS, SMALLEST_EXCESS = 0.1, 1e-5
EXCESS_STEP = 3.0
"""Factors are cut at a squared radius above their mean by an excess that is searched from check to check."""
DUAL_NORM_STEPS = 10
DUAL_NORM_POWER = 3
LARGEST_WEIGHT_CHANGE = 2.0
"""Largest factor by which acceleration moves r and c beyond the plain step."""


class AbstractWeightedTerm(ABC):
    """The convex function f of ``min f(L) + gamma_2(L)``, as the loop needs it."""

    @abstractmethod
    def reweight(self, r: Array, c: Array) -> None:
        """Take new weights, V' and m'; from now on matrices are scaled by them."""

    def held(self, r: Array, c: Array) -> tuple[Array, Array]:
        """New weights, with those in their place that never change: none here."""
        return r, c

    @abstractmethod
    def prox(self, k: int, w: Array, rho: float) -> Array:
        """``argmin_Z f + rho/2 ||Z - w||^2`` of block k, with Z scaled by the weights."""

    @abstractmethod
    def bounds(self, w: Blocks, rho: float, Z: Blocks, thresholded: Triplets) -> Bounds:
        """What an iterate proves; the answer is a `MaxNormFactors` and the dual a `WeightedDual`."""


class AbstractGamma2Run(AbstractSolve):
    """One solve: its state with the weights ``r`` and ``c``, and the best value and best lower bound so far.

    ``settling``
        Iterations before weights begin to change.
    """

    stop: ClassVar[float] = 1.0

    def __init__(
        self, term: AbstractWeightedTerm, settings: AbstractSplitting, start: WarmStart, *, settling: int = 0
    ) -> None:
        super().__init__(settings, start.state(), start.rho)
        self.term, self.settling = term, settling
        self.r: Array = start.r
        self.c: Array = start.c
        self.power, self.scale, self.barrier = POWER, 1.0, settings.tolerance
        self.smallest = smallest_weight(settings.tolerance)
        term.reweight(self.r, self.c)

    def step(self) -> bool:
        """One iteration; returns whether the gap was computed."""
        new = self.iterations + 1
        return self.advance(checked=self.is_check(new), balanced=new % (2 * self.settings.check_every) == 0)

    def advance(self, *, checked: bool, balanced: bool) -> bool:
        """One iteration, in which the gap is computed or not, and rho balanced or not."""
        self.iterations += 1
        moved = self.first_half(measured=balanced)
        thresholded, X = self.second_half()
        if checked:
            self.check(self.term.bounds(self.w, self.rho, self.Z, thresholded))
        if balanced:
            apart = self.backend.norm(Computed(self.layout, lambda k: X[k] - self.Z[k]))
            if self.rebalance(apart, moved, FORGIVEN):
                return checked
        self._move(X, *self._raised_weights(thresholded))
        return checked

    @abstractmethod
    def first_half(self, *, measured: bool) -> float:
        """Compute Z; where ``measured``, the norm of its change since the last iteration."""

    @abstractmethod
    def second_half(self) -> tuple[Triplets, Blocks]:
        """The matrix whose norm is the smallest, with its singular triplets, and the state's other half."""

    def scales(self, c: Array) -> Array:
        """What weights of the columns scale the columns of the state by."""
        return c

    def _raised_weights(self, thresholded: Triplets) -> tuple[Array, Array]:
        """The weights after one step up."""
        rows, columns = thresholded.squared_norms(self.r, self.c)
        mean = max(float(thresholded.s.sum()), 1e-300)
        r, of_rows = self._raised(self.r, rows / mean, shared=True)
        c, of_columns = self._raised(self.c, columns / mean, shared=False)
        if of_rows + of_columns > LARGEST_COST * self.gap:
            self.barrier *= 0.5
        return self.term.held(r, c)

    def _raised(self, root: Array, lengths: Array, *, shared: bool) -> tuple[Array, float]:
        """Weights r or c after one step up, or as they are while the logits settle; and what the barrier may cost.

        ``lengths``
            Squared norms of the rows or columns, in units of their weighted mean.
        """
        shares = root**2 * self._sum(0.0 * root + 1.0, shared)
        barrier = self.barrier * self.backend.at_least(1.0 / shares - 1.0 / SMALL_SHARE, 0.0)
        cost = self._sum(root**2 * barrier, shared)
        if self.iterations <= self.settling:
            return root, cost
        raised = lengths + barrier
        factors = self.backend.at_least(raised / max(self.backend.largest(raised), 1e-300), 1e-12)
        return self._normalised(root * factors ** (0.5 * self.power), shared=shared), cost

    def _normalised(self, root: Array, *, shared: bool) -> Array:
        """Square roots of weights with sum 1, none below its smallest share; ``shared``: not spread over processes."""
        size, root = self._sum(0.0 * root + 1.0, shared), root / self._sum(root**2, shared) ** 0.5
        root = self.backend.at_least(root, (self.smallest / size) ** 0.5)
        return root / self._sum(root**2, shared) ** 0.5

    def _sum(self, x: Array, shared: bool) -> float:
        return float(x.sum() if shared else self.backend.total(x.sum()))

    def _move(self, X: Blocks, r: Array, c: Array) -> None:
        """Anderson's step for state and weights together; X, r and c are those of the plain step."""
        if self.memory.is_empty:
            self.scale = max(self.backend.norm(self.w), 1e-300)
        here, rejected = self._packed(self.r, self.c), self.memory.rejected
        of_columns = self.scales(c) / self.scales(self.c)
        for k, part in enumerate(self.layout.slices):
            w, Z = self.w[k], self.Z[k]
            plain = w + self.settings.relaxation * (X[k] - Z)
            ratio = (r / self.r)[:, None] * of_columns[None, part]
            self.memory.add(k, Z * ratio + plain - Z - w)
        self.memory.add_vector(self._packed(r, c) - here)
        self.memory.step(self.w)
        if self.memory.rejected > rejected:
            self.power = max(POWER_SHRINK * self.power, SMALLEST_POWER)
        self.r, self.c = self._limited(here + self.memory.step_of_vector(), r, c)
        # The weights moved by as much as is left after they were cut and normalised.
        self.memory.vector_moved(self._packed(self.r, self.c) - here)
        self.term.reweight(self.r, self.c)

    def _packed(self, r: Array, c: Array) -> Array:
        """All weights as one vector; every process holds r, so it counts as a share of one."""
        return self.backend.xp.concatenate([r * (self.scale / self.backend.world**0.5), c * self.scale])

    def _limited(self, packed: Array, r: Array, c: Array) -> tuple[Array, Array]:
        """Weights from a vector of all, near those of the plain step, and normalised."""
        xp, most, rows = self.backend.xp, LARGEST_WEIGHT_CHANGE, r.shape[0]
        moved_r, moved_c = packed[:rows] * (self.backend.world**0.5 / self.scale), packed[rows:] / self.scale
        limited_r, limited_c = xp.clip(moved_r, r / most, r * most), xp.clip(moved_c, c / most, c * most)
        return self._normalised(limited_r, shared=True), self._normalised(limited_c, shared=False)


@final
class Gamma2Run(AbstractGamma2Run):
    """One solve whose state is the scaled logits."""

    def first_half(self, *, measured: bool) -> float:
        """The proximal map of f."""
        return self.find_Z(self.term.prox, measured)

    def second_half(self) -> tuple[Triplets, Blocks]:
        """The singular-value threshold."""
        thresholded = Triplets.of(self.backend, self.reflected, 1.0 / self.rho)
        return thresholded, thresholded.X


@final
class Gamma2Loss(AbstractWeightedTerm):
    """``CE / lambda`` with its proximal map, and what an iterate proves about a point of the path."""

    def __init__(self, problem: Gamma2Logits, start: WarmStart) -> None:
        self.problem = problem
        self.loss = RegularisedLoss(problem.loss, start)
        self.loss.cuts = True
        self.excess, self.halves, self.value = FIRST_EXCESS, HALVES, math.inf

    def held(self, r: Array, c: Array) -> tuple[Array, Array]:
        """New weights, with those that the problem holds in their place."""
        return self.problem.held(r, c)

    def reweight(self, r: Array, c: Array) -> None:
        """The same loss in logits scaled by new weights."""
        self.loss.problem = self.problem.loss.reweighted(r, c)

    def prox(self, k: int, w: Array, rho: float) -> Array:
        """Scaled logits ``argmin CE/lambda + rho/2 ||. - w||^2`` of block k."""
        return self.loss.prox(k, w, rho)

    def bounds(self, w: Blocks, rho: float, Z: Blocks, thresholded: Triplets) -> Bounds:
        """The best of both halves of the step, cut to a ball, and the bound of the change, scaled to be feasible."""
        problem = self.loss.problem
        halves = {"X": lambda: thresholded, "Z": lambda: Triplets.of(problem.backend, Z)}
        candidates = {half: self._cut(halves[half]()) for half in self.halves}
        better = min(candidates, key=lambda half: candidates[half][0])
        value, answer, self.excess = candidates[better]
        # Where the value no longer falls, the other half is looked at again.
        self.halves, self.value = (better,) if value < self.value else HALVES, min(value, self.value)
        change, bound = self.loss.feasible_change()
        return Bounds(value, answer, bound, WeightedDual(change, problem.r, problem.c))

    def state(self, run: Gamma2Run) -> WarmStart:
        """Where a solve stands."""
        levels = cast("list[Array]", self.loss.levels)
        return WarmStart(run.Z, run.dual(), run.rho, self.loss.u, levels, run.r, run.c)

    def _cut(self, triplets: Triplets) -> tuple[float, MaxNormFactors, float]:
        held = self.problem.r is not None, self.problem.c is not None
        loss = self.loss.problem
        return best_cut(self.problem, loss.backend, triplets, (loss.r, loss.c), self.excess, held)


def best_cut(
    problem: Gamma2Logits | TiedLogits,
    backend: Backend,
    triplets: Triplets,
    weights: tuple[Array, Array],
    excess: float,
    held: tuple[bool, bool] = (False, False),
) -> tuple[float, MaxNormFactors, float]:
    """The best value found when rows and columns longer than a radius are shortened to it, its factors and excess.

    The squared radius exceeds the mean one, which is the weighted nuclear norm, by a share that is moved from
    ``excess``, where the last search ended, while the value falls. Where weights are held, the longest row or column
    does not matter, and none is shortened.
    """
    whole, mean, squares = triplets.factors(*weights), float(triplets.s.sum()), triplets.squared_norms(*weights)

    def cut(excess: float) -> tuple[float, MaxNormFactors, float]:
        longest = (1.0 + excess) * mean
        shares = (backend.at_most(longest / backend.at_least(square, 1e-300), 1.0) ** 0.5 for square in squares)
        rows, columns = (0.0 * x + 1.0 if kept else x for x, kept in zip(shares, held, strict=True))
        shorter = whole.shortened(rows, columns)
        return problem.value(shorter), shorter, excess

    # Above its largest value no row or column is shortened.
    largest = problem.norm(whole) / max(mean, 1e-300) - 1.0
    best = cut(max(min(excess, largest / EXCESS_STEP), SMALLEST_EXCESS))
    for factor in (1.0 / EXCESS_STEP, EXCESS_STEP):
        while SMALLEST_EXCESS < (excess := best[2] * factor) < largest:
            found = cut(excess)
            if not found[0] < best[0]:
                break
            best = found
    return min(best, (problem.value(whole), whole, best[2]), key=itemgetter(0))


@final
@dataclass(frozen=True)
class Gamma2ADMM(AbstractSplitting):
    """A configured solver for one point of the path in the gamma_2 norm: call it with a ``Gamma2Logits``.

    ``tolerance`` is relative to the objective above the entropy floor.
    """

    max_iterations: int = 3000
    check_every: int = 5
    memory: int = MEMORY

    def __call__(
        self, problem: Gamma2Logits, start: WarmStart | None = None
    ) -> tuple[Solution[MaxNormFactors, WeightedDual], WarmStart]:
        """The solution (factors, and as its dual ``softmax - P`` with weights), and the state for the next point."""
        settling = SETTLING if start is None and problem.loss.a.shape[0] >= SMALLEST_SIDE else 0
        with blas_threads_for(*problem.loss.P.shape):
            return self._solve(problem, start or first_weighted_state(problem), settling)

    def near_loss(
        self, loss: RegularisedLogits, lam: float, start: WarmStart | None, loss_gap: float
    ) -> tuple[float, WarmStart, int]:
        """A strength whose point of the path has nearly this loss gap, a state near that point, and iterations made.

        After ten iterations the loss of the proximal point is that of the solution within a few per cent, so the
        strength, to which it is nearly in proportion, follows it.
        """
        made = 0
        with blas_threads_for(*loss.P.shape):
            while made < MOST_GUIDING:
                problem = Gamma2Logits(loss.at(lam))
                start = start or first_weighted_state(problem, _size_at_low_loss)
                term = Gamma2Loss(problem, start)
                run = Gamma2Run(term, self._settings(problem), start)
                for _ in range(GUIDING):
                    run.advance(checked=False, balanced=False)
                start, ratio, made = term.state(run), loss_gap / term.loss.gap_at_roots(loss), made + run.iterations
                lam *= ratio
                if abs(ratio - 1.0) <= GUIDED:
                    break
        return lam, cast("WarmStart", start), made

    def at_loss(
        self, loss: RegularisedLogits, start: WarmStart, loss_gap: float
    ) -> tuple[Gamma2Logits, Solution[MaxNormFactors, WeightedDual], WarmStart] | None:
        """The point of the path at a loss gap, by factors that are fitted to it from a state: problem, solution, state.

        The strength of the problem is that of the factors. None where no factors with this loss were found.
        """
        with blas_threads_for(*loss.P.shape):
            accuracy, smallest = min(FIT_ACCURACY, self.tolerance), smallest_weight(self.tolerance)
            fitted = fit_from_state(loss, start, loss_gap, accuracy=accuracy, smallest=smallest)
            if fitted is None:
                return None
            problem = Gamma2Logits(loss.at(fitted.lam))
            solution, state = self._solve(problem, fitted.state(problem.loss), HELD, fitted.factors)
        return problem, replace(solution, iterations=solution.iterations + fitted.steps), state

    def _solve(
        self, problem: Gamma2Logits, start: WarmStart, settling: int, known: MaxNormFactors | None = None
    ) -> tuple[Solution[MaxNormFactors, WeightedDual], WarmStart]:
        began = time.perf_counter()
        term = Gamma2Loss(problem, start)
        run = Gamma2Run(term, self._settings(problem), start, settling=settling)
        if known is not None:
            run.keep_best(Bounds(problem.value(known), known, -math.inf, None))
        for _ in self.steps(run):
            pass
        best, iterations = run.best, run.iterations
        state = term.state(run)
        # What the acceleration remembers is as large as several matrices, and no longer needed.
        del run, term
        certificate, x, dual = problem.certify(best.answer, best.dual), plain(best.answer), plain(best.dual)
        return self.solution(x, dual, certificate, iterations, began, problem.loss.backend), state

    def _settings(self, problem: Gamma2Logits) -> Gamma2ADMM:
        """The same with fewer steps to remember where logits are large."""
        return replace(self, memory=min(self.memory, FEW)) if _entries(problem) > LARGEST_REMEMBERED else self


def _entries(problem: Gamma2Logits) -> float:
    """Entries of the logits in this process."""
    return float(problem.loss.a.shape[0] * problem.loss.pi.shape[0])


def smallest_weight(tolerance: float) -> float:
    """Smallest ``r^2`` and ``c^2`` as a share of the uniform one: too little to matter at this tolerance."""
    return max(SMALLEST_WEIGHT, WEIGHT_SHARE * tolerance)


def first_weighted_state(problem: Gamma2Logits, size: Callable[[Array], float] = mean_of) -> WarmStart:
    """Logits 0 and uniform weights, or those that are held; ``size`` is that of ``first_state``."""
    loss = problem.loss
    columns = float(loss.backend.total(float(loss.pi.shape[0])))
    r = loss.backend.full((loss.a.shape[0],), float(loss.a.shape[0]) ** -0.5)
    r, c = problem.held(r, loss.backend.full((loss.pi.shape[0],), columns**-0.5))
    return replace(first_state(loss.reweighted(r, c), size), r=r, c=c)


def _size_at_low_loss(s: Array) -> float:
    """The size of a matrix with these singular values, rising, from which rho suits weights at a low loss."""
    return float(s[s.shape[0] // 2]) / FIRST_RHO


def largest_lam(problem: Gamma2Logits) -> float:
    """A strength from which on logits 0 are optimal: the dual norm of the gradient there, or some 10% above it.

    For any r and c the spectral norm of the gradient, divided by the weights, is an upper bound of its dual norm; at
    the smallest one ``r^2`` and ``c^2`` are averages of the squared leading singular vectors.
    """
    loss = problem.loss
    backend, first = loss.backend, first_weighted_state(problem)
    r, c = first.r, first.c
    best = math.inf
    for _ in range(DUAL_NORM_STEPS):
        G = loss.reweighted(r, c).gradient_at_zero()
        if not backend.norm(G) > 0.0:
            return 1e-300
        triplets = Triplets.of(backend, G)
        spectral = float(triplets.s.max())
        best = min(best, spectral)
        # At the smallest norm several singular values are equal, so those near the largest count too.
        share = (triplets.s / spectral) ** DUAL_NORM_POWER
        share = share / float(share.sum())
        r, c = r * (triplets.U**2 @ share) ** 0.5, c * triplets.sums_of_squares(share) ** 0.5
        r = backend.at_least(r / float(r.sum()), 1e-12) ** 0.5
        c = backend.at_least(c / float(backend.total(c.sum())), 1e-12) ** 0.5
        r, c = r / float((r**2).sum()) ** 0.5, c / float(backend.total((c**2).sum())) ** 0.5
        r, c = problem.held(r, c)
    return best
