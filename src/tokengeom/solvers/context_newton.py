"""Contexts for given tokens, by Newton's method on all contexts at once.

``min_h  KL(p || softmax(W h)) + (rho/2) ||h||^2``

where
    W     tokens, V x r
    p     next-token probabilities of one context, V
    rho   ridge of this context

It is the problem that each context solves in ``min CE(W H) + (lam/2)(||W||^2 + ||H||^2)``, with ``rho = lam / pi_j``.
`bounded_contexts` has ``||h|| <= R`` in place of the ridge: rho is then the multiplier at which the norm is R, found by
Newton's method on ``log rho`` with ``d||h|| / d log rho = -rho h^T K^{-1} h / ||h||``, K the Hessian.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tokengeom.core.numerics import Bool, Float, Int, centre_columns, log_sum_exp

BLOCK_ENTRIES = 20_000_000
"""Entries of the scaled tokens of one block of contexts: 160 MB."""
MOST_STEPS = 60
"""Newton steps; a few more than log(1/rho) are needed from a poor start."""
DECREMENT = 1e-8
"""Squared Newton decrement, as a share of the objective, at which a context has converged."""
SMALLEST_RIDGE, LARGEST_RIDGE = 1e-10, 1e3
RADIUS_ACCURACY = 1e-3
MOST_RADIUS_STEPS = 15
START = 1e-3
"""Share of the probability that a start gives to tokens off support."""
SMALLEST_SINGULAR = 1e-9


def ridge_contexts(W: Float, P: Float, ridge: Float) -> Float:
    """Contexts (r x k) with probabilities P (V x k) and one ridge each (k)."""
    problem = _Problem(W)
    return problem.in_blocks(P, lambda block, columns: problem.solve(block, ridge[columns], problem.start(block)))


def bounded_contexts(W: Float, P: Float, radius: float) -> Float:
    """Contexts (r x k) with probabilities P (V x k) and the smallest loss among those of norm at most ``radius``."""
    problem = _Problem(W)
    return problem.in_blocks(P, lambda block, _: problem.solve_bounded(block, radius))


class _Problem:
    """Tokens in coordinates in which they have full rank."""

    def __init__(self, W: Float) -> None:
        U, s, Vt = np.linalg.svd(centre_columns(W), full_matrices=False)
        kept = s > SMALLEST_SINGULAR * s[0] if s.size else np.zeros(0, bool)
        self.U, self.s, self.basis = U[:, kept], s[kept], Vt[kept]
        self.W = self.U * self.s

    def in_blocks(self, P: Float, solve: Callable[[Float, Int], Float]) -> Float:
        """Solve for blocks of columns, and return to the coordinates of the given tokens."""
        k, (V, r) = P.shape[1], self.W.shape
        width = max(1, BLOCK_ENTRIES // max(V * r, 1))
        contexts = np.zeros((r, k))
        for first in range(0, k, width) if r else ():
            columns = np.arange(first, min(first + width, k))
            contexts[:, columns] = solve(P[:, columns], columns)
        return np.asarray(self.basis.T @ contexts)

    def start(self, P: Float) -> Float:
        """Least squares on the logarithms of smoothed probabilities."""
        logits = centre_columns(np.log(P + START / P.shape[0]))
        return np.asarray((self.s / (self.s**2 + (0.01 * self.s[0]) ** 2))[:, None] * (self.U.T @ logits))

    def value(self, P: Float, ridge: Float, y: Float) -> Float:
        """Objective of each context, up to its entropy."""
        L = self.W @ y
        return np.asarray(log_sum_exp(L) - (P * L).sum(axis=0) + 0.5 * ridge * (y**2).sum(axis=0))

    def hessian(self, P: Float, ridge: Float, y: Float) -> tuple[Float, Float]:
        """Gradient (r x k) and Hessian (k x r x r) of each context."""
        L = self.W @ y
        q = np.exp(L - log_sum_exp(L))
        mean = self.W.T @ q
        K = np.matmul(self.W.T[None] * q.T[:, None, :], self.W) - mean.T[:, :, None] * mean.T[:, None, :]
        diagonal = np.arange(K.shape[1])
        K[:, diagonal, diagonal] += ridge[:, None]
        return mean - self.W.T @ P + ridge * y, K

    def solve(self, P: Float, ridge: Float, y: Float) -> Float:
        """Newton's method with backtracking, on the contexts that have not converged."""
        y, active = y.copy(), np.arange(P.shape[1])
        for _ in range(MOST_STEPS):
            part = P[:, active], ridge[active], y[:, active]
            gradient, K = self.hessian(*part)
            step = -_solved(K, gradient)
            slope, value = (gradient * step).sum(axis=0), self.value(*part)
            y[:, active] += self._length(*part, step, slope, value) * step
            floor = 0.5 * ridge[active] * (y[:, active] ** 2).sum(axis=0)
            active = active[-slope > DECREMENT * np.maximum(floor, SMALLEST_RIDGE)]
            if not active.size:
                break
        return y

    def _length(self, P: Float, ridge: Float, y: Float, step: Float, slope: Float, value: Float) -> Float:
        """Length of each step: 1, halved until the objective falls by a tenth of what its slope promises."""
        length = np.ones(y.shape[1])
        for _ in range(30):
            allowed = 1e-14 * np.abs(value)
            enough: Bool = self.value(P, ridge, y + length * step) <= value + 0.1 * length * slope + allowed
            if enough.all():
                break
            length = np.where(enough, length, 0.5 * length)
        return length

    def solve_bounded(self, P: Float, radius: float) -> Float:
        """Contexts with the ridge at which their norm is the radius, or with the smallest ridge where it is less."""
        logs = np.full(P.shape[1], np.log(1e-3))
        y = self.solve(P, np.exp(logs), self.start(P))
        for _ in range(MOST_RADIUS_STEPS):
            ridge = np.exp(logs)
            norm = np.maximum(np.linalg.norm(y, axis=0), 1e-300)
            wrong = (np.abs(norm / radius - 1.0) > RADIUS_ACCURACY) & ((norm > radius) | (ridge > SMALLEST_RIDGE))
            active = np.flatnonzero(wrong & (ridge < LARGEST_RIDGE))
            if not active.size:
                break
            part = P[:, active], ridge[active], y[:, active]
            K = self.hessian(*part)[1]
            fall = ridge[active] * (part[2] * _solved(K, part[2])).sum(axis=0) / norm[active]
            move = np.clip((norm[active] - radius) / np.maximum(fall, 1e-300), -3.0, 3.0)
            logs[active] = np.clip(logs[active] + move, np.log(SMALLEST_RIDGE), np.log(LARGEST_RIDGE))
            y[:, active] = self.solve(P[:, active], np.exp(logs[active]), y[:, active])
        return y


def _solved(K: Float, right: Float) -> Float:
    """``K_j^{-1} b_j`` for each of k systems (k x r x r) and columns (r x k)."""
    return np.asarray(np.linalg.solve(K, right.T[:, :, None])[:, :, 0].T, dtype=np.float64)
