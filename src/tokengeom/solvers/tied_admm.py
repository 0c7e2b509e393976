"""One point of the path of tied features in the gamma_2 norm, by a splitting in features and logits together.

``min CE(Z) / lam + ||X||_*   s.t.  Z = X K``   with the loop of ``gamma2_admm``

in ``X = diag(r) B diag(c)`` and the logits ``Z = diag(r) B Phi diag(e)``. The first half of a step is the nearest pair
with ``Z = X K``, and the second one lowers the singular values of X and takes the proximal map of the loss in Z::

    (X, Z) = argmin ||X - w_x||^2 + ||Z - w_z||^2   s.t.  Z = X K
    w     <- w + 1.6 ((threshold(2 X - w_x), prox(2 Z - w_z)) - (X, Z))

where

``K``      ``diag(1/c) Phi diag(e)``, F x m, with e such that its columns have length 1; F features, m contexts
``r, c``   weights of tokens and features, which are solved for: V' and F

With ``Phi = I`` this K is the identity. The nearest pair is ``X = w_x + U K^T``, ``Z = w_z - U``, where ``U (I + K^T K)
= w_z - w_x K`` is solved by conjugate gradients, from the last U, to a share of what the last step left. Steps of the
proximal gradient become short where the loss is low, and fits of factors do not converge there; this does.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, cast, final

from tokengeom.problems.backend import Array, Blocks
from tokengeom.problems.base import Solution
from tokengeom.problems.columns import Columns, Computed, Layout, plain
from tokengeom.problems.gamma2 import MaxNormFactors, WeightedDual
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.problems.tied_logits import TiedLogits
from tokengeom.solvers.anderson import MEMORY as FEW
from tokengeom.solvers.gamma2_admm import (
    FIRST_EXCESS,
    LARGEST_REMEMBERED,
    MEMORY,
    AbstractGamma2Run,
    AbstractWeightedTerm,
    best_cut,
)
from tokengeom.solvers.gamma2_factors import Triplets
from tokengeom.solvers.logit_admm import RegularisedLoss, WarmStart
from tokengeom.solvers.splitting import AbstractSplitting, Bounds

POWER = 0.1
"""Power of the squared norms by which weights are multiplied: with more, they go astray while features are far off."""
SETTLED = 0.03
"""Residual of the nearest pair, as a share of what the last step left."""
MOST_STEPS = 60
"""Steps of conjugate gradients for one pair."""
OF_LOGITS = 0.1
"""What the distance from features counts in that from logits, where features with certain logits are looked for."""

RHO = 0.1
"""First penalty, as a share of the inverse mean singular value of the centred support."""
GUIDING, MOST_GUIDING = 20, 300
"""Iterations for one strength, where a strength is looked for, and for all of them."""
GUIDED, LARGEST_RATIO = 0.1, 10.0
"""Difference in log loss at which the strength is found, and the largest factor of one change."""
FIRST_POWER = 1.05
"""Power of the loss to which the first strength is in proportion."""


@final
class Ties:
    """Products with K, and nearest pairs ``Z = X K``, with one row per feature or context."""

    def __init__(self, problem: TiedLogits) -> None:
        self.backend, self.squares = problem.backend, problem.Phi.power(2).T
        self.Phi, self.PhiT = self.backend.sparse(problem.Phi), self.backend.sparse(problem.Phi.T)

    def scales(self, c: Array) -> Array:
        """The e of weights c, m."""
        squares = self.backend.asarray(self.squares @ (1.0 / self.backend.to_numpy(c) ** 2))
        # A context without features has no logits, and any scale.
        return (squares + (squares == 0.0)) ** -0.5

    def reweight(self, c: Array) -> None:
        """Take new weights."""
        self.c, self.e = c[:, None], self.scales(c)[:, None]

    def times(self, X: Array) -> Array:
        """``X K``."""
        return (self.PhiT @ (X / self.c)) * self.e

    def back(self, U: Array) -> Array:
        """``U K^T``."""
        return (self.Phi @ (U * self.e)) / self.c

    def nearest(self, x: Array, z: Array, U: Array, accuracy: float, share: float = 1.0) -> tuple[Array, Array]:
        """X and U of the nearest pair, from another U; ``share`` is what the distance from x counts in that from z."""
        residual = z - self.times(x + self.back(U)) - share * U
        direction, squares = residual, (residual**2).sum(0)
        for _ in range(MOST_STEPS):
            if float(squares.sum()) <= accuracy**2:
                break
            image = share * direction + self.times(self.back(direction))
            length = squares / self.backend.at_least((direction * image).sum(0), 1e-300)
            U, residual = U + length * direction, residual - length * image
            before, squares = squares, (residual**2).sum(0)
            direction = residual + (squares / self.backend.at_least(before, 1e-300)) * direction
        return x + self.back(U), U


@final
class _TiedLoss(AbstractWeightedTerm):
    """``CE / lam`` of tied logits with its proximal map, and what an iterate proves."""

    def __init__(self, problem: TiedLogits, start: WarmStart) -> None:
        self.problem, self.ties, self.loss = problem, Ties(problem), RegularisedLoss(problem.loss, start)
        self.excess, self.value, self.gap = FIRST_EXCESS, math.inf, 0.0
        self.proximal: list[Array] = [None] * len(problem.loss.layout)

    def reweight(self, r: Array, c: Array) -> None:
        self.ties.reweight(c)
        self.problem = self.problem.reweighted(r, c)
        self.loss.problem = self.problem.loss.reweighted(r, self.ties.e[:, 0])

    def prox(self, k: int, w: Array, rho: float) -> Array:
        self.proximal[k] = self.loss.prox(k, w, rho)
        return self.proximal[k]

    def bounds(self, w: Blocks, rho: float, Z: Blocks, thresholded: Triplets) -> Bounds:
        """The best value of features that were cut to a ball, and the bound of the change, scaled to be feasible."""
        problem = self.problem
        found = [self._cut(triplets) for triplets in (thresholded, self._with_logits(thresholded))]
        value, answer, self.excess = min(found, key=itemgetter(0))
        if value < self.value:
            self.value, self.gap = value, problem.loss_gap(answer)
        bound = problem.loss.proven_bound(self.loss.change, problem.proven_dual_norm)[0]
        return Bounds(value, answer, bound, WeightedDual(self.loss.change, problem.loss.r, problem.c))

    def _cut(self, triplets: Triplets) -> tuple[float, MaxNormFactors, float]:
        problem = self.problem
        return best_cut(problem, problem.backend, triplets, (problem.loss.r, problem.c), self.excess)

    def _with_logits(self, thresholded: Triplets) -> Triplets:
        """Features near those of the threshold, with nearly the logits of the proximal point.

        Where the loss is low, logits that are wrong in the third digit have several times the loss.
        """
        x, z = thresholded.X.T, self.ties.backend.xp.concatenate([block.T for block in self.proximal])
        accuracy = SETTLED * self.ties.backend.norm(z - self.ties.times(x))
        X, _ = self.ties.nearest(x, z, 0.0 * z, accuracy, OF_LOGITS)
        return Triplets.of(self.ties.backend, X.T)


@final
class TiedRun(AbstractGamma2Run):
    """One solve, whose state is X in the first block, and Z in one block per block of contexts."""

    term: _TiedLoss

    def __init__(self, term: _TiedLoss, settings: AbstractSplitting, start: WarmStart) -> None:
        super().__init__(term, settings, start)
        self.power, self.left = POWER, math.inf
        self.U: Array = self.backend.xp.concatenate([start.Y[k].T for k in range(1, len(start.Y))]) / self.rho

    @property
    def gap(self) -> float:
        """Estimated gap of the norm alone."""
        value = self.best.value
        return (value - self.best.bound) / max(value - self.term.gap, 1e-300) if math.isfinite(value) else math.inf

    def scales(self, c: Array) -> Array:
        """Weights of the features, and the scales of the contexts that belong to them."""
        return self.backend.xp.concatenate([c, self.term.ties.scales(c)])

    def first_half(self, *, measured: bool) -> float:
        """The nearest pair."""
        own, contexts = self.layout.slices[0], self.layout.slices[1:]
        z = self.backend.xp.concatenate([self.w[k + 1].T for k in range(len(contexts))])
        ties, accuracy = self.term.ties, SETTLED * min(self.left, self.backend.norm(z))
        X, self.U = ties.nearest(self.w[0].T, z, self.U, accuracy)
        Z = ties.times(X)
        found = [X.T, *(Z[part.start - own.stop : part.stop - own.stop].T for part in contexts)]
        return self.find_Z(lambda k, w, rho: found[k], measured)

    def second_half(self) -> tuple[Triplets, Blocks]:
        """The singular-value threshold of X, and the proximal map of the loss in Z."""
        thresholded, X = Triplets.of(self.backend, self.reflected[0], 1.0 / self.rho), Columns(self.layout)
        X[0] = thresholded.X
        for k in range(1, len(self.layout)):
            X[k] = self.term.prox(k - 1, self.reflected[k], self.rho)
        self.left = self.backend.norm(Computed(self.layout, lambda k: X[k] - self.Z[k]))
        return thresholded, X


@final
@dataclass(frozen=True)
class TiedADMM(AbstractSplitting):
    """A configured solver for one point of the path in the gamma_2 norm: call it with a `TiedLogits`.

    ``tolerance`` is that of the norm.
    """

    max_iterations: int = 3000
    check_every: int = 10

    def __call__(
        self, problem: TiedLogits, start: WarmStart | None = None
    ) -> tuple[Solution[MaxNormFactors, WeightedDual], WarmStart]:
        """The solution (factors, and as its dual ``softmax - P`` with weights), and the state for the next point."""
        began, run = time.perf_counter(), self.begin(problem, start)
        for _ in self.steps(run):
            pass
        best, gap = run.best, run.gap
        dual = best.dual.normalised(problem.backend)
        certificate = problem.reweighted(dual.r, dual.c).certify(best.answer, dual.matrix)
        enough = gap <= self.tolerance
        status = f"norm proven within {gap:.1e}" + ("" if enough else f", above {self.tolerance:.0e}")
        seconds = time.perf_counter() - began
        return (
            Solution(best.answer, plain(dual), certificate, status, run.iterations, seconds, enough),
            _state(run),
        )

    def near_loss(self, problem: TiedLogits, loss_gap: float) -> tuple[TiedLogits, WarmStart, int]:
        """The problem with a strength whose point has nearly this loss gap, a state near that point, and iterations.

        After some iterations the loss of the proximal point is that of the solution within a few per cent, so the
        strength, to which it is nearly in proportion, follows it.
        """
        r, c = uniform_weights(problem)
        lam = problem.reweighted(r, c).largest_lam * (loss_gap / problem.zero_gap) ** FIRST_POWER
        state, made = None, 0
        while made < MOST_GUIDING:
            problem = problem.at(lam)
            run = self.begin(problem, state)
            for _ in range(GUIDING):
                run.advance(checked=False, balanced=False)
            state, ratio, made = _state(run), loss_gap / run.term.loss.gap_at_roots(problem.loss), made + GUIDING
            if abs(math.log(ratio)) <= GUIDED:
                break
            lam *= min(max(ratio, 1.0 / LARGEST_RATIO), LARGEST_RATIO)
        assert state is not None, "there are iterations"
        return problem, state, made

    def begin(self, problem: TiedLogits, start: WarmStart | None = None) -> TiedRun:
        """A solve that has not made a step."""
        start = start or first_tied_state(problem)
        settings = replace(self, memory=steps_remembered(problem.loss.a.shape[0] * sum(problem.Phi.shape)))
        return TiedRun(_TiedLoss(problem, start), settings, start)


def _state(run: TiedRun) -> WarmStart:
    loss = run.term.loss
    return WarmStart(run.Z, run.dual(), run.rho, loss.u, cast("list[Array]", loss.levels), run.r, run.c)


def steps_remembered(entries: int) -> int:
    """How many steps acceleration remembers, for a state of so many entries: fewer on large problems."""
    return FEW if entries > LARGEST_REMEMBERED else MEMORY


def uniform_weights(problem: TiedLogits) -> tuple[Array, Array]:
    """Equal weights of tokens and of features."""
    rows, features = problem.loss.a.shape[0], problem.Phi.shape[0]
    return problem.backend.full((rows,), rows**-0.5), problem.backend.full((features,), features**-0.5)


def first_tied_state(problem: TiedLogits) -> WarmStart:
    """Logits 0 and uniform weights."""
    backend, loss, (F, m) = problem.backend, problem.loss, problem.Phi.shape
    (r, c), ties = uniform_weights(problem), Ties(problem)
    ties.reweight(c)
    scaled = loss.reweighted(r, ties.e[:, 0])
    size = len(loss.layout)
    layout = Layout(backend, (slice(0, F), *(slice(F + part.start, F + part.stop) for part in _slices(loss.layout, m))))
    Y = backend.xp.concatenate([block.T for block in (loss_gradient(scaled)[k] for k in range(size))])
    pull = ties.back(Y)
    above = max(1.0, float(backend.fast_singular_values(pull.T)[-1]))
    dual, zero = Columns(layout), Columns(layout)
    dual[0], zero[0] = pull.T / above, 0.0 * pull.T
    for k, part in enumerate(_slices(loss.layout, m)):
        dual[k + 1], zero[k + 1] = -Y[part].T / above, 0.0 * Y[part].T
    return WarmStart(zero, dual, first_rho(scaled), r=r, c=c)


def first_rho(problem: RegularisedLogits) -> float:
    """A penalty from the size of the centred support."""
    S = Computed(problem.layout, lambda k: problem.backend.as_float(problem.part(k).S))
    centred = Computed(problem.layout, lambda k: S[k] - problem.a @ S[k] / float(problem.a.sum()))
    s = problem.backend.fast_singular_values(problem.layout.kept(problem.weighted(centred)))
    kept = s[s > 1e-6 * max(float(s[-1]), 1e-300)]
    return RHO / float(kept.mean()) if kept.shape[0] else 1.0


def _slices(layout: Layout, m: int) -> list[Any]:
    """The contexts of each block."""
    return list(layout.slices) if layout.several else [slice(0, m)]


def loss_gradient(problem: Any) -> Blocks:
    """The gradient of ``CE / lam`` at logits 0 by scaled logits."""
    return Computed(problem.layout, lambda k: problem.gradient_at_zero()[k] / problem.lam)
