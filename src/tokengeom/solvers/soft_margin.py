"""The smallest vector that separates a support from other points, with penalised slack: non-negative least squares.

``min_h ||h||^2 / 2 + (C/2) ||slack||^2   s.t.   G h + slack >= b``

where

``W``      points, V x r, one row per token; ``S`` the support, V booleans
``G, b``   rows ``a - w_v >= 1`` for v off support, and ``w_z - a >= 0``, ``a - w_z >= 0`` for z on support, with ``a``
           the mean point on support: margins of 1 over equal in-support logits
``C``      penalty of slack

Its dual ``min_{u >= 0} ||G^T u||^2 / 2 + ||u||^2 / (2C) - b^T u`` is one non-negative least squares problem, with
``h = G^T u`` [lawson1974, ch. 23]. Where the points can be separated, h tends to the separating vector of smallest norm
as C grows, with an error of order 1/C; where they cannot, h is the best compromise.
"""

from __future__ import annotations

import numpy as np

from tokengeom.core.numerics import Bool, Float

PENALTY = 1e4
"""C for points of unit size: hard margins to a few parts in ten thousand."""


def separating_vector(W: Float, S: Bool, penalty: float = PENALTY) -> Float:
    """The vector h (r) whose logits ``W h`` are equal on S and at least 1 lower elsewhere, as nearly as possible."""
    G, b = _constraints(W, S)
    scale = float(np.linalg.norm(G, axis=1).max(initial=0.0))
    if not (scale > 0 and b.any()):
        return np.zeros(W.shape[1])
    slack = np.sqrt(penalty)
    A = np.vstack([G.T / scale, np.eye(len(b)) / slack])
    from scipy.optimize import nnls

    u, _ = nnls(A, np.concatenate([np.zeros(W.shape[1]), slack * b]), maxiter=50 * len(b))
    return np.asarray(G.T @ u / scale**2)


def _constraints(W: Float, S: Bool) -> tuple[Float, Float]:
    inside, outside = W[S], W[~S]
    mean = inside.mean(axis=0)
    G = np.vstack([mean - outside, inside - mean, mean - inside])
    return G, np.concatenate([np.ones(len(outside)), np.zeros(2 * len(inside))])
