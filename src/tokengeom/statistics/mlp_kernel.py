"""The kernel of an MLP at its random start, in the limit of infinite width, and the features of contexts that have it.

``K(x, y) = (1/d) sum_k <dh_k(x)/dtheta, dh_k(y)/dtheta>``, divided by ``sqrt(K(x, x) K(y, y))``

for the MLP of `train`: the embeddings of L tokens side by side, hidden layers with GELU, 4 d wide, a linear map to the
d coordinates of h, a last norm. Embeddings of different tokens are orthogonal in the limit, so everything depends on
the share ``o`` of places at which x and y have the same token. With the variance 1/3 over the fan-in that weights start
with (the default of PyTorch), ``u`` and ``v`` normal with variance ``Q_l / 3`` and covariance ``S_l / 3``, where Q is S
at ``o = 1``::

    S_0 = o    S_(l+1) = E gelu(u) gelu(v)    D_(l+1) = E gelu'(u) gelu'(v)      forwards
    B_(n+1) = 1    B_l = B_(l+1) D_l / 3                                         backwards
    K = L S_0 B_1 + 4 sum_(l=1)^n S_l B_(l+1)                                    n hidden layers

Embeddings, biases and gains add terms that are smaller by a factor of the width, and the last norm divides by the same
number everywhere.

A kernel of the number n of equal places is that of these features: each set of k places with the tokens that stand
there, of weight ``w_k``. Two contexts share ``C(n, k)`` of them, so ``K(n) = sum_k C(n, k) w_k^2``, and the weights are
the k-th differences of K: ``w_k^2 = sum_i (-1)^(k-i) C(k, i) K(i)``. They are positive, since K is a power series in o
with positive coefficients.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from tokengeom.core.numerics import Float

WIDENING, LAYERS = 4, 2
"""Width of the hidden layers of the MLP over that of its embeddings, and their number unless another is given."""
_VARIANCE = 1.0 / 3.0
"""Variance of a weight at its start, times the number of inputs."""
_NODES = 48
"""Nodes of the quadrature in each direction; its error is below 1e-12."""
_DIGITS = 10
"""Digits of weights, the same on every machine."""


def kernel_of_overlaps(length: int, layers: int) -> Float:
    """``K`` of contexts of ``length`` tokens that have 0, 1, ..., ``length`` of them in common, place by place."""
    forwards, slopes = [np.arange(length + 1) / length], []
    for _ in range(layers):
        value, slope = _through_gelu(_VARIANCE * forwards[-1])
        forwards.append(value)
        slopes.append(slope)
    K, backwards = WIDENING * forwards[-1], np.ones(length + 1)
    for layer in reversed(range(layers)):
        backwards = backwards * _VARIANCE * slopes[layer]
        K = K + (WIDENING if layer else length) * forwards[layer] * backwards
    return np.asarray(K / K[-1])


@cache
def subset_weights(length: int, layers: int) -> tuple[float, ...]:
    """Weight of a set of 0, 1, ..., ``length`` places with their tokens."""
    K = kernel_of_overlaps(length, layers)
    squares = (sum((-1) ** (k - i) * math.comb(k, i) * K[i] for i in range(k + 1)) for k in range(length + 1))
    # Differences of high order are lost in rounding from about 1e-13 on: such features count nothing.
    return tuple(round(math.sqrt(max(float(square), 0.0)), _DIGITS) for square in squares)


def _through_gelu(covariances: Float) -> tuple[Float, Float]:
    """``E gelu(u) gelu(v)`` and ``E gelu'(u) gelu'(v)`` for each covariance of u and v; the last is their variance."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = np.outer(weights, weights) / weights.sum() ** 2
    ratio = np.minimum(covariances / covariances[-1], 1.0)[:, None, None]
    scale = math.sqrt(covariances[-1])
    u, v = scale * nodes[:, None], scale * (ratio * nodes[:, None] + np.sqrt(1.0 - ratio**2) * nodes[None, :])
    (value_u, slope_u), (value_v, slope_v) = _gelu(u), _gelu(v)
    return (weights * value_u * value_v).sum((1, 2)), (weights * slope_u * slope_v).sum((1, 2))


def _gelu(x: Float) -> tuple[Float, Float]:
    """``x F(x)`` with the distribution function F of the normal distribution, and its derivative."""
    below = 0.5 * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))
    return x * below, below + x * np.exp(-(x**2) / 2.0) / math.sqrt(2.0 * math.pi)
