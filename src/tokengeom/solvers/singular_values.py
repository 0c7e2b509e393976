"""The spectral and the nuclear norm as functions of singular values: proximal maps and their derivatives.

With ``B = U diag(s) V^T``, Moreau's decomposition splits B into the proximal point of a norm and the projection on the
ball of radius c of its dual norm::

    B = prox_{c ||.||}(B) + P_c(B),    P_c(B) = U diag(g) V^T

    nuclear norm    g = min(s, c)          projection on the spectral-norm ball
    spectral norm   g = (s - theta)_+      projection on the nuclear-norm ball, theta >= 0 such that sum g <= c

The derivative of ``P_c`` along X acts on ``E = U^T X V`` [chen2016]: the symmetric part of E is multiplied by ``(g_i -
g_j) / (s_i - s_j)``, the skew part by ``(g_i + g_j) / (s_i + s_j)``, and the part of X outside the span of U or V by
``g_i / s_i``. All factors lie in [0, 1]. In the spectral norm theta moves too, which subtracts the mean from the
diagonal of E over ``g > 0``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tokengeom.core.numerics import Float

Map = Callable[[Float], Float]


def project_on_simplex(s: Float, radius: float) -> Float:
    """The nearest point to s >= 0 with non-negative entries whose sum is at most ``radius``."""
    if float(s.sum()) <= radius:
        return s
    falling = np.sort(s)[::-1]
    theta = (np.cumsum(falling) - radius) / np.arange(1, len(s) + 1)
    # At least the largest entry is positive, even where rounding hides it.
    last = max(int(np.count_nonzero(falling > theta)), 1) - 1
    return np.asarray(np.maximum(s - theta[last], 0.0))


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A V x r matrix with singular triplets ``U, s, Vt``, and the singular values ``g`` of its projection.

    ``free``
        Whether ``g_i`` moves with ``s_i``.
    ``is_capped``
        Whether the sum of g is fixed, so that theta moves as well.
    """

    U: Float
    s: Float
    Vt: Float
    g: Float
    free: Float
    is_capped: bool

    @staticmethod
    def of(B: Float, norm: str, c: float) -> Shrunk:
        """The decomposition of B for the proximal map of ``c ||.||``, in the nuclear or the spectral norm."""
        U, s, Vt = np.linalg.svd(B, full_matrices=False)
        if norm == "nuclear":
            return Shrunk(U, s, Vt, np.minimum(s, c), (s < c).astype(np.float64), False)
        g = project_on_simplex(s, c)
        return Shrunk(U, s, Vt, g, (g > 0).astype(np.float64), bool(s.sum() > c))

    @property
    def proximal(self) -> Float:
        """The proximal point of B."""
        return np.asarray((self.U * (self.s - self.g)) @ self.Vt)

    @property
    def projection(self) -> Float:
        """The projection of B on the ball of the dual norm."""
        return np.asarray((self.U * self.g) @ self.Vt)

    def derivative(self) -> Map:
        """The derivative of the projection: a symmetric linear map on V x r matrices, between 0 and the identity."""
        U, Vt = self.U, self.Vt
        even, odd, outside = self._factors()
        is_tall = U.shape[0] >= Vt.shape[1]
        diagonal = np.arange(len(self.s))
        weights = self.free / max(float(self.free.sum()), 1.0)

        def apply(X: Float) -> Float:
            half = X @ Vt.T if is_tall else U.T @ X
            E = U.T @ half if is_tall else half @ Vt.T
            inside = even * (0.5 * (E + E.T)) + odd * (0.5 * (E - E.T))
            if self.is_capped:
                inside[diagonal, diagonal] -= self.free * float(weights @ E[diagonal, diagonal])
            if is_tall:
                return np.asarray((U @ inside + (half - U @ E) * outside) @ Vt)
            return np.asarray(U @ (inside @ Vt + outside[:, None] * (half - E @ Vt)))

        return apply

    def _factors(self) -> tuple[Float, Float, Float]:
        """Factors of the symmetric part, of the skew part, and of what lies outside the span of U or V."""
        s, g = self.s, self.g
        apart = s[:, None] - s
        equal = np.abs(apart) <= 1e-14 * float(s[0])
        even = (g[:, None] - g) / np.where(equal, 1.0, apart)
        even = np.clip(np.where(equal, self.free[:, None] * self.free, even), 0.0, 1.0)
        total = s[:, None] + s
        odd = np.where(total > 0, (g[:, None] + g) / np.where(total > 0, total, 1.0), 1.0)
        return even, odd, np.where(s > 0, g / np.where(s > 0, s, 1.0), 1.0)
