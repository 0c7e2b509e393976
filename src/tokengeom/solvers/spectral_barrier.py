"""The margin problem in the spectral norm, by Newton's method along a central path.

::

    max g  s.t.  ||W||_2 <= 1,  in-support logits equal,  margin_jv(W) >= g

in coordinates w of the decoders with equal in-support logits (a basis of dimension at most V r), with the
barrier

::

    phi_t(w, g) = -t g - log det(I - W W^T) - sum_jv log(margin_jv(w) - g)

``W = 0, g = -1`` is inside, whether or not the data are separable. With ``M = (I - W W^T)^{-1}``, ``N = (I -
W^T W)^{-1}`` and ``B = M W`` the log-determinant has gradient ``2 B`` and second derivative ``2 tr(M X N X^T)
+ 2 tr(B X^T B X^T)`` along X. On the path the multipliers of the pairs are ``1 / (t (margin - g))``, ``A H^T
= 2 B / t``, and the gap is ``(V + pairs) / t`` [boyd2004, 11.2].
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tokengeom.errors import ResourceError
from tokengeom.numerics import Float
from tokengeom.problems.base import Solution
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.solvers.least_distance import equality_rows, margin_rows, multipliers_of_pairs, null_space
from tokengeom.solvers.ntp_svm import orthonormal_factor

MOST_UNKNOWNS = 2000
GROWTH = 12.0


@dataclass(frozen=True)
class _Frame:
    """Basis of the decoders with equal in-support logits, and the margins as rows on its coordinates."""

    basis: Float
    rows: Float
    shape: tuple[int, int]

    def decoder(self, w: Float) -> Float:
        return np.reshape(self.basis @ w, self.shape)

    def slack(self, w: Float, g: float) -> Float:
        return np.asarray(self.rows @ w - g)


def solve_spectral_margin(problem: MarginProblem, tolerance: float = 1e-7) -> Solution[Float, Float]:
    """The solution for separable data, to a relative gap of about ``tolerance``."""
    began = time.perf_counter()
    R, U = orthonormal_factor(problem.H)
    shape = (problem.S.shape[0], R.shape[0])
    if shape[0] * shape[1] > MOST_UNKNOWNS:
        raise ResourceError(
            f"The spectral-norm solver needs V * rank(H) <= {MOST_UNKNOWNS}; got {shape[0]} * {shape[1]}. "
            "Use the Frobenius, max or sum norm, or fewer contexts."
        )
    scale = float(np.max(np.linalg.norm(R, axis=0)))
    basis = null_space(equality_rows(problem.S, R), shape[0] * shape[1])
    frame = _Frame(basis, margin_rows(problem.S, R) @ basis / scale, shape)
    w, A, steps = _follow(problem, frame, R, scale, tolerance)
    decoder = frame.decoder(w) @ U.T / (float(np.min(frame.rows @ w)) * scale)
    certificate = problem.certify(decoder, A)
    done = certificate.holds(10.0 * tolerance)
    status = "optimal" if done else "stopped by rounding: the certificate says how close it came"
    return Solution(decoder, A, certificate, status, steps, time.perf_counter() - began, done)


def _follow(
    problem: MarginProblem, frame: _Frame, R: Float, scale: float, tolerance: float
) -> tuple[Float, Float, int]:
    """The last point of the central path: its gap is ``tolerance``, or rounding made the next one worse."""
    parameter = sum(frame.shape) + len(frame.rows)
    w, g, t, steps = np.zeros(frame.rows.shape[1]), -1.0, float(parameter), 0
    bound, A = 0.0, np.zeros(problem.S.shape)
    while t < 1e18:
        w, g, used = _centre(frame, w, g, t)
        steps += used
        if g > 0:
            W = frame.decoder(w)
            found = multipliers_of_pairs(
                problem.S, R, 1.0 / (t * frame.slack(w, g)), 2.0 * scale / t * _resolvent(W) @ W
            )
            proven = MarginProblem(problem.S, R, problem.norm).bound(found)
            if proven <= bound:
                return w, A, steps
            bound, A = proven, found
            value = problem.norm.value(W) / (float(np.min(frame.rows @ w)) * scale)
            if value - bound <= tolerance * value:
                return w, A, steps
        t *= GROWTH
    raise ResourceError(f"The spectral margin must be positive; it is below {parameter / t:.1g}. Check separability.")


def _centre(frame: _Frame, w: Float, g: float, t: float) -> tuple[Float, float, int]:
    value = _barrier(frame, w, g, t)
    for step in range(1, 40):
        gradient, hessian = _derivatives(frame, w, g, t)
        move = _solve(hessian, -gradient)
        decrement = -float(gradient @ move)
        length = 1.0
        while length > 1e-8:
            tried = _barrier(frame, w + length * move[:-1], g + length * float(move[-1]), t)
            if tried <= value - 0.05 * length * decrement + 1e-13 * abs(value):
                break
            length *= 0.6
        else:
            return w, g, step
        w, g, value = w + length * move[:-1], g + length * float(move[-1]), tried
        if decrement < 1e-7:
            break
    return w, g, step


def _solve(hessian: Float, right: Float) -> Float:
    """Solution after scaling to unit diagonal: active constraints spread the diagonal over many orders."""
    scaling = 1.0 / np.sqrt(np.diagonal(hessian))
    scaled = hessian * scaling * scaling[:, None]
    scaled[np.diag_indices_from(scaled)] += 1e-15 * len(scaled)
    try:
        return np.asarray(scaling * cho_solve(cho_factor(scaled), scaling * right))
    except LinAlgError:
        return np.asarray(scaling * np.linalg.lstsq(scaled, scaling * right, rcond=1e-15)[0])


def _resolvent(W: Float) -> Float:
    return np.asarray(np.linalg.inv(np.eye(len(W)) - W @ W.T))


def _barrier(frame: _Frame, w: Float, g: float, t: float) -> float:
    slack = frame.slack(w, g)
    W = frame.decoder(w)
    inner = np.eye(len(W)) - W @ W.T
    sign, logarithm = np.linalg.slogdet(inner)
    if np.min(slack) <= 0 or sign <= 0 or np.linalg.norm(W, 2) >= 1:
        return np.inf
    return float(-t * g - logarithm - np.sum(np.log(slack)))


def _derivatives(frame: _Frame, w: Float, g: float, t: float) -> tuple[Float, Float]:
    W = frame.decoder(w)
    M = _resolvent(W)
    B = M @ W
    N = np.eye(W.shape[1]) + W.T @ B
    second = 2.0 * (np.einsum("ab,ij->aibj", M, N) + np.einsum("bi,aj->aibj", B, B))
    second = second.reshape(W.size, W.size)
    inverse = 1.0 / frame.slack(w, g)
    rows = frame.rows * inverse[:, None]
    size = len(w)
    hessian = np.empty((size + 1, size + 1))
    hessian[:size, :size] = frame.basis.T @ second @ frame.basis + rows.T @ rows
    hessian[:size, size] = hessian[size, :size] = -(rows.T @ inverse)
    hessian[size, size] = float(inverse @ inverse)
    gradient = np.append(frame.basis.T @ (2.0 * B).ravel() - frame.rows.T @ inverse, -t + float(inverse.sum()))
    return gradient, hessian
