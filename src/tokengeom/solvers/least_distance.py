"""NTP-SVM in the Frobenius norm as least distance programming, for small problems of any rank.

``min ||x||  s.t.  M x >= 1`` is one non-negative least squares problem [lawson1974, ch. 23]: with ``E = [M^T; 1^T]``
and ``f = (0, .., 0, 1)``, let ``u >= 0`` minimise ``||E u - f||`` and ``r = E u - f``. If ``r = 0`` the convex
combination ``u`` of the rows of M vanishes, which proves that no decoder separates; otherwise ``x = -r[:-1] /
r[-1]``. Here x holds the coordinates of W in an orthonormal basis of the decoders with equal in-support logits, and
row (j, v) of M is the margin of pair (j, v) in those coordinates. Active-set steps are exact, and so is the proof.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.base import Solution
from tokengeom.problems.ntp_svm import MarginProblem

Pairs = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]
"""Of each pair of tokens: the one whose logit counts, the one whose logit is subtracted, and the context."""
SMALLEST_MARGIN = 1e-7
"""Margins below this share of the largest embedding cannot be distinguished from 0 in double precision."""


@dataclass(frozen=True)
class MarginAnswer:
    """Whether the data are separable, and W_mm, or zeros with the multipliers that refute separability."""

    separable: bool
    solution: Solution[Float, Float]


def in_support_pairs(S: Bool) -> Pairs:
    """Consecutive tokens of each support, and their context."""
    context, token = np.nonzero(S.T)
    same = context[:-1] == context[1:]
    return token[:-1][same], token[1:][same], context[:-1][same]


def margin_pairs(S: Bool) -> Pairs:
    """First token of the support, token off support, and their context."""
    context, token = np.nonzero(~S.T)
    return np.argmax(S, axis=0)[context], token, context


def difference_rows(pairs: Pairs, V: int, R: Float) -> sparse.csr_array:
    """Rows ``(e_plus - e_minus) h_context^T`` of pairs over ``vec(W)``, W of V x r, row by row of W."""
    plus, minus, context = pairs
    r, n = R.shape[0], len(plus)
    columns = np.concatenate([plus[:, None] * r + np.arange(r), minus[:, None] * r + np.arange(r)], axis=1)
    values = np.concatenate([R[:, context].T, -R[:, context].T], axis=1)
    return sparse.csr_array((values.ravel(), columns.ravel(), np.arange(n + 1) * (2 * r)), shape=(n, V * r))


def equality_rows(S: Bool, R: Float) -> Float:
    """Rows of "in-support logits are equal" on ``vec(W)``: one per consecutive pair of tokens."""
    return np.asarray(difference_rows(in_support_pairs(S), S.shape[0], R).toarray())


def margin_rows(S: Bool, R: Float) -> Float:
    """Rows of the off-support margins on ``vec(W)``: first in-support token minus the other token."""
    return np.asarray(difference_rows(margin_pairs(S), S.shape[0], R).toarray())


def row_and_null_space(E: Float, columns: int) -> tuple[Float, Float]:
    """Orthonormal bases, as columns, of the span of the rows of E and of ``{x : E x = 0}``."""
    if len(E) == 0:
        return np.zeros((columns, 0)), np.eye(columns)
    _, singular, right = np.linalg.svd(E, full_matrices=True)
    tiny = max(E.shape) * np.finfo(np.float64).eps * float(singular.max(initial=0.0))
    rank = int(np.count_nonzero(singular > tiny))
    return np.asarray(right[:rank].T), np.asarray(right[rank:].T)


def solve_least_distance(problem: MarginProblem, R: Float, U: Float) -> MarginAnswer:
    """The answer for ``H = U R`` with U orthonormal (d x r), found for the r columns of ``W U``."""
    began = time.perf_counter()
    V, r = problem.S.shape[0], R.shape[0]
    _, N = row_and_null_space(equality_rows(problem.S, R), V * r)
    # Embeddings of unit size give the last row of E the same weight as the others.
    scale = float(np.max(np.linalg.norm(R, axis=0)))
    M = (margin_rows(problem.S, R) @ N) / scale
    E = np.vstack([M.T, np.ones(len(M))])
    f = np.zeros(len(E))
    f[-1] = 1.0
    from scipy.optimize import nnls

    u, _ = nnls(E, f, maxiter=50 * E.shape[1])
    residual = E @ u - f
    separable = bool(-residual[-1] > SMALLEST_MARGIN**2)
    x, u = _polish(M, u) if separable else (np.zeros(N.shape[1]), u)
    W = np.reshape(N @ x, (V, r)) / scale
    A = multipliers_of_pairs(problem.S, R, u, scale**2 * W if separable else None)
    decoder = W @ U.T
    certificate = problem.certify(decoder, A) if separable else problem.refute(A)
    status = "optimal" if separable else "not separable: a convex combination of the constraints vanishes"
    took = time.perf_counter() - began
    return MarginAnswer(separable, Solution(decoder, A, certificate, status, int(np.count_nonzero(u)), took))


def _polish(M: Float, u: Float) -> tuple[Float, Float]:
    """The solution with the active constraints exactly tight: dividing by a small ``r[-1]`` loses digits."""
    tight = np.flatnonzero(u)
    x = np.asarray(np.linalg.lstsq(M[tight], np.ones(len(tight)), rcond=None)[0], dtype=np.float64)
    weights = np.zeros(len(u))
    weights[tight] = np.linalg.lstsq(M[tight].T, x, rcond=None)[0]
    return x, weights


def multipliers_of_pairs(S: Bool, R: Float, u: Float, target: Float | None = None) -> Float:
    """Multipliers A with off-support entries ``-u`` and ``A R^T = target`` (V x r; zero when not given).

    On-support entries are the anchor's sum plus the combination of equality rows that gives the part of the target
    outside the space of equal in-support logits; inside that space, u must already agree.
    """
    A = pair_multipliers(S, u)
    missing = -(A @ R.T) if target is None else target - A @ R.T
    E = equality_rows(S, R)
    if len(E):
        A = A + equality_multipliers(
            S, np.asarray(np.linalg.lstsq(E.T, missing.ravel(), rcond=None)[0], dtype=np.float64)
        )
    return A


def pair_multipliers(S: Bool, u: Float) -> Float:
    """Weights u of off-support pairs as a V x m matrix: ``-u`` there, and their sum at the first token on support."""
    j, v = np.nonzero(~S.T)
    A = np.zeros(S.shape)
    A[v, j] = -u
    A[np.argmax(S, axis=0), np.arange(S.shape[1])] -= A.sum(axis=0)
    return A


def equality_multipliers(S: Bool, weights: Float) -> Float:
    """Weights of ``equality_rows`` as a V x m matrix: each adds to one token and subtracts from the next."""
    plus, minus, context = in_support_pairs(S)
    total = np.zeros(S.shape)
    total[plus, context] += weights
    total[minus, context] -= weights
    return total
