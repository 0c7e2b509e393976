"""Singular-value threshold of a wide or tall matrix through the eigenvectors of its smaller Gram matrix.

``prox_{tau ||.||_*}(M) = Q diag((1 - tau/s)_+) Q^T M``   with   ``M M^T = Q diag(s^2) Q^T``

where ``M`` is V x m (the transpose is used when V > m), ``s`` its singular values. No SVD of M is needed: one
Gram product, one symmetric eigendecomposition of the smaller side, one or two products. Singular values below
1e-8 of the largest are rounding, but the threshold removes them.

Over-relaxed Douglas-Rachford splitting (ADMM) with safeguarded Anderson acceleration, written once.

``min f(X) + h(X)``   by   ``Z = prox_{f/rho}(w),  X = prox_{h/rho}(2Z - w),  w <- w + r (X - Z)``

where

``w``      the one state, any matrix; ``rho`` penalty; ``r`` in (0, 2) relaxation
``Z``      minimises f near w; at a fixed point Z = X is optimal and ``Y = rho (w - Z)`` is in ``-dh(X)``

This is ADMM in one variable, so that acceleration, restarts and a change of rho act on one matrix. Anderson
acceleration (type II) replaces the step by ``w + F - (dW + dF) gamma`` with ``gamma`` the regularised
least-squares fit of the residual ``F`` by its last few differences ``dF``. Safeguard: when the residual
exceeds twice the best since the last restart, the plain step is taken and the memory dropped; the plain
iteration converges from anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import numpy as np

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.arrays import Array, Arrays


@dataclass(frozen=True)
class Thresholded:
    """``X`` with its rank and nuclear norm, both free by-products."""

    X: Array
    rank: int
    nuclear_norm: float


def singular_value_threshold(arrays: Arrays, M: Array, tau: float) -> Thresholded:
    """Shrink every singular value of M by tau, those below it to 0."""
    if M.shape[0] > M.shape[1]:
        turned = singular_value_threshold(arrays, M.T, tau)
        return Thresholded(turned.X.T, turned.rank, turned.nuclear_norm)
    eigenvalues, Q = arrays.xp.linalg.eigh(M @ M.T)
    s = arrays.at_least(eigenvalues, 0.0) ** 0.5
    rank = int((s > tau).sum())
    kept = s[s.shape[0] - rank :]
    Q = Q[:, Q.shape[1] - rank :]
    shrunk = Q * (1.0 - tau / kept)
    # Two thin products cost 4 V r m, the V x V operator then one product 2 V^2 (r + m): take the cheaper.
    X = (shrunk @ Q.T) @ M if 2 * rank > M.shape[0] else shrunk @ (Q.T @ M)
    return Thresholded(X, rank, float((kept - tau).sum()))


RELAXATION = 1.6
MEMORY = 5
REGULARISATION = 1e-8
SAFEGUARD = 2.0
LARGEST_RHO_CHANGE = 2.5
SMALLEST_RHO_CHANGE = 2.0


@final
@dataclass
class AndersonMemory:
    """The last few differences of states and residuals, and the step that they suggest."""

    arrays: Arrays
    size: int = MEMORY
    steps: list[Array] = field(default_factory=list)
    dF: list[Array] = field(default_factory=list)
    gram: Float = field(default_factory=lambda: np.zeros((0, 0)))
    last: tuple[Array, Array] | None = None
    best: float = float("inf")
    rejected: int = 0

    def restart(self) -> None:
        """Forget everything; the next step is a plain one."""
        self.steps, self.dF, self.gram, self.last = [], [], np.zeros((0, 0)), None
        self.best = float("inf")

    def advance(self, w: Array, F: Array) -> Array:
        """Next state from state ``w`` with residual ``F``: accelerated, or plain if the safeguard says so."""
        if self.size == 0:
            return w + F
        norm = self.arrays.norm(F)
        if norm > SAFEGUARD * self.best:
            self.restart()
            self.rejected += 1
        self.best = min(self.best, norm)
        if self.last is not None:
            self._remember(w, F, *self.last)
        self.last = (w, F)
        return self._extrapolate(w, F)

    def _remember(self, w: Array, F: Array, last_w: Array, last_F: Array) -> None:
        """Add one difference, drop the oldest; only the new row of the Gram matrix is computed."""
        if len(self.dF) == self.size:
            self.steps.pop(0)
            self.dF.pop(0)
            self.gram = self.gram[1:, 1:]
        dF = F - last_F
        self.dF.append(dF)
        # Of the states only dW + dF is ever used: storing the sum saves a pass over the data.
        self.steps.append(w - last_w + dF)
        row = np.array([self.arrays.dot(dF, old) for old in self.dF])
        self.gram = np.block([[self.gram, row[:-1, None]], [row[None, :]]])

    def _extrapolate(self, w: Array, F: Array) -> Array:
        step = w + F
        k = len(self.dF)
        if k:
            right = np.array([self.arrays.dot(dF, F) for dF in self.dF])
            ridge = REGULARISATION * np.trace(self.gram) / k + 1e-300
            for gamma, old in zip(np.linalg.solve(self.gram + ridge * np.eye(k), right), self.steps, strict=True):
                step -= float(gamma) * old
        return step


def rebalanced(rho: float, primal: float, dual: float) -> float:
    """Move rho towards equal relative residuals: up when X and Z differ more than Z still moves."""
    factor = math.sqrt(primal / max(dual, 1e-300))
    if 1 / SMALLEST_RHO_CHANGE <= factor <= SMALLEST_RHO_CHANGE:
        return rho
    return rho * min(max(factor, 1 / LARGEST_RHO_CHANGE), LARGEST_RHO_CHANGE)
