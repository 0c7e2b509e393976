"""The gamma_2 norm of a given matrix, between two proven bounds.

``gamma_2(L) = min_{L = W H} max_i ||w_i|| max_j ||h_j|| = max_{r, c} ||diag(r) L diag(c)||_*``,   ``||r|| = ||c|| = 1``

Weights ``r^2`` and ``c^2`` are multiplied by a power of the squared norms of the rows and columns of the factors that
belong to them, until both sides meet. For logits, whose columns may be shifted by a constant each, the norm is
that of the best shift: ``min_b gamma_2(L - 1 b^T)``, which for given r is ``b = L^T r^2``.

Both bounds hold in spite of rounding, with ``X = diag(r) L diag(c) = U diag(s) V^T``:

* from above, for any W and H: ``gamma_2(L) <= max_i ||w_i|| max_j ||h_j|| + gamma_2(L - W H)``, and the gamma_2 norm of
  the rest is at most its largest row norm and its largest column norm;
* from below, for any G: ``gamma_2(L) >= <G, L> / gamma_2*(G)`` with ``gamma_2*(G) <= ||diag(1/r) G diag(1/c)||_2``.
  With ``G = diag(r) U V^T diag(c)`` this is ``<U V^T, X> / ||U V^T||_2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float, blas_threads_for
from tokengeom.problems.backend import UNIT, Array, Backend
from tokengeom.problems.gamma2 import MaxNormFactors
from tokengeom.solvers.gamma2_admm import SMALLEST_WEIGHT
from tokengeom.solvers.gamma2_factors import Triplets

POWER = 1.5
"""Power of the squared norms by which weights are multiplied in one iteration; with 2 the weights oscillate."""
ORTHOGONAL = 1e-6
"""Singular values below this share of the largest are left out of the lower bound."""


def gamma2_norm(
    L: ArrayLike,
    tolerance: float = 1e-3,
    *,
    shift: bool = False,
    start: tuple[Float, Float] | None = None,
    max_iterations: int = 300,
) -> tuple[float, float]:
    """Lower and upper bound of ``gamma_2(L)``, within a relative ``tolerance`` unless iterations run out.

    Parameters
    ----------
    L
        A finite matrix.
    tolerance
        Relative distance of the bounds at which to stop.
    shift
        Whether a constant may be subtracted from each column: the norm is then the smallest over all shifts.
    start
        Weights ``r^2`` and ``c^2`` to start from, one per row and one per column; by default equal ones.
    max_iterations
        Number of iterations after which the bounds found so far are returned.
    """
    given = np.asarray(L, dtype=np.float64)
    if given.ndim != 2 or 0 in given.shape or not np.isfinite(given).all():
        raise ProblemError(f"A finite matrix is needed; got an array of shape {given.shape}.")
    size = float(np.abs(given).max())
    if size == 0.0 or (shift and not np.ptp(given, axis=0).any()):
        return 0.0, 0.0
    with blas_threads_for(*given.shape):
        roots = tuple(np.sqrt(weights) for weights in start or tuple(np.ones(k) for k in given.shape))
        bounds = balance(given / size, *roots, tolerance=tolerance, shift=shift, max_iterations=max_iterations)
    # The division rounds, by half a unit per entry: less than this share of the norm.
    slack = 2.0 * UNIT * max(given.shape) ** 0.5
    return bounds.low * size * (1.0 - slack), bounds.high * size * (1.0 + slack)


@final
@dataclass(frozen=True)
class Balanced:
    """Proven bounds of a gamma_2 norm, and the factors that attain the upper one."""

    low: float
    high: float
    factors: MaxNormFactors


def balance(
    L: Float, r: Float, c: Float, *, tolerance: float, shift: bool = False, max_iterations: int = 300
) -> Balanced:
    """Factors of L whose largest row times largest column is nearly the smallest, from weights r and c."""
    backend = Backend.on()
    low, high, best = 0.0, np.inf, MaxNormFactors(L, np.eye(L.shape[1]))
    for _ in range(max_iterations):
        r, c = _normalised(r), _normalised(c)
        centred = L - (r**2) @ L if shift else L
        X = r[:, None] * centred * c
        triplets = Triplets.of(backend, X)
        low = max(low, _lower(backend, X, triplets, r, c, shift))
        factors = triplets.factors(r, c)
        norm = _upper(centred, factors)
        if norm < high:
            high, best = norm, factors
        if high - low <= tolerance * high:
            break
        rows, columns = triplets.squared_norms(r, c)
        r, c = r * rows ** (0.5 * POWER), c * columns ** (0.5 * POWER)
    return Balanced(low, high, best)


def _normalised(root: Array) -> Array:
    """Square roots of weights with sum 1, none below its smallest share."""
    lifted = np.maximum(root / np.linalg.norm(root), (SMALLEST_WEIGHT / root.size) ** 0.5)
    return lifted / np.linalg.norm(lifted)


def _lower(backend: Backend, X: Array, triplets: Triplets, r: Array, c: Array, shift: bool) -> float:
    """``<G, L> / gamma_2*(G)``, rounded downwards.

    Where columns may be shifted, those of G must sum to 0: what is left of a sum is taken off in proportion to ``r^2``.
    """
    # Vectors of small singular values are not orthogonal when they come from a Gram matrix.
    kept = triplets.s > ORTHOGONAL * triplets.s.max()
    polar = triplets.U[:, kept] @ triplets.Vt[kept]
    size = sum(X.shape) + 8.0
    inner = float(np.vdot(polar, X)) - 2.0 * X.size * UNIT * float(np.vdot(abs(polar), abs(X)))
    # r and c are taken as divided by their norms, which are 1 up to rounding.
    norm = backend.proven_spectral_norm(polar) * (1.0 + 8.0 * size * UNIT) + 16.0 * UNIT * backend.norm(polar)
    if shift:
        excess = abs(r @ polar) + 2.0 * size * UNIT * (r @ abs(polar))
        norm += 1.1 * float(np.linalg.norm(excess))
        inner -= float(excess @ (abs(r @ X) + 4.0 * size * UNIT * (r @ abs(X))))
    return max(float(inner / norm), 0.0)


def _upper(L: Array, factors: MaxNormFactors) -> float:
    """The largest row times the largest column of the factors, and the norm of what they leave, rounded upwards."""
    largest = factors.norm(Backend.on())
    rest = abs(L - factors.logits)
    left = min(float(np.linalg.norm(rest, axis=1).max()), float(np.linalg.norm(rest, axis=0).max()))
    # An entry of the computed product is within k u |w_i| |h_j| of the exact one.
    k = factors.W.shape[1] + 4.0
    return float((largest * (1.0 + 2.0 * k * UNIT) + left) * (1.0 + 4.0 * sum(L.shape) * UNIT))
