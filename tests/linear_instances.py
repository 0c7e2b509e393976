"""Data of the linear model with known answers, and random ones, for tests and benchmarks.

`linear_catalogue` lists small instances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.linear_data import LinearData


@dataclass(frozen=True)
class LinearInstance:
    """Data of the linear model, what is known about them (``None`` where nothing is), and the source."""

    name: str
    data: LinearData
    separable: bool | None
    compatible: bool | None
    norm: float | None
    source: str


def embeddings_at(degrees: tuple[float, ...]) -> Float:
    """Unit embeddings in the plane at the given angles, 2 x m."""
    angles = np.deg2rad(np.asarray(degrees))
    # The cosine of 90 degrees must be 0, not 6e-17.
    return np.round(np.stack([np.cos(angles), np.sin(angles)]), 15)


def supports_of(sets: list[list[int]], V: int) -> Bool:
    """V x m support pattern from lists of token indices."""
    S = np.zeros((V, len(sets)), dtype=bool)
    for j, tokens in enumerate(sets):
        S[tokens, j] = True
    return S


def plane(degrees: tuple[float, float, float], P: Float | None = None) -> LinearData:
    """The 2-D setting of docs/theory.md 6.2: V=5, m=3, supports {2,3,4}, {1,2,5}, {1,4,5} counted from 1."""
    S = supports_of([[1, 2, 3], [0, 1, 4], [0, 3, 4]], V=5)
    probabilities = S / 3.0 if P is None else P
    return LinearData(S, probabilities, np.full(3, 1 / 3), embeddings_at(degrees))


SEPARABLE_ANGLES: tuple[tuple[float, float, float], ...] = (
    (90, 210, 330),
    (90, 200, 340),
    (60, 160, 280),
    (90, 225, 315),
)
BLOCKED_ANGLES: tuple[tuple[float, float, float], ...] = ((0, 90, 180), (30, 90, 150), (90, 180, 0))


def one_hot_orthonormal(V: int) -> LinearData:
    """One context per token, with orthonormal embeddings: ``W_mm = I - 11^T/V`` (neural collapse)."""
    S = np.eye(V, dtype=bool)
    return LinearData(S, S.astype(np.float64), np.full(V, 1 / V), np.eye(V))


def overparameterised(seed: int, V: int = 10, d: int = 60, m: int = 50, size: int = 6, n: int = 5000) -> LinearData:
    """A draw of docs/theory.md 6.1: supports of one size, Dirichlet(1) probabilities, Gaussian embeddings.

    The weights are the shares of n contexts that are drawn uniformly.
    """
    rng = np.random.default_rng(seed)
    S = np.zeros((V, m), dtype=bool)
    P = np.zeros((V, m))
    for j in range(m):
        tokens = rng.choice(V, size=size, replace=False)
        S[tokens, j] = True
        P[tokens, j] = rng.dirichlet(np.ones(size))
    pi = rng.multinomial(n - m, np.full(m, 1 / m)) + 1.0
    return LinearData(S, P, pi / pi.sum(), rng.standard_normal((d, m)))


def clusters(V: int = 10, d: int = 25, per_token: int = 50, spread: float = 0.1, seed: int = 0) -> LinearData:
    """One-hot data: Gaussian clusters around one random unit vector per token, ``per_token`` contexts each."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((d, V))
    centres /= np.linalg.norm(centres, axis=0)
    label = np.repeat(np.arange(V), per_token)
    S = np.arange(V)[:, None] == label
    H = centres[:, label] + spread * rng.standard_normal((d, V * per_token))
    return LinearData(S, S.astype(np.float64), np.full(V * per_token, 1 / (V * per_token)), H)


def linear_catalogue() -> list[LinearInstance]:
    """Every small instance of the linear model with a known answer."""
    source = "docs/theory.md section 2"
    instances = [LinearInstance(f"plane {a}", plane(a), True, True, None, source) for a in SEPARABLE_ANGLES]
    instances += [LinearInstance(f"plane {a}", plane(a), False, True, None, source) for a in BLOCKED_ANGLES]
    instances += [
        LinearInstance(f"one-hot {V}", one_hot_orthonormal(V), True, True, float(np.sqrt(V - 1)), "neural collapse")
        for V in (2, 3, 7)
    ]
    full = LinearData(np.ones((3, 2), dtype=bool), np.full((3, 2), 1 / 3), np.full(2, 0.5), np.eye(2))
    instances.append(LinearInstance("full supports", full, True, True, 0.0, "no token is off support"))
    clash = LinearData(
        np.array([[True, True], [True, True], [False, False]]),
        np.array([[0.5, 0.25], [0.5, 0.75], [0.0, 0.0]]),
        np.full(2, 0.5),
        np.array([[1.0, 2.0]]),
    )
    instances.append(LinearInstance("clash on a line", clash, True, False, None, "log 1 = w, log(1/3) = 2 w"))
    return instances
