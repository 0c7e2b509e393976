"""Least squares on a face, by conjugate gradients (CGLS).

::

    min_W ||Pi_T(W H) - B||_F,   least ||W||_F among the minimisers

where ``Pi_T`` centres each column on its set ``T_j`` (V x m), ``B`` (V x m) is in its range, ``H`` is d x m
and W is V x d. With ``T = S`` and ``B = L_in`` this is the compatibility system: W is then W*, and the
residual, if it is not zero, refutes compatibility. With B a matrix of multipliers on T, the residual is the
nearest B' with ``B' H^T = 0``. Steps are combinations of residuals, so that ``W = Y H^T`` with Y in the range
of ``Pi_T``: the dual answer comes for free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.numerics import Bool
from tokengeom.problems.supports import centre_on

if TYPE_CHECKING:
    from tokengeom.numerics import Float


@dataclass(frozen=True)
class FaceFit:
    """Minimiser ``W`` (V x d), residual ``B - Pi_T(W H)``, and ``Y`` with ``W = Y H^T`` (both V x m)."""

    W: Float
    residual: Float
    Y: Float
    iterations: int


def fit_on_face(
    T: Bool, B: Float, H: Float, tolerance: float = 1e-14, max_iterations: int = 2000, restarts: int = 3
) -> FaceFit:
    """Run until the gradient ``residual H^T`` is ``tolerance`` of what it would be without cancellation.

    Restarts from the true residual when the recursion has drifted from it.
    """
    W, Y = np.zeros((B.shape[0], H.shape[0])), np.zeros(B.shape)
    lengths = np.linalg.norm(H, axis=0)
    # Below rounding of B itself a residual is zero, and its direction means nothing.
    floor = 1e-15 * float(np.linalg.norm(B, axis=0) @ lengths)
    done = 0
    for _ in range(restarts):
        residual = B - centre_on(T, W @ H)
        if _stationary(residual, residual @ H.T, lengths, tolerance, floor):
            break
        W, Y, used = _run(T, residual, H, W, Y, (tolerance, floor), max_iterations)
        done += used
    return FaceFit(W, B - centre_on(T, W @ H), Y, done)


def _stationary(residual: Float, gradient: Float, lengths: Float, tolerance: float, floor: float) -> bool:
    uncancelled = float(np.linalg.norm(residual, axis=0) @ lengths)
    return float(np.linalg.norm(gradient)) <= max(tolerance * uncancelled, floor)


def _run(
    T: Bool, residual: Float, H: Float, W: Float, Y: Float, limits: tuple[float, float], max_iterations: int
) -> tuple[Float, Float, int]:
    lengths = np.linalg.norm(H, axis=0)
    gradient, source = residual @ H.T, residual
    direction, size = gradient, float(np.vdot(gradient, gradient))
    # What is left below this is rounding that no context sees.
    unseen = 1e-30 * float(np.vdot(H, H))
    iteration = 0
    while iteration < max_iterations and size > 0.0:
        iteration += 1
        image = centre_on(T, direction @ H)
        seen = float(np.vdot(image, image))
        if seen <= unseen * float(np.vdot(direction, direction)):
            break
        length = size / seen
        W, Y = W + length * direction, Y + length * source
        residual = residual - length * image
        gradient = residual @ H.T
        if _stationary(residual, gradient, lengths, *limits):
            break
        smaller = float(np.vdot(gradient, gradient))
        direction, source = gradient + (smaller / size) * direction, residual + (smaller / size) * source
        size = smaller
    return W, Y, iteration
