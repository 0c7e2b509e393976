"""Conjugate gradients, for symmetric systems and for least squares, and the systems on a face that they solve.

::

    M x = b           residual r = b - M x,    gradient g = r,        curvature <p, M p>
    min ||A x - b||   residual r = b - A x,    gradient g = A^T r,    curvature ||A p||^2

Least squares are solved by CGLS: the same recurrences on the normal equations, with the gradient computed from the
residual each time. Steps are combinations of gradients, so ``x = A^T y`` with y the same combination of residuals: a
dual answer at no cost.

A face T is a V x m set of pairs (supports and active pairs). With ``Pi_T`` the centring of each column on ``T_j`` and
H the embeddings, d x m, the two problems on it are

::

    fit_on_face     min_W ||Pi_T(W H) - B||_F,  least ||W||_F among the minimisers,  B in the range of Pi_T
    solve_on_face   Pi_T(A H^T H) = Pi_T(S)  for A in the range of Pi_T

With ``T = S`` and ``B = L_in`` the fit is the compatibility system: W is W_star, and a residual that is not 0 refutes
compatibility. With B a matrix of multipliers on T, the residual is the nearest B' with ``B' H^T = 0``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.supports import centre_on

Map = Callable[[Float], Float]


@dataclass(frozen=True)
class Combination:
    """The step ``x`` from the start, ``y`` with ``x = A^T y`` (x itself for a symmetric system), and the iterations."""

    x: Float
    y: Float
    iterations: int


def conjugate_gradients(
    image: Map,
    residual: Float,
    *,
    transpose: Map | None = None,
    stop: Callable[[Float, Float], bool],
    flat: float,
    max_iterations: int,
) -> Combination:
    """Solve ``M x = residual``, or minimise ``||A x - residual||`` where ``transpose`` is given.

    Parameters
    ----------
    image
        ``x -> M x`` or ``x -> A x``.
    transpose
        ``r -> A^T r``; None for a symmetric system.
    stop
        Whether to stop, from residual and gradient.
    flat
        Curvature along a unit direction below which the direction is in the null space, up to rounding.
    """
    symmetric = transpose is None
    gradient = residual if transpose is None else transpose(residual)
    x, y = np.zeros(gradient.shape), np.zeros(residual.shape)
    direction, source = gradient, residual
    size, iterations, least = float(np.vdot(gradient, gradient)), 0, float(np.linalg.norm(residual))
    while iterations < max_iterations and not stop(residual, gradient):
        moved = image(direction)
        curvature = float(np.vdot(direction if symmetric else moved, moved))
        if curvature <= flat * float(np.vdot(direction, direction)):
            break
        iterations += 1
        length = size / curvature
        x, residual = x + length * direction, residual - length * moved
        gradient = residual if transpose is None else transpose(residual)
        smaller = float(np.vdot(gradient, gradient))
        direction = gradient + (smaller / size) * direction
        if not symmetric:
            y, source = y + length * source, residual + (smaller / size) * source
            # In exact arithmetic the residual of least squares never grows: past the last correct digit it does.
            norm = float(np.linalg.norm(residual))
            if norm > 2.0 * least:
                break
            least = min(least, norm)
        size = smaller
    return Combination(x, x if symmetric else y, iterations)


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
    """Least squares on a face, until the gradient is ``tolerance`` of what it would be without cancellation.

    Restarts from the true residual remove the rounding that the recurrences collect.
    """
    W, Y, iterations = np.zeros((B.shape[0], H.shape[0])), np.zeros(B.shape), 0
    lengths = np.linalg.norm(H, axis=0)
    # A residual below the rounding of B itself is 0, and its direction means nothing.
    floor = 1e-15 * float(np.linalg.norm(B, axis=0) @ lengths)

    def stationary(residual: Float, gradient: Float) -> bool:
        uncancelled = float(np.linalg.norm(residual, axis=0) @ lengths)
        return float(np.linalg.norm(gradient)) <= max(tolerance * uncancelled, floor)

    for _ in range(restarts):
        step = conjugate_gradients(
            lambda X: centre_on(T, X @ H),
            B - centre_on(T, W @ H),
            transpose=lambda residual: np.asarray(residual @ H.T),
            stop=stationary,
            flat=1e-30 * float(np.vdot(H, H)),
            max_iterations=max_iterations,
        )
        if step.iterations == 0:
            break
        W, Y, iterations = W + step.x, Y + step.y, iterations + step.iterations
    return FaceFit(W, B - centre_on(T, W @ H), Y, iterations)


def solve_on_face(T: Bool, S: Bool, H: Float, start: Float, tolerance: float, max_iterations: int = 150) -> Float:
    """Multipliers A in the range of ``Pi_T`` with ``Pi_T(A H^T H) = Pi_T(S)`` up to ``tolerance`` per entry.

    On a face with dependent constraints the residual may be a direction that the embeddings do not see; it is left.
    """

    def image(A: Float) -> Float:
        return centre_on(T, (A @ H.T) @ H)

    A = centre_on(T, start)
    step = conjugate_gradients(
        image,
        centre_on(T, S.astype(np.float64)) - image(A),
        stop=lambda residual, _: bool(np.max(np.abs(residual)) <= tolerance),
        flat=1e-15 * float(np.vdot(H, H)),
        max_iterations=max_iterations,
    )
    return A + step.x
