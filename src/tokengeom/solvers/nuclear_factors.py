"""Factors of smallest nuclear norm at a loss, by L-BFGS in single precision, with a proof in double precision.

``min_{W, H}  CE(W H) - H + lambda/2 (sum_i a_i ||w_i||^2 + sum_j n_j ||h_j||^2)``

over factors of rank d. Where d is at least the rank of the point of the path, this has the same value, and no local
minimum that is not global, since the smallest sum of squares of factors is twice their nuclear norm. Where the loss is
high the rank is a small share of the sides, so a step costs three thin products and one pass over the logits, where
the splitting of ``logit_admm`` decomposes a V' x V' matrix and solves one equation per entry.

The loss curves by ``share_i sum_j pi_j h_j h_j^T`` at row i of W, and by ``pi_j sum_i share_i w_i w_i^T`` at column j
of H. Steps are divided by these matrices of size d, and by what lambda adds: without them they are hundreds of times as
many. lambda follows the loss while the fit goes on.

Single precision is enough to guide: logits and the change ``softmax - P`` of the factors are computed again in double
precision, and the dual is made feasible by cutting its few singular values above lambda.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import LinearOperator, svds

from tokengeom.core.numerics import blas_threads_for
from tokengeom.problems.base import LARGEST_GAP, Solution
from tokengeom.problems.columns import Computed, SparseColumns
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.solvers.logit_admm import LogitADMM, RegularisedLoss

FIT_TOLERANCE = 1e-3
"""Smallest proven gap that single precision reaches in few steps."""
MEMORY = 12
"""Steps that L-BFGS remembers."""
FEWEST_DIMENSIONS, MOST_DIMENSIONS = 32, 384
ROUND = 20
"""Steps after which the curvature is computed again, lambda follows the loss, and the decrease is looked at."""
MOST_ROUNDS, MORE_ROUNDS, MORE_PROOFS = 24, 5, 2
"""Rounds before the first proof, at most; and those before each further one, where it is not good enough yet."""
FIRST_FOLLOWED, LAST_FOLLOWED = 2, 8
"""Rounds in which lambda follows the loss: before them it has not fallen far enough."""
FOLLOWED, POWER, LARGEST_CHANGE = 0.004, 0.8, 2.0
"""Relative difference of the loss gap up to which lambda stays, the power of lambda with which the loss grows, as
measured on natural text, and the largest factor by which lambda changes at once."""
SETTLED = 0.003
"""Decrease in a round, as a share of the tolerance, from which on the proof is tried."""
SUFFICIENT = 1e-4
"""Share of the predicted decrease that a step must reach."""
SHORTEST_STEP = 1e-3
BLOCK = 2**19
"""Entries of logits that are computed at once: they stay in the cache."""
Vector = tuple[Any, Any]
"""W, V' x d, and the transposed H, m' x d, in single precision."""


@final
class NuclearFit:
    """``CE - H + lambda/2 (||W||^2 + ||H||^2)`` with its derivatives, of a problem on a CPU."""

    def __init__(self, problem: RegularisedLogits) -> None:
        P = problem.P.matrix if isinstance(problem.P, SparseColumns) else csc_array(problem.P)
        rows = csr_array(P.T)
        self.a, self.n, self.pi = problem.a, problem.n, problem.pi
        self.indptr, self.tokens = rows.indptr, rows.indices
        self.contexts = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        self.weights = self.a[self.tokens] * rows.data * self.pi[self.contexts]
        self.floor = -float(self.weights @ np.log(rows.data))
        self.share = np.bincount(self.tokens, self.weights, self.a.size)
        # A model that has hardly learned gives tokens that never follow some probability, too.
        self.share = self.share + 0.5 * self.share.mean()
        self.lam, self.steps = problem.lam, 0
        self.remembered: list[tuple[Vector, Vector, float]] = []

    def start(self) -> Vector:
        """Factors along the leading singular vectors of the gradient at logits 0."""
        r, c, uniform = np.sqrt(self.a), np.sqrt(self.n), 1.0 / float(self.a.sum())
        scaled = csc_array(
            (self.weights / r[self.tokens] / c[self.contexts], (self.tokens, self.contexts)), (r.size, c.size)
        )
        operator = LinearOperator(
            scaled.shape,
            dtype=np.float64,
            matvec=lambda x: scaled @ x.ravel() - r * (uniform * float((self.pi / c) @ x.ravel())),
            rmatvec=lambda y: scaled.T @ y.ravel() - self.pi / c * (uniform * float(r @ y.ravel())),
        )
        most = min(MOST_DIMENSIONS, min(scaled.shape) - 1)
        first = np.random.default_rng(0).standard_normal(min(scaled.shape))
        size = min(FEWEST_DIMENSIONS, most)
        while True:
            U, s, Vt = svds(operator, k=size, v0=first)
            if s.min() <= self.lam or size == most:
                break
            size = min(2 * size, most)
        lengths = np.sqrt(np.maximum(s - 0.8 * self.lam, 0.05 * s)) * 3.0
        return (U * lengths / r[:, None]).astype(np.float32), (Vt.T * lengths / c[:, None]).astype(np.float32)

    def slopes(self, x: Vector) -> tuple[float, Any, Any]:
        """Loss gap and its derivatives by W and by H."""
        W, H = x
        gap, of_W, of_H, a = -self.floor, np.zeros_like(W), np.empty_like(H), self.a.astype(np.float32)
        width = max(1, BLOCK // W.shape[0])
        for i in range(0, H.shape[0], width):
            part = slice(i, min(i + width, H.shape[0]))
            own = slice(self.indptr[part.start], self.indptr[part.stop])
            on, weights = (self.contexts[own] - i, self.tokens[own]), self.weights[own]
            L = H[part] @ W.T
            inside = float(weights @ L[on])
            top = L.max(1)
            L -= top[:, None]
            np.exp(L, out=L)
            sums = L @ a
            gap += float(self.pi[part] @ (np.log(sums.astype(np.float64)) + top)) - inside
            L *= (self.pi[part].astype(np.float32) / sums)[:, None]
            L *= a
            L[on] -= weights.astype(np.float32)
            of_H[part] = L @ W
            of_W += L.T @ H[part]
        return gap, of_W, of_H

    def __call__(self, x: Vector) -> tuple[float, float, Vector]:
        """Value, loss gap and gradient."""
        gap, of_W, of_H = self.slopes(x)
        shrunk = self.lam * self.a[:, None] * x[0], self.lam * self.n[:, None] * x[1]
        norm = sum(float(np.vdot(force, part)) for force, part in zip(shrunk, x, strict=True))
        return gap + 0.5 * norm, gap, (of_W + shrunk[0].astype(np.float32), of_H + shrunk[1].astype(np.float32))

    def round(self, x: Vector) -> tuple[Vector, float, float]:
        """Factors after `ROUND` steps of L-BFGS, by how much the value fell, and the loss gap."""
        curvature, (value, gap, gradient) = Curvature.of(self, x), self(x)
        first = value
        for _ in range(ROUND):
            direction = _direction(gradient, self.remembered, curvature)
            slope, length = _dot(direction, gradient), 1.0
            while slope < 0.0:
                tried = _plus(x, direction, length)
                new, new_gap, of_tried = self(tried)
                if new <= value + SUFFICIENT * length * slope or length < SHORTEST_STEP:
                    break
                length *= 0.4
            if not slope < 0.0 or not new < value:
                self.remembered = []
                break
            moved, turned = _plus(tried, x, -1.0), _plus(of_tried, gradient, -1.0)
            if (bent := _dot(moved, turned)) > 0.0:
                self.remembered = [*self.remembered[1 - MEMORY :], (moved, turned, bent)]
            x, value, gap, gradient = tried, new, new_gap, of_tried
            self.steps += 1
        return x, first - value, gap


@final
@dataclass(frozen=True)
class Curvature:
    """The matrices by which steps are divided, in the coordinates in which each is diagonal."""

    of_W: Any
    of_H: Any
    turn_W: Any
    turn_H: Any

    @staticmethod
    def of(fit: NuclearFit, x: Vector) -> Curvature:
        """The curvature at some factors."""
        W, H = (part.astype(np.float64) for part in x)
        W -= fit.share @ W / fit.share.sum()
        for_W, turn_W = np.linalg.eigh(H.T @ (H * fit.pi[:, None]))
        for_H, turn_H = np.linalg.eigh(W.T @ (W * fit.share[:, None]))
        of_W = fit.lam * fit.a[:, None] + fit.share[:, None] * np.maximum(for_W, 0.0)
        of_H = fit.lam * fit.n[:, None] + fit.pi[:, None] * np.maximum(for_H, 0.0)
        return Curvature(*(part.astype(np.float32) for part in (of_W, of_H, turn_W, turn_H)))

    def divide(self, x: Vector) -> Vector:
        """A vector divided by the curvature."""
        of_W = ((x[0] @ self.turn_W) / self.of_W) @ self.turn_W.T
        return of_W, ((x[1] @ self.turn_H) / self.of_H) @ self.turn_H.T


def fit_at_loss(
    problem: RegularisedLogits, loss_gap: float, tolerance: float
) -> tuple[RegularisedLogits, Solution[Any, Any]]:
    """The point of the path near to that of this problem that has a loss gap, and its logits with a proof.

    The dual is the change ``softmax - P`` of the factors, made feasible.
    """
    began, fit = time.perf_counter(), NuclearFit(problem)
    with blas_threads_for(*problem.P.shape):
        x = fit.start()
        for rounds, follows in ((MOST_ROUNDS, True), *[(MORE_ROUNDS, False)] * MORE_PROOFS):
            x = _after_rounds(fit, x, rounds, loss_gap if follows else None, tolerance)
            point = problem.at(fit.lam)
            solution = _proven(point, x, tolerance, fit.steps, began)
            if solution.converged:
                break
            x = _with_more_dimensions(x)
            fit.remembered = []
    return point, solution


def _with_more_dimensions(x: Vector) -> Vector:
    """The same logits by half as many dimensions more, in case that they have too few."""
    (W, H), rng = x, np.random.default_rng(0)
    more = W.shape[1] // 2
    small = 1e-3 * float(np.sqrt((W**2).mean()))
    added = small * rng.standard_normal((W.shape[0], more), np.float32), np.zeros((H.shape[0], more), np.float32)
    return np.concatenate([W, added[0]], 1), np.concatenate([H, added[1]], 1)


def _after_rounds(fit: NuclearFit, x: Vector, rounds: int, loss_gap: float | None, tolerance: float) -> Vector:
    """Factors after rounds of steps, which end early once they settle; lambda follows the loss gap, if there is one."""
    for done in range(1, rounds + 1):
        x, fell, gap = fit.round(x)
        wanted = 1.0 if loss_gap is None else loss_gap / gap
        if abs(wanted - 1.0) > FOLLOWED and FIRST_FOLLOWED <= done <= LAST_FOLLOWED:
            fit.lam *= min(max(wanted ** (1.0 / POWER), 1.0 / LARGEST_CHANGE), LARGEST_CHANGE)
        elif loss_gap is not None and fell <= SETTLED * tolerance * gap:
            break
    return x


def _proven(problem: RegularisedLogits, x: Vector, tolerance: float, steps: int, began: float) -> Solution[Any, Any]:
    """The logits of factors with their certificate; the norm, a part of the value, is proven well enough, too."""
    layout, (W, H) = problem.layout, (part.astype(np.float64) for part in x)
    L = layout.kept(Computed(layout, lambda k: W @ H[layout.slices[k]].T))
    term = RegularisedLoss(problem)
    term.change, term.cuts = layout.kept(problem.each(RegularisedLogits.dual_change, L)), True
    change, _ = term.feasible_change()
    certificate = problem.certify(L, change)
    enough = LARGEST_GAP * (1.0 - problem.loss_gap(L) / certificate.value)
    solver = LogitADMM(tolerance=min(tolerance, enough))
    logits, dual = layout.plain(L), layout.plain(change)
    return solver.solution(logits, dual, certificate, steps, began, problem.backend)


def _direction(gradient: Vector, steps: list[tuple[Vector, Vector, float]], curvature: Curvature) -> Vector:
    """The step of L-BFGS: minus the gradient, divided by the curvature and by what the last steps say about it."""
    q, shares = (-gradient[0], -gradient[1]), []
    for moved, turned, bent in reversed(steps):
        share = _dot(moved, q) / bent
        shares.append(share)
        q = _plus(q, turned, -share)
    q = curvature.divide(q)
    if steps:
        _, turned, bent = steps[-1]
        factor = np.float32(bent / _dot(turned, curvature.divide(turned)))
        q = q[0] * factor, q[1] * factor
    for (moved, turned, bent), share in zip(steps, reversed(shares), strict=True):
        q = _plus(q, moved, share - _dot(turned, q) / bent)
    return q


def _dot(x: Vector, y: Vector) -> float:
    return float(np.vdot(x[0], y[0])) + float(np.vdot(x[1], y[1]))


def _plus(x: Vector, y: Vector, factor: float) -> Vector:
    return x[0] + np.float32(factor) * y[0], x[1] + np.float32(factor) * y[1]
