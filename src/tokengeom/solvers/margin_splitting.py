"""The margin problem in the spectral and the nuclear norm: its scaled form, and the first phase of its solver, ADMM.

::

    min ||X|| + i_K(L)  s.t.  X = W,  L = W R,    K = {L : equal on support, at least t_j lower elsewhere, j = 1..m}

where ``R`` (r x m) holds the embeddings in coordinates of their own span, with columns of length 1, and ``t_j`` is the
margin of column j in these units. The dual variables are Y (V x r) for ``X = W``, in the unit ball of the dual norm,
and A (V x m) for ``L = W R``, in the dual cone of the margins; at the optimum ``Y = A R^T``.

ADMM alternates between proximal steps in X and L and the least-squares fit of W, whose matrix ``sigma I + tau R R^T``
is r x r. Written in one variable ``Z = (X + Y / sigma, L - A / tau)`` it is a fixed-point iteration, to which Anderson
acceleration is applied. Each penalty follows the ratio of the primal and dual residuals of its own constraint.

The proximal maps are functions of singular values. With ``B = U diag(s) V^T``, Moreau's decomposition splits B into
the proximal point of a norm and the projection on the ball of radius c of its dual norm::

    B = prox_{c ||.||}(B) + P_c(B),    P_c(B) = U diag(g) V^T

    nuclear norm    g = min(s, c)          projection on the spectral-norm ball
    spectral norm   g = (s - theta)_+      projection on the nuclear-norm ball, theta >= 0 such that sum g <= c

The derivative of ``P_c`` along X acts on ``E = U^T X V`` [chen2016]: the symmetric part of E is multiplied by ``(g_i -
g_j) / (s_i - s_j)``, the skew part by ``(g_i + g_j) / (s_i + s_j)``, and the part of X outside the span of U or V by
``g_i / s_i``. All factors lie in [0, 1]. In the spectral norm theta moves too, which subtracts the mean from the
diagonal of E over ``g > 0``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.backend import Backend
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.supports import cone_levels, repair_multipliers
from tokengeom.solvers.anderson import AndersonMemory
from tokengeom.solvers.ntp_svm import column_lengths, separating_decoder

Map = Callable[[Float], Float]

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


def project_on_simplex(s: Float, radius: float) -> Float:
    """The nearest point to s >= 0 with non-negative entries whose sum is at most ``radius``."""
    if float(s.sum()) <= radius:
        return s
    falling = np.sort(s)[::-1]
    theta = (np.cumsum(falling) - radius) / np.arange(1, len(s) + 1)
    # At least the largest entry is positive, even where rounding hides it.
    last = max(int(np.count_nonzero(falling > theta)), 1) - 1
    return np.asarray(np.maximum(s - theta[last], 0.0))


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A V x r matrix with singular triplets ``U, s, Vt``, and the singular values ``g`` of its projection.

    ``free``
        Whether ``g_i`` moves with ``s_i``.
    ``is_capped``
        Whether the sum of g is fixed, so that theta moves as well.
    """

    U: Float
    s: Float
    Vt: Float
    g: Float
    free: Float
    is_capped: bool

    @staticmethod
    def of(B: Float, norm: str, c: float) -> Shrunk:
        """The decomposition of B for the proximal map of ``c ||.||``, in the nuclear or the spectral norm."""
        U, s, Vt = np.linalg.svd(B, full_matrices=False)
        if norm == "nuclear":
            return Shrunk(U, s, Vt, np.minimum(s, c), (s < c).astype(np.float64), False)
        g = project_on_simplex(s, c)
        return Shrunk(U, s, Vt, g, (g > 0).astype(np.float64), bool(s.sum() > c))

    @property
    def proximal(self) -> Float:
        """The proximal point of B."""
        return np.asarray((self.U * (self.s - self.g)) @ self.Vt)

    @property
    def projection(self) -> Float:
        """The projection of B on the ball of the dual norm."""
        return np.asarray((self.U * self.g) @ self.Vt)

    def derivative(self) -> Map:
        """The derivative of the projection: a symmetric linear map on V x r matrices, between 0 and the identity."""
        U, Vt = self.U, self.Vt
        even, odd, outside = self._factors()
        is_tall = U.shape[0] >= Vt.shape[1]
        diagonal = np.arange(len(self.s))
        weights = self.free / max(float(self.free.sum()), 1.0)

        def apply(X: Float) -> Float:
            half = X @ Vt.T if is_tall else U.T @ X
            E = U.T @ half if is_tall else half @ Vt.T
            inside = even * (0.5 * (E + E.T)) + odd * (0.5 * (E - E.T))
            if self.is_capped:
                inside[diagonal, diagonal] -= self.free * float(weights @ E[diagonal, diagonal])
            if is_tall:
                return np.asarray((U @ inside + (half - U @ E) * outside) @ Vt)
            return np.asarray(U @ (inside @ Vt + outside[:, None] * (half - E @ Vt)))

        return apply

    def _factors(self) -> tuple[Float, Float, Float]:
        """Factors of the symmetric part, of the skew part, and of what lies outside the span of U or V."""
        s, g = self.s, self.g
        apart = s[:, None] - s
        equal = np.abs(apart) <= 1e-14 * float(s[0])
        even = (g[:, None] - g) / np.where(equal, 1.0, apart)
        even = np.clip(np.where(equal, self.free[:, None] * self.free, even), 0.0, 1.0)
        total = s[:, None] + s
        odd = np.where(total > 0, (g[:, None] + g) / np.where(total > 0, total, 1.0), 1.0)
        return even, odd, np.where(s > 0, g / np.where(s > 0, s, 1.0), 1.0)
