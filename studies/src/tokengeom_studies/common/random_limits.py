"""What random supports and random embeddings give in the limit of many contexts, as formulas.

**The proxy** (`proxy_limit`). Supports of k tokens are drawn uniformly, ``V, m -> infinity`` with ``density = k/V`` and
``V/m`` fixed. At the optimum of NTP-SVM* the logits L are both the singular-value threshold of a matrix R and the
projection on the constraints of a matrix T. With ``n`` the smaller and ``N`` the larger of V and m, the fixed point of
vector approximate message passing [rangan2019], used here as a heuristic and not as a proof, is::

    T_vj = tau z,  z ~ N(0, 1) independent of the supports
    L_vj = 1 - b on support,  min(T_vj, -b) off support,  b such that the mean of L is 0
    R    = (L - alpha T) / (1 - alpha),  alpha = share of entries of L below -b
    L    = the singular-value threshold of R at ``t sigma sqrt N``, sigma^2 the mean square of R

R has independent entries, so its singular values are ``sigma sqrt N s`` with s from the Marchenko-Pastur law of ratio
``n/N``. Two equations determine ``tau`` and ``t``: ``E[s (s - t)_+] = 1 - alpha`` (both maps together have divergence
1) and ``sigma^2 E[(s - t)_+^2] = E[L^2]``. Then ``||L_mm||_* = n sqrt(N) sigma E[(s - t)_+]`` and ``||S~||_* = n sqrt(N
density (1 - density)) E[s]``.

**Separability** (`separability_limit`). With Gaussian embeddings, ``W H`` runs over all V x m matrices whose rows lie
in a uniformly random d-dimensional subspace. For m -> infinity at fixed V, and by the symmetry of tokens, a member with
all margins positive exists when the dimension exceeds that of the polar cones [amelunxen2014]::

    d (V - 1) > sum_j (V - 1 - delta_j),   so   d*/m = (E|T| - 1) / (V - 1)

where ``delta_j`` is the statistical dimension of ``{x : 1^T x = 0, x_z = a on support, x_v <= a off support}``, and T
is the support together with the off-support tokens that the projection of a Gaussian vector on this cone raises to the
support's level. The spread of ``|T|`` gives the width of the transition. For V = 2 this is Cover's count: d*/m = 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from tokengeom.extending import Float, InputError, cone_levels

NODES = 2_000
"""Nodes of the quadrature over the Marchenko-Pastur law."""
TAUS = np.geomspace(1e-3, 30.0, 160)
"""Noise levels among which the root is bracketed; below them both equations hold trivially up to rounding."""
BATCH = 2_000_000


@dataclass(frozen=True)
class ProxyLimit:
    """The limit of random supports.

    ``excess``
        ``||S~||_* / ||L_mm||_* - 1``.
    ``rank``, ``effective_rank``
        Rank of L_mm and ``||L_mm||_*^2 / ||L_mm||_F^2``, as shares of the smaller of V and m.
    ``cosine``
        Cosine of L_mm and S~.
    ``positive``
        Share of positive entries off support in the polar factor of S~; each of them contradicts exactness.
    """

    excess: float
    rank: float
    effective_rank: float
    cosine: float
    positive: float


@dataclass(frozen=True)
class _State:
    """The fixed point's two matrices for one noise level, and by how much the second equation fails."""

    level: float
    mean_square: float
    sigma: float
    threshold: float
    kept: Float
    residual: float


def marchenko_pastur(ratio: float) -> tuple[Float, Float]:
    """Singular values and weights of a quadrature: those of an n x N matrix of variance 1/N, ``ratio = n/N <= 1``."""
    low, high = (1.0 - sqrt(ratio)) ** 2, (1.0 + sqrt(ratio)) ** 2
    angle = (np.arange(NODES) + 0.5) * np.pi / NODES
    squares = (low + high) / 2.0 + (high - low) / 2.0 * np.cos(angle)
    weights = np.sin(angle) ** 2 / squares
    return np.sqrt(squares), weights / weights.sum()


