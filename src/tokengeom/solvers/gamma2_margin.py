"""The margin problem in the gamma_2 norm, with features in the place of embeddings: weighted ADMM for small problems.

::

    min gamma_2(B)  s.t.  B Phi in K,    K = {L : equal on support, at least 1 lower elsewhere, column by column}

where ``Phi`` is F x m and B is V x F. As ``gamma_2(B) = max ||diag(r) B diag(c)||_*`` over weights with sums of squares
1, ADMM solves the problem in the nuclear norm with some weights, and these follow its solution: with ``diag(r) B
diag(c) = U diag(s) V^T`` and W and A its factors, ``r_i^2`` is multiplied by a power of ``||w_i||^2``, and ``c_f^2``
by one of ``||a_f||^2``, so all that matter become equal. In ``Q``, the eigenvectors of ``Phi_c Phi_c^T`` with ``Phi_c =
diag(1/c) Phi``, the least-squares step of ADMM is a division::

    X = diag(r) B_c,   L = B_c Phi_c,   B_c = B diag(c)
    B_c = (sigma diag(r) X' + tau L' Phi_c^T) Q / (sigma r_i^2 + tau e_k) Q^T

The multipliers A of ``L = B_c Phi_c`` are in the dual cone of K after repair, and for any weights
``<S, A> / ||diag(1/r) A Phi^T diag(1/c)||_2`` bounds the optimum from below. The value is that of a B made feasible.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from tokengeom.core.numerics import Float
from tokengeom.problems.base import Certificate
from tokengeom.problems.gamma2 import MaxNormFactors
from tokengeom.problems.ntp_svm import MarginProblem, Norm
from tokengeom.problems.supports import cone_levels, repair_multipliers
from tokengeom.solvers.gamma2_norm import balance
from tokengeom.solvers.ntp_svm import separating_decoder

ROUND, LONGER, MOST_ROUNDS = 40, 25, 75
"""Iterations between changes of the weights, twice as many after each ``LONGER`` rounds, and the most rounds."""
POWER = 0.5
"""Power of the squared norms by which weights are multiplied."""
SMALLEST = 1e-6
"""Smallest squared weight, as a share of the uniform one."""
RELAXATION = 1.6
BALANCED = 0.1
"""Tolerance of the norm of a feasible B, as a share of that asked for."""


@dataclass(frozen=True, eq=False)
class Gamma2Margin:
    """Factors W (V x d) and A (d x F) of a feasible B, equally long at most; squares of the weights of the proof."""

    factors: MaxNormFactors
    weights: tuple[Float, Float]
    dual: Float
    certificate: Certificate
    iterations: int
    seconds: float


def weighted_norm(r: Float, c: Float) -> Norm:
    """Nuclear norm with weights, which is at most gamma_2; its dual is at least the dual of gamma_2."""
    return Norm(
        "gamma2",
        lambda B: float(np.linalg.norm(r[:, None] * B * c, "nuc")),
        lambda Y: float(np.linalg.norm(Y / (r[:, None] * c), 2)),
    )


class _Iteration:
    """ADMM at given weights: B_c, the duals of both constraints divided by their penalties, and the penalties."""

    def __init__(self, problem: MarginProblem, B: Float, A: Float) -> None:
        self.S, self.Phi = problem.S, problem.H
        self.B, self.A = B, repair_multipliers(A, problem.S)
        V, F = B.shape
        self.r, self.c = np.full(V, V**-0.5), np.full(F, F**-0.5)
        self.drift = 1.0
        self.enter()

    def enter(self) -> None:
        """Variables for the weights, from B and the multipliers, which are scaled to be dual feasible."""
        r, c = self.r[:, None], self.c
        self.Phi_c = self.Phi / c[:, None]
        self.eigenvalues, self.Q = np.linalg.eigh(self.Phi_c @ self.Phi_c.T)
        Y = (self.A @ self.Phi_c.T) / r
        self.A, Y = (x / max(float(np.linalg.norm(Y, 2)), 1e-300) for x in (self.A, Y))
        self.B_c = self.B * c
        sizes = (float(np.linalg.norm(x)) for x in (r * self.B_c, self.B_c @ self.Phi_c))
        duals = (float(np.linalg.norm(x)) for x in (Y, self.A))
        self.sigma, self.tau = (self.drift * y / max(x, 1e-300) for x, y in zip(sizes, duals, strict=True))
        self.Ux, self.Ul = Y / self.sigma, -self.A / self.tau
        self.levels: Float | None = None

    def step(self) -> tuple[float, float]:
        """One iteration; the relative sizes of its primal and dual residuals."""
        r = self.r[:, None]
        X_of, L_of = r * self.B_c, self.B_c @ self.Phi_c
        U, s, Vt = np.linalg.svd(X_of + self.Ux, full_matrices=False)
        X = (U * np.maximum(s - 1.0 / self.sigma, 0.0)) @ Vt
        moved = L_of + self.Ul - self.S
        self.levels, T = cone_levels(moved, self.S, self.levels)
        L = np.where(T, self.levels, moved) + self.S
        X_, L_ = RELAXATION * X + (1 - RELAXATION) * X_of, RELAXATION * L + (1 - RELAXATION) * L_of
        pull = self.sigma * r * (X_ - self.Ux) + self.tau * (L_ - self.Ul) @ self.Phi_c.T
        before = self.B_c
        self.B_c = ((pull @ self.Q) / (self.sigma * r**2 + self.tau * self.eigenvalues)) @ self.Q.T
        self.Ux += r * self.B_c - X_
        self.Ul += self.B_c @ self.Phi_c - L_
        self.A = -self.tau * self.Ul
        change = self.B_c - before
        primal = np.linalg.norm(r * self.B_c - X) + np.linalg.norm(self.B_c @ self.Phi_c - L)
        dual = np.linalg.norm(r * change) + np.linalg.norm(change @ self.Phi_c)
        return float(primal), float(dual)

    def round(self, iterations: int) -> None:
        """Some iterations, then weights that follow the factors of B."""
        primal, dual = 0.0, 0.0
        for _ in range(iterations):
            p, d = self.step()
            primal, dual = primal + p, dual + d
        self.drift = min(max(self.drift * min(max(math.sqrt(primal / max(dual, 1e-300)), 0.5), 2.0), 1e-3), 1e3)
        self.B = self.B_c / self.c
        U, s, Vt = np.linalg.svd(self.r[:, None] * self.B_c, full_matrices=False)
        self.r = _followed(self.r, (U**2) @ s)
        self.c = _followed(self.c, s @ (Vt**2))


def _followed(root: Float, share: Float) -> Float:
    """Roots of weights, multiplied by a power of the squared norms ``share / root^2`` of the factors."""
    squares = root**2 * (np.maximum(share, 1e-300) / root**2) ** POWER
    squares = np.maximum(squares / squares.sum(), SMALLEST / squares.size)
    return np.asarray(np.sqrt(squares / squares.sum()))


def solve_gamma2_margin(problem: MarginProblem, B: Float, A: Float, tolerance: float) -> Gamma2Margin:
    """The smallest gamma_2 norm with margins 1 on ``B Phi``, from a B and multipliers for any norm."""
    began, at = time.perf_counter(), _Iteration(problem, B, A)
    value, bound, best = math.inf, 0.0, None
    iterations = 0
    for k in range(MOST_ROUNDS):
        r, c, steps = at.r, at.c, ROUND * 2 ** (k // LONGER)
        at.round(steps)
        iterations += steps
        proven = replace(problem, norm=weighted_norm(r, c)).bound(at.A)
        if proven > bound:
            bound, dual, weights = proven, at.A, (r**2, c**2)
        feasible = separating_decoder(problem, at.B)
        if feasible is not None:
            made = balance(feasible, at.r, at.c, tolerance=BALANCED * tolerance, max_iterations=100)
            if made.high < value:
                value, best = made.high, made.factors
        if value - bound <= tolerance * value:
            break
        at.enter()
    assert best is not None, "the start separates"
    scale = math.sqrt(math.sqrt(float((best.H**2).sum(axis=0).max() / (best.W**2).sum(axis=1).max())))
    best = MaxNormFactors(best.W * scale, best.H / scale)
    primal = replace(problem, norm=weighted_norm(at.r, at.c)).certify(best.logits, dual)
    certificate = Certificate(primal.primal_residual, primal.dual_residual, value, bound)
    return Gamma2Margin(best, weights, dual, certificate, iterations, time.perf_counter() - began)
