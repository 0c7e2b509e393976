"""NTP-SVM in the Frobenius norm by block principal pivoting, for embeddings of rank m.

With ``Q = (H^T H)^{-1}`` the problem is ``min tr(L Q L^T)`` over logits, ``W = L Q H^T``. Write ``L = 1 a^T - s``
with ``s = 0`` on support and ``s >= 1`` off it. The best level is ``a_j = mean_v s_vj`` for every Q, so with ``C = I
- 11^T/V`` it remains to solve

::

    min tr(C s Q s^T) / 2  s.t.  s_vj >= 1  off support

a strictly convex quadratic program with one bound per pair, whose matrix is ``M = C o Q`` on the off-support pairs.
Its multipliers are ``M s``, and the multipliers of NTP-SVM are ``A = L Q``. All pairs on the wrong side of their
bound change sides at once; when that stops helping, one pair at a time does (Murty), which cannot cycle
[judice1994], [portugal1994].
"""

from __future__ import annotations

import itertools
import time

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.base import Solution
from tokengeom.problems.ntp_svm import MarginProblem

Index = NDArray[np.intp]
PATIENCE = 10
"""Steps without fewer wrong pairs before pairs change sides one at a time."""


def solve_by_block_pivoting(problem: MarginProblem, max_iterations: int = 500) -> Solution[Float, Float] | None:
    """W_mm with its certificate; ``None`` where the embeddings are not clearly of rank m."""
    began = time.perf_counter()
    Q = _inverse_gram(problem.H)
    if Q is None:
        return None
    v, j = np.nonzero(~problem.S)
    M = _pair_matrix(Q, v, j, problem.S.shape[0])
    s, iterations, done = _bounded_quadratic(M, max_iterations)
    slack = np.zeros(problem.S.shape)
    slack[v, j] = s
    A = (slack.mean(axis=0) - slack) @ Q
    W = A @ problem.H.T
    certificate = problem.certify(W, A)
    status = "optimal" if done else "stopped at the pivoting limit; use the accelerated dual method"
    return Solution(W, A, certificate, status, iterations, time.perf_counter() - began, done)


def _inverse_gram(H: Float) -> Float | None:
    d, m = H.shape
    if d < m:
        return None
    K = H.T @ H
    try:
        factor = cho_factor(K, lower=True, check_finite=False)
    except LinAlgError:
        return None
    # The condition number of H is squared: beyond 1e10 the normal equations lose half of the digits.
    diagonal = np.abs(np.diagonal(factor[0]))
    if diagonal.max() > 1e5 * diagonal.min():
        return None
    return np.asarray(cho_solve(factor, np.eye(m), check_finite=False))


def _pair_matrix(Q: Float, v: Index, j: Index, V: int) -> Float:
    """``C o Q`` on pairs sorted by token: the pairs of one token are a diagonal block."""
    among = Q[j].take(j, axis=1)
    M = among * (-1.0 / V)
    ends = np.searchsorted(v, np.arange(V + 1))
    for begin, end in itertools.pairwise(ends.tolist()):
        M[begin:end, begin:end] += among[begin:end, begin:end]
    return M


def _bounded_quadratic(M: Float, max_iterations: int) -> tuple[Float, int, bool]:
    """``min s^T M s / 2`` over ``s >= 1`` with M positive definite."""
    bound = np.ones(len(M), dtype=bool)
    fewest, patience = len(M) + 1, PATIENCE
    for iteration in range(1, max_iterations + 1):
        s, multiplier = _on_face(M, bound)
        tiny = 1e-13 * max(float(np.max(np.abs(multiplier), initial=0.0)), 1e-300)
        wrong = (~bound & (s < 1.0 - 1e-13)) | (bound & (multiplier < -tiny))
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return s, iteration, True
        if count < fewest:
            fewest, patience = count, PATIENCE
        else:
            patience -= 1
        bound = bound ^ (wrong if patience > 0 else np.arange(len(M)) == np.flatnonzero(wrong)[-1])
    return s, max_iterations, False


def _on_face(M: Float, bound: Bool) -> tuple[Float, Float]:
    s = np.ones(len(M))
    free = np.flatnonzero(~bound)
    if free.size:
        rows = M[free]
        s[free] = np.linalg.solve(rows.take(free, axis=1), -(rows @ bound))
    return s, np.asarray(M @ s)