@lru_cache(maxsize=256)
def proxy_limit(density: float, ratio: float) -> ProxyLimit:
    """The limit for supports of ``density`` V tokens and ``ratio = V/m``; the same for ratio and 1/ratio."""
    if not (0.0 < density < 1.0 and ratio > 0.0):
        raise InputError(f"density must be in (0, 1) and ratio > 0; got density={density}, ratio={ratio}.")
    s, weights = marchenko_pastur(min(ratio, 1.0 / ratio))
    mean = float(weights @ s)
    positive = float(ndtr(-mean * sqrt(density / (1.0 - density) / (1.0 - mean**2))))
    residuals = [_state(tau, density, s, weights).residual for tau in TAUS]
    changes = [i for i in range(len(TAUS) - 1) if residuals[i] * residuals[i + 1] < 0.0]
    if not changes:
        # The root has fallen below the noise levels that rounding allows: the proxy is exact up to rounding.
        return ProxyLimit(0.0, 1.0, mean**2, 1.0, positive)
    last = changes[-1]
    tau = brentq(lambda x: _state(x, density, s, weights).residual, TAUS[last], TAUS[last + 1], xtol=1e-12)
    state = _state(tau, density, s, weights)
    size = float(weights @ state.kept)
    variance = density * (1.0 - density)
    return ProxyLimit(
        excess=sqrt(variance) * mean / (state.sigma * size) - 1.0,
        rank=float(weights @ (state.kept > 0.0)),
        effective_rank=size**2 / float(weights @ state.kept**2),
        cosine=density * state.level / sqrt(variance * state.mean_square),
        positive=positive,
    )


def _state(tau: float, density: float, s: Float, weights: Float) -> _State:
    off = 1.0 - density

    def mean_of_logits(b: float) -> float:
        return density * (1.0 - b) - off * (b + tau * (_normal(b / tau) - b / tau * float(ndtr(-b / tau))))

    b = float(brentq(mean_of_logits, -50.0 * (1.0 + tau), 1.0, xtol=1e-15))
    at, below = b / tau, float(ndtr(-b / tau))
    alpha = off * below
    squares = b * b * (1.0 - below) + tau * tau * (below + at * _normal(at))
    mean_square = density * (1.0 - b) ** 2 + off * squares
    sigma = sqrt(max(mean_square - (alpha * tau) ** 2, 0.0)) / (1.0 - alpha)

    def divergence(t: float) -> float:
        return float(weights @ (s * np.maximum(s - t, 0.0))) - (1.0 - alpha)

    threshold = 0.0 if divergence(0.0) <= 0.0 else float(brentq(divergence, 0.0, float(s.max()), xtol=1e-15))
    kept = np.maximum(s - threshold, 0.0)
    return _State(1.0 - b, mean_square, sigma, threshold, kept, mean_square - sigma**2 * float(weights @ kept**2))


def _normal(x: float) -> float:
    return float(np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi))


@dataclass(frozen=True)
class SeparabilityLimit:
    """``d*/m`` of random supports of one size in the limit of many contexts.

    ``ratio``
        The limit of ``d*/m``.
    ``width``
        Standard deviation of the smallest separating dimension, divided by ``sqrt m``.
    ``error``
        Standard error of ``ratio`` from the draws.
    """

    ratio: float
    width: float
    error: float


@lru_cache(maxsize=256)
def separability_limit(V: int, k: int, draws: int = 200_000) -> SeparabilityLimit:
    """The limit for V tokens and supports of k, from ``draws`` projections of Gaussian vectors."""
    if not 1 <= k < V:
        raise InputError(f"A support must have between 1 and V-1 tokens; got V={V}, k={k}.")
    rng = np.random.default_rng([V, k])
    sizes: list[Float] = []
    left = draws
    while left > 0:
        count = min(left, max(BATCH // V, 1))
        S = np.zeros((V, count), dtype=bool)
        S[:k] = True
        sizes.append(cone_levels(rng.standard_normal((V, count)), S)[1].sum(axis=0))
        left -= count
    pooled = np.concatenate(sizes) - 1.0
    spread = float(pooled.std(ddof=1)) / (V - 1)
    return SeparabilityLimit(float(pooled.mean()) / (V - 1), spread, spread / sqrt(draws))


def separability_estimate(V: int, k: int) -> float:
    """``d*/m`` without draws: the level a of a large vocabulary solves ``k a = (V - k) E(z - a)_+``."""

    def excess(a: float) -> float:
        return k * a - (V - k) * (_normal(a) - a * float(ndtr(-a)))

    a = float(brentq(excess, 0.0, 20.0))
    return float((k - 1 + (V - k) * ndtr(-a)) / (V - 1))
