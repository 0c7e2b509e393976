"""Gradient flow of tied features from a wide random start, which is not random.

::

    dW/dt = X A^T        dA/dt = W^T X        X = G Phi^T,  G = (P - softmax(W A Phi)) diag(pi)

The logits depend on W (V x d) and A (d x F) through inner products alone: with ``Z = (W; A^T)``, of V + F rows, and
``S = (0, X; X^T, 0)``, the flow is ``dZ/dt = S Z``, and the Gram matrix ``Q = Z Z^T`` obeys ``dQ/dt = S Q + Q S``, in
which Z does not occur. As d grows, the Gram matrix of a random start tends to

``Q(0) = diag(w^2 I, a^2 I)``    (entries of W with the variance ``w^2 / d``, those of A with ``a^2 / d``).

Any Z with this Gram matrix has the same flow of Q. So the limit of wide models is the flow of one model of width V + F
with ``W = w (I, 0)`` and ``A = a (0; I)``, and no replicates are needed. Restricted to ``L = W A Phi``, ``C = W W^T``
and ``K = Phi^T A^T A Phi`` it is, with ``M = Phi^T Phi``::

    dL = G K + C G M        dC = G L^T + L G^T        dK = M G^T L + L^T G M
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
from scipy.integrate import solve_ivp
from scipy.sparse import csc_array

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float
from tokengeom.core.resources import require_memory
from tokengeom.training.objective import SoftLabels

_COPIES = 12
"""States that the integrator holds, its stages among them."""
TOLERANCE = 1e-4
"""Relative error of a step."""


def flow_to(
    labels: SoftLabels,
    Phi: csc_array,
    loss_gap: float,
    starts: tuple[float, float],
    most: int,
    seen: Callable[[int, float], object],
) -> tuple[Float, Float, int]:
    """W (V x d) and A (d x F) where the flow reaches a loss gap, for d = V + F, and the steps to it, at most ``most``.

    ``starts`` are w and a; ``seen`` is told every step and its loss gap. The loss gap must be less than that of a
    uniform guess, where the flow begins.
    """
    V, F = labels.V, Phi.shape[0]
    d, (w, a), turned, steps = V + F, starts, Phi.T.tocsr(), count()
    require_memory(
        flow_bytes(V, F),
        f"The gradient flow of {V:,} tokens and {F:,} features",
        "Use optimizer='gd', whose replicates are narrower, or fewer contexts.",
    )

    def logits(z: Float) -> Float:
        Z = z.reshape(d, d)
        return np.asarray(Z[:V] @ (turned @ Z[V:]).T)

    def slope(_: float, z: Float) -> Float:
        Z, X = z.reshape(d, d), -labels.gradient(logits(z)) @ turned
        return np.concatenate([X @ Z[V:], X.T @ Z[:V]]).reshape(-1)

    def left(_: float, z: Float) -> float:
        gap, step = labels.loss_gap(logits(z)), next(steps)
        seen(step, gap)
        if step > most:
            raise ProblemError(
                f"Gradient flow must reach the loss gap of {loss_gap:.3g} nats; after {most:,} steps it is at "
                f"{gap:.3g}. Ask for a larger loss gap, or allow more steps."
            )
        return gap - loss_gap

    left.terminal = True  # type: ignore[attr-defined]
    start = np.concatenate([w * np.eye(V, d), a * np.eye(F, d, V)]).reshape(-1)
    # Without times to evaluate at, no state but that of the event is kept.
    done = solve_ivp(slope, (0.0, np.inf), start, t_eval=[], events=left, rtol=TOLERANCE, atol=1e-2 * TOLERANCE)
    Z = done.y_events[0][0].reshape(d, d)
    return np.array(Z[:V]), np.array(Z[V:].T), done.nfev // 6


def flow_bytes(V: int, F: int) -> int:
    """Bytes that the flow of V tokens and F features holds at its peak."""
    return 8 * _COPIES * (V + F) ** 2
