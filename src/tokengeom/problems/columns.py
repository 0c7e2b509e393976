"""Column-wise maps on V x m matrices that know the supports: centring, and projections on the margin cone.

The cone of logits that lie on the boundary of separability is, column by column,
``C = {L : L_zj = a_j for z in S_j, L_vj <= a_j for v not in S_j}``, and its dual cone is
``C* = {A : 1^T A = 0, A <= 0 off support}``, where the multipliers of every margin problem live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokengeom.numerics import Float

Bool = NDArray[np.bool_]


def centre_on(T: Bool, X: Float) -> Float:
    """Subtract from each column its mean over ``T_j`` and put zero elsewhere: an orthogonal projection."""
    inside = np.where(T, X, 0.0)
    mean = inside.sum(axis=0) / np.maximum(T.sum(axis=0), 1)
    return np.where(T, inside - mean, 0.0)


def cone_levels(X: Float, S: Bool, start: Float | None = None) -> tuple[Float, Bool]:
    """Levels ``a`` and active sets ``T`` of the projection of X on C: ``a_j`` is the mean of X over ``T_j``.

    ``a_j`` solves ``|S_j| (a - mean_in x) = sum_off (x_v - a)_+``, whose left minus right side is concave and
    increasing, so that Newton's method (the mean over the active set) climbs to the root after its first
    step, from any ``start``; it ends when the active set repeats.
    """
    a = np.sum(X, axis=0, where=S) / S.sum(axis=0) if start is None else start
    T = S | (a < X)
    for _ in range(X.shape[0] + 1):
        a = np.einsum("vj,vj->j", X, T.astype(np.float64)) / T.sum(axis=0)
        grown = S | (a < X)
        if np.array_equal(grown, T):
            break
        T = grown
    return a, T


def project_on_dual_cone(X: Float, S: Bool, start: Float | None = None) -> tuple[Float, Float]:
    """Nearest multipliers and their levels: the projection of X on C*, as ``X + P_C(-X)`` [Moreau]."""
    a, T = cone_levels(-X, S, start)
    return np.where(T, X + a, 0.0), a


def repair_multipliers(A: Float, S: Bool) -> Float:
    """Clip off-support entries at zero and restore the column sums on support: a member of C* near A."""
    clipped = np.where(S, A, np.minimum(A, 0.0))
    return np.where(S, clipped - clipped.sum(axis=0) / S.sum(axis=0), clipped)


def margins(L: Float, S: Bool) -> Float:
    """In-support mean minus each off-support logit; ``+inf`` on support. V x m."""
    level = np.where(S, L, 0.0).sum(axis=0) / S.sum(axis=0)
    return np.where(S, np.inf, level - L)


def in_support_spread(L: Float, S: Bool) -> float:
    """Largest distance of an in-support logit from its column's in-support mean; 0 when all are equal."""
    return float(np.max(np.abs(centre_on(S, L)), initial=0.0))
