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

import numpy as np
from scipy.integrate import RK45
from scipy.optimize import brentq
from scipy.sparse import csc_array

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float
from tokengeom.core.progress import AbstractStage
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
    *,
    head_start: float = 1.0,
    feature_start: float = 1.0,
    most: int = 20_000,
    stage: AbstractStage | None = None,
) -> tuple[Float, Float, int]:
    """W (V x d) and A (d x F) where the flow reaches a loss gap, for d = V + F, and the number of steps.

    ``most`` is the number of steps after which a loss gap counts as out of reach.
    """
    V, F = labels.V, Phi.shape[0]
    d = V + F
    require_memory(
        8 * _COPIES * d * d,
        f"The gradient flow of {V:,} tokens and {F:,} features",
        "Use optimizer='gd', whose replicates are narrower, or fewer contexts.",
    )
    start = np.concatenate([head_start * np.eye(V, d), feature_start * np.eye(F, d, V)])
    turned = Phi.T.tocsr()

    def parts(z: Float) -> tuple[Float, Float]:
        Z = z.reshape(d, d)
        return Z[:V], Z[V:]

    def logits(z: Float) -> Float:
        W, K = parts(z)
        return np.asarray(W @ (turned @ K).T)

    def slope(_: float, z: Float) -> Float:
        W, K = parts(z)
        X = -labels.gradient(logits(z)) @ turned
        return np.concatenate([X @ K, X.T @ W]).reshape(-1)

    def excess(z: Float) -> float:
        return labels.loss_gap(logits(z)) - loss_gap

    flow = RK45(slope, 0.0, start.reshape(-1), np.inf, rtol=TOLERANCE, atol=TOLERANCE * 1e-2)
    steps, left = 0, excess(flow.y)
    while left > 0 and steps < most and flow.status == "running":
        flow.step()
        steps, left = steps + 1, excess(flow.y)
        if stage is not None:
            stage.advance(0.0, f"loss gap {left + loss_gap:.3g}")
    if not steps or not left <= 0:
        raise ProblemError(
            f"Gradient flow must reach the loss gap of {loss_gap:.3g} nats; after {steps:,} steps it is at "
            f"{left + loss_gap:.3g}. Ask for another loss gap, or allow more steps."
        )
    path = flow.dense_output()
    at = brentq(lambda t: excess(path(t)), flow.t_old, flow.t)
    W, K = parts(path(at))
    return np.array(W), np.array(K.T), steps
