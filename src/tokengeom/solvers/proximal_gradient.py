"""One point of the path of tied features, by accelerated proximal gradient [beck2009].

``min_X CE(B Phi) + lam ||X||_*``,   ``X = diag(c) B^T diag(r)``,  F x V'

A step goes from an extrapolated point Y along the gradient and lowers every singular value:

``X+ = prox_{s lam ||.||_*}(Y - s diag(1/c) Phi G)``,   ``Y+ = X+ + weight (X+ - X)``

where

``G``      ``diag(pi) (softmax(L) - P)^T diag(a/r)`` at the logits of Y, m x V', one row per context
``s``      length of the step; it grows until the loss curves more along a step than ``||X+ - Y||^2 / s``

The curvature along a short step D of the logits is ``sum_j pi_j Var_{q_j}(D_j)`` with q the softmax at Y: a sum of
positive terms, so rounding does not matter, where differences of losses would cancel. Along a long step it changes, and
twice the loss above its tangent takes its place. Momentum is restarted where it points
uphill [odonoghue2015]. A step costs two products with the sparse Phi and one eigendecomposition of V' x V'. The change
``softmax - P`` at X is the dual; no other state is needed for the proof.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from tokengeom.problems.backend import Array
from tokengeom.problems.base import Certificate, Solution
from tokengeom.problems.tied_logits import TiedLogits
from tokengeom.solvers.splitting import EXPANSION_SHARE, Threshold

GROWTH, SHRINK = 1.1, 0.6
"""Factors of the step's length, after a step and where the loss curves too much along it."""
SHORT = 1e-2
"""Largest change of a logit in a step whose curvature is that at its start: differences of losses would cancel."""
CHECK_EVERY = 20
WORTH_A_PROOF = 1.5
"""Share by which the dual may be above its bound, in tolerances, for a proof to be tried: it proves about that."""


@final
class ContextRows:
    """Softmax, gradient and curvature with one row per context, on the arrays of a problem."""

    def __init__(self, problem: TiedLogits) -> None:
        backend, loss = problem.backend, problem.loss
        self.problem, self.backend = problem, backend
        scaled = problem.Phi.multiply(1.0 / backend.to_numpy(problem.c)[:, None])
        self.Phi, self.PhiT = backend.sparse(scaled), backend.sparse(scaled.T)
        pairs = problem.P.tocoo()
        self.token, self.context = (backend.indices(place) for place in pairs.coords)
        self.a, self.r, self.pi = loss.a, loss.r, loss.pi[:, None]
        self.target = (self.pi[:, 0][self.context] * backend.asarray(pairs.data)) * (self.a / self.r)[self.token]

    def logits(self, X: Array) -> Array:
        """``(B Phi)^T``, m x V'."""
        return (self.PhiT @ X) / self.r

    def softmax(self, L: Array) -> Array:
        """Probabilities of merged tokens, m x V': rows sum to 1 with ``a`` as weights."""
        q = self.backend.xp.exp(L - self.backend.xp.amax(L, 1)[:, None])
        q /= (q @ self.a)[:, None]
        return q

    def gradient(self, q: Array) -> Array:
        """Gradient of the loss by X, F x V'."""
        G = q * self.pi
        G *= self.a / self.r
        G[self.context, self.token] -= self.target
        return self.Phi @ G

    def excess(self, L: Array) -> float:
        """By which share the spectral norm of the gradient at some logits is above lam; 0 where it is not."""
        gradient = self.gradient(self.softmax(L))
        return max(float(self.backend.fast_singular_values(gradient)[-1]) / self.problem.lam - 1.0, 0.0)

    def curvature(self, q: Array, D: Array) -> float:
        """Second derivative of the loss along a step D of the logits."""
        weighted = q * self.a
        mean = (weighted * D).sum(1)
        return float(self.pi[:, 0] @ ((weighted * D**2).sum(1) - mean**2))

    def bend(self, q: Array, L: Array, D: Array) -> float:
        """Twice what the loss after a step D from logits L, whose softmax is q, is above its tangent at L.

        For a short step it is the curvature. A long step from where the softmax is 0 or 1 has none, and goes too far.
        """
        if float(abs(D).max()) <= SHORT:
            return self.curvature(q, D)
        above = self._log_sum_exp(L + D) - self._log_sum_exp(L) - ((q * self.a) * D).sum(1)
        return 2.0 * float(self.pi[:, 0] @ above)

    def _log_sum_exp(self, L: Array) -> Array:
        xp, top = self.backend.xp, self.backend.xp.amax(L, 1)
        return top + xp.log(xp.exp(L - top[:, None]) @ self.a)


