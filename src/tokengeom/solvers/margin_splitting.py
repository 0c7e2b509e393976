"""The margin problem in the spectral and the nuclear norm: its scaled form, and the first phase of its solver, ADMM.

::

    min ||X|| + i_K(L)  s.t.  X = W,  L = W R,    K = {L : equal on support, at least t_j lower elsewhere, j = 1..m}

where ``R`` (r x m) holds the embeddings in coordinates of their own span, with columns of length 1, and ``t_j`` is the
margin of column j in these units. The dual variables are Y (V x r) for ``X = W``, in the unit ball of the dual norm,
and A (V x m) for ``L = W R``, in the dual cone of the margins; at the optimum ``Y = A R^T``.

ADMM alternates between proximal steps in X and L and the least-squares fit of W, whose matrix ``sigma I + tau R R^T``
is r x r. Written in one variable ``Z = (X + Y / sigma, L - A / tau)`` it is a fixed-point iteration, to which Anderson
acceleration is applied. Each penalty follows the ratio of the primal and dual residuals of its own constraint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.problems.backend import Backend
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.supports import cone_levels, repair_multipliers
from tokengeom.solvers.anderson import AndersonMemory
from tokengeom.solvers.ntp_svm import column_lengths, separating_decoder
from tokengeom.solvers.singular_values import Shrunk

if TYPE_CHECKING:
    from tokengeom.core.numerics import Bool, Float

CHECK_EVERY = 25
RELAXATION = 1.6
MEMORY = 10
LARGEST_CHANGE = 2.5
SMALLEST_CHANGE = 1.5
"""Factors by which a penalty may change at a check, and from which on a change is worth a restart."""
LARGEST_DRIFT = 1e3
"""Factor by which a penalty may change in one run of ADMM."""


@dataclass(frozen=True, eq=False)
class Point:
    """Decoder ``W`` (V x r), duals ``Y`` (V x r) and ``A`` (V x m), and the penalties of the two constraints."""

    W: Float
    Y: Float
    A: Float
    sigma: float
    tau: float

    def scaled(self, factor: float) -> Point:
        """The same point with both penalties multiplied."""
        return Point(self.W, self.Y, self.A, self.sigma * factor, self.tau * factor)


@dataclass(eq=False)
class Best:
    """The best decoder and the best multipliers so far, in the units of the problem, and the gap that they prove."""

    value: float = math.inf
    bound: float = 0.0
    W: Float | None = None
    A: Float | None = None

    @property
    def gap(self) -> float:
        """Relative gap; infinite before a decoder with positive margins was found."""
        return (self.value - self.bound) / self.value if math.isfinite(self.value) else math.inf


@dataclass(frozen=True, eq=False)
class ScaledMargin:
    """The scaled problem: columns of R have length 1, decoders are in multiples of ``unit``.

    ``problem``
        The problem in coordinates of the span of its embeddings, r x m; both norms are the same there.
    ``target``
        V x m: ``t_j`` on support, 0 elsewhere.
    """

    problem: MarginProblem
    R: Float
    lengths: Float
    unit: float
    target: Float
    best: Best = field(default_factory=Best)

    @staticmethod
    def of(problem: MarginProblem, W: Float, A: Float) -> tuple[ScaledMargin, Point]:
        """The scaled problem, and a point made of a decoder (V x r) and multipliers (V x m) for any norm."""
        lengths = column_lengths(problem.H)
        R, unit = problem.H / lengths, problem.norm.value(W)
        scaled = ScaledMargin(problem, R, lengths, unit, problem.S / (unit * lengths))
        A = repair_multipliers(A * lengths, problem.S)
        A = A / problem.norm.dual(A @ R.T)
        Y = A @ R.T
        sigma = float(np.linalg.norm(Y) / np.linalg.norm(W / unit))
        point = Point(W / unit, Y, A, sigma, 4.0 * sigma / float(np.linalg.norm(R, 2)) ** 2)
        scaled.check(point)
        return scaled, point

    def project(self, L: Float, levels: Float | None = None) -> tuple[Float, Float, Bool]:
        """The projection of L on K, with the level and the active pairs of each column."""
        moved = L - self.target
        levels, T = cone_levels(moved, self.problem.S, levels)
        return np.where(T, levels, moved) + self.target, levels, T

    def check(self, point: Point) -> None:
        """Keep the decoder, made feasible, and the multipliers, repaired, where they improve on the best so far."""
        multipliers = point.A / self.lengths
        bound = self.problem.bound(multipliers)
        if bound > self.best.bound:
            self.best.bound, self.best.A = bound, multipliers
        decoder = separating_decoder(self.problem, point.W)
        value = math.inf if decoder is None else self.problem.norm.value(decoder)
        if value < self.best.value:
            self.best.value, self.best.W = value, decoder


def split(scaled: ScaledMargin, point: Point, tolerance: float, max_iterations: int) -> tuple[Point, int]:
    """ADMM from a point until the proven gap is within ``tolerance``; the last point and the iterations taken."""
    r = point.W.shape[1]
    eigenvalues, Q = np.linalg.eigh(scaled.R @ scaled.R.T)
    memory, levels = AndersonMemory(Backend.on(), MEMORY), None
    start, sigma, tau = point, point.sigma, point.tau
    Z = _state(point.W, point.W @ scaled.R, point)
    for iteration in range(1, max_iterations + 1):
        Zx, Zl = Z[:, :r] / math.sqrt(sigma), Z[:, r:] / math.sqrt(tau)
        X = Shrunk.of(Zx, scaled.problem.norm.name, 1.0 / sigma).proximal
        L, levels, _ = scaled.project(Zl, levels)
        pull = sigma * (2.0 * X - Zx) + tau * ((2.0 * L - Zl) @ scaled.R.T)
        W = ((pull @ Q) / (sigma + tau * eigenvalues)) @ Q.T
        dX, dL = W - X, W @ scaled.R - L
        if iteration % CHECK_EVERY == 0 or iteration == max_iterations:
            point = Point(X, sigma * (Zx - X), tau * (L - Zl), sigma, tau)
            scaled.check(point)
            if scaled.best.gap <= tolerance:
                break
            dual = _relative(point.Y - point.A @ scaled.R.T, point.Y)
            changes = (
                _change(_relative(dX, X) / dual, sigma, start.sigma),
                _change(_relative(dL, L) / dual, tau, start.tau),
            )
            if max(max(change, 1.0 / change) for change in changes) > SMALLEST_CHANGE:
                sigma, tau = sigma * changes[0], tau * changes[1]
                point = Point(X, point.Y, point.A, sigma, tau)
                Z = _state(X, L, point)
                memory.restart()
                continue
        # Weights make the Euclidean norm of the state the metric in which the iteration contracts.
        step = np.hstack([math.sqrt(sigma) * dX, math.sqrt(tau) * dL])
        Z = memory.advance(Z, RELAXATION * step)
    return point, iteration


def _state(X: Float, L: Float, point: Point) -> Float:
    sigma, tau = point.sigma, point.tau
    return np.hstack([math.sqrt(sigma) * (X + point.Y / sigma), math.sqrt(tau) * (L - point.A / tau)])


def _change(ratio: float, penalty: float, start: float) -> float:
    """Factor for a penalty whose primal residual is ``ratio`` times the dual one."""
    factor = min(max(math.sqrt(ratio), 1.0 / LARGEST_CHANGE), LARGEST_CHANGE)
    return min(max(penalty * factor, start / LARGEST_DRIFT), start * LARGEST_DRIFT) / penalty


def _relative(difference: Float, whole: Float) -> float:
    """Relative size of a residual, between 1e-16 and 1."""
    return min(max(float(np.linalg.norm(difference)) / max(float(np.linalg.norm(whole)), 1e-100), 1e-16), 1.0)
