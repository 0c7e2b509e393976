"""The proximal map of the regularised loss on a CPU, compiled.

For each column j it solves for u (V') and the level t such that, with ``g = base e^u`` and ``base = P`` on support, 1
elsewhere::

    u_z + kappa_z (g_z - P_z) = shift_z - t        for every token z
    sum_z a_z (g_z - P_z) = 0                       (probabilities sum to 1)

by Newton's method on both at once: the first equation is eliminated for each z, which leaves one number per column.
Columns do not depend on each other: each stays in a core's cache until it has converged, and the result does not
depend on the number of cores.

The exponential is computed here, because a loop with a call to the C library is not vectorised: ``x = k log 2 + r``
with a whole k, ``e^x = 2^k (1 + q)`` and ``e^x - 1 = 2^k q + (2^k - 1)`` with ``q = e^r - 1`` from its series up to
``r^12`` (|r| <= 0.35, error below 2e-16). Both are accurate to a few units in the last digit, also where small.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import numpy as np
from numba import njit, prange

from tokengeom.solvers.logit_admm import EXACT_STEPS, LARGEST_LEVEL_STEP, LARGEST_RISE, NEWTON_STEPS, ROOT_TOLERANCE

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROUND = 6755399441055744.0
"""1.5 x 2^52: adding it rounds a number to a whole one, which is then in the lowest bits."""


_ELEMENTWISE = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
_REDUCTION = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
# Each function is one loop over few arrays: a loop over many is not vectorised, since they might overlap.


@njit(**_ELEMENTWISE)
def _exponentials(u, growth, extra):
    """``e^u`` and ``e^u - 1``."""
    for z in range(u.size):
        x = min(max(u[z], -700.0), 700.0)
        shifted = x * _LOG2_E + _ROUND
        k = shifted - _ROUND
        r = (x - k * _LN2_HIGH) - k * _LN2_LOW
        q = 1.0 / 39916800.0 + r * (1.0 / 479001600.0)
        q = 1.0 / 362880.0 + r * (1.0 / 3628800.0 + r * q)
        q = 1.0 / 5040.0 + r * (1.0 / 40320.0 + r * q)
        q = 1.0 / 120.0 + r * (1.0 / 720.0 + r * q)
        q = 1.0 / 6.0 + r * (1.0 / 24.0 + r * q)
        q = r + r * r * (0.5 + r * q)
        s = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)
        growth[z] = s * q + s
        extra[z] = s * q + (s - 1.0)


@njit(**_ELEMENTWISE)
def _on_support(P, growth, extra):
    """Times the base; off support ``base e^u - P`` is ``e^u`` itself."""
    for z in range(P.size):
        on = P[z] > 0.0
        extra[z] = P[z] * extra[z] if on else growth[z]
        growth[z] = P[z] * growth[z] if on else growth[z]


@njit(**_ELEMENTWISE)
def _residuals(u, shift, level, extra, kappa, residual):
    for z in range(u.size):
        residual[z] = u[z] + kappa[z] * extra[z] - (shift[z] - level)


@njit(**_ELEMENTWISE)
def _inverses(kappa, growth, inverse):
    for z in range(growth.size):
        inverse[z] = 1.0 / (1.0 + kappa[z] * growth[z])


@njit(**_REDUCTION)
def _rise(a, growth, extra, inverse, residual, most):
    """Change of the level that makes the probabilities sum to 1, to first order."""
    surplus = pull = 0.0
    for z in range(a.size):
        slope = a[z] * growth[z] * inverse[z]
        pull += slope
        surplus += a[z] * extra[z] - slope * residual[z]
    # Far below the root every exponential may be 0; the step is then cut.
    return min(max(surplus / max(pull, 1e-300), -most), most)


@njit(**_REDUCTION)
def _step(u, residual, inverse, rise):
    """Make the step, and return the size of its largest entry."""
    largest = 0.0
    for z in range(u.size):
        step = min(-(residual[z] + rise) * inverse[z], max(-0.5 * u[z], LARGEST_RISE))
        u[z] += step
        largest = max(largest, abs(step))
    return largest


@njit(cache=True, parallel=True, nogil=True, error_model="numpy")
def solve(shift, P, a, row, column, u, level, change):
    """Solve for u and level in place, from where they are; ``change`` becomes ``base e^u - P``.

    where
        shift           right-hand side, m' x V'
        P               probabilities, 0 off support, m' x V'
        a               tokens per row, V'
        row, column     ``kappa = row column^T``, V' and m'
        u, level        m' x V' and m'
    """
    m, V = shift.shape
    for j in prange(m):
        growth, residual, inverse, kappa = np.empty(V), np.empty(V), np.empty(V), row * column[j]
        extra, left, most = change[j], EXACT_STEPS + 1, LARGEST_LEVEL_STEP
        for _ in range(NEWTON_STEPS):
            _exponentials(u[j], growth, extra)
            _on_support(P[j], growth, extra)
            _residuals(u[j], shift[j], level[j], extra, kappa, residual)
            _inverses(kappa, growth, inverse)
            rise = _rise(a, growth, extra, inverse, residual, most)
            most = 2.0 * most if abs(rise) >= most else LARGEST_LEVEL_STEP
            largest = max(_step(u[j], residual, inverse, rise), abs(rise))
            level[j] += rise
            if left <= EXACT_STEPS or largest <= ROOT_TOLERANCE:
                left -= 1
            if left == 0:
                break
        _exponentials(u[j], growth, extra)
        _on_support(P[j], growth, extra)