@final
@dataclass
class Momentum:
    """Where a solve is.

    ``X``, ``L``, ``Y``, ``LY``
        The last point and the extrapolated one, each with its logits.
    ``step``, ``weight``, ``moved``
        Length of the next step, weight of the momentum, and relative length of the last step.
    ``threshold``
        The singular-value threshold, which keeps eigenvectors from one step to the next.
    """

    X: Array
    L: Array
    Y: Array
    LY: Array
    step: float
    threshold: Threshold
    weight: float = 1.0
    moved: float = 0.0

    def move(self, X: Array, L: Array) -> None:
        """Move to a point that is a step from Y; restart where the momentum points uphill."""
        change = X - self.X
        if _dot(self.Y, change) > _dot(X, change):
            self.weight = 1.0
        weight = (1.0 + math.sqrt(1.0 + 4.0 * self.weight**2)) / 2.0
        share, self.weight = (self.weight - 1.0) / weight, weight
        change *= share
        change += X
        self.Y, self.LY = change, L + share * (L - self.L)
        self.X, self.L = X, L


@final
@dataclass(frozen=True)
class ProximalGradient:
    """A configured solver for one point of the path of tied features: call it with a `TiedLogits`.

    ``tolerance``
        Proven relative gap of the norm to stop at.
    ``observer``
        Called now and then with iterations, and the share by which the dual is above its bound.
    """

    tolerance: float = 5e-3
    max_iterations: int = 3000
    observer: Callable[[int, float], None] = lambda iterations, excess: None

    def __call__(self, problem: TiedLogits, start: Momentum | None = None) -> tuple[Solution[Array, None], Momentum]:
        """The solution ``diag(c) B^T diag(r)``, whose own change is its dual, and the state for the next point."""
        began, rows, iterations = time.perf_counter(), ContextRows(problem), 0
        at = state_at(rows) if start is None else restarted(rows, start)
        proof = Certificate(0.0, math.inf, math.inf, -math.inf)
        gap = math.inf
        while gap > self.tolerance and iterations < self.max_iterations:
            for _ in range(min(CHECK_EVERY, self.max_iterations - iterations)):
                take_step(rows, at)
                iterations += 1
            excess = rows.excess(at.L)
            self.observer(iterations, excess)
            # A proof costs several steps, and is worth it where it is likely to be enough.
            if excess <= WORTH_A_PROOF * self.tolerance or iterations >= self.max_iterations:
                proof = problem.certify(at.X, problem.change(at.X))
                gap = norm_gap(proof, problem.loss_gap(at.X))
        enough = gap <= self.tolerance
        status = f"norm proven within {self.tolerance:.0e}" if enough else _stopped(iterations, gap, self.tolerance)
        return Solution(at.X, None, proof, status, iterations, time.perf_counter() - began, enough), at


def norm_gap(proof: Certificate, loss_gap: float) -> float:
    """Relative gap of the norm alone: of the objective without the loss, which is known."""
    return (proof.value - proof.bound) / max(proof.value - loss_gap, 1e-300)


def _stopped(iterations: int, gap: float, tolerance: float) -> str:
    return (
        f"stopped after {iterations} iterations with the norm proven within {gap:.1e}, above {tolerance:.0e}: raise "
        "max_iterations, or accept this gap"
    )


def state_at(rows: ContextRows, X: Array | None = None) -> Momentum:
    """The state at an answer, by default 0, with a step that suits the curvature along the gradient there."""
    if X is None:
        X = rows.backend.full((rows.problem.Phi.shape[0], rows.a.shape[0]), 0.0)
    L = rows.logits(X)
    q = rows.softmax(L)
    G = rows.gradient(q)
    step = float((G**2).sum()) / max(rows.curvature(q, rows.logits(G)), 1e-300)
    return Momentum(X, L, X, L, step, Threshold(rows.backend))


def restarted(rows: ContextRows, at: Momentum) -> Momentum:
    """The same point without its momentum; logits are computed again, since weights may have changed."""
    L = rows.logits(at.X)
    return Momentum(at.X, L, at.X, L, at.step, at.threshold)


def take_step(rows: ContextRows, at: Momentum) -> None:
    """One step from the extrapolated point; shorter where the loss curves too much along it."""
    q = rows.softmax(at.LY)
    G = rows.gradient(q)
    while True:
        Z = G * -at.step
        Z += at.Y
        X = Z @ at.threshold.operator(Z.T @ Z, at.step * rows.problem.lam, EXPANSION_SHARE * at.moved)
        L = rows.logits(X)
        Z = X - at.Y
        size = _dot(Z, Z)
        if rows.bend(q, at.LY, L - at.LY) * at.step <= size or size == 0.0:
            break
        at.step *= SHRINK
    at.moved = math.sqrt(size / max(_dot(X, X), 1e-300))
    at.move(X, L)
    at.step *= GROWTH


def _dot(x: Array, y: Array) -> float:
    return float(x.reshape(-1) @ y.reshape(-1))
