"""Instances of NTP-SVM and of NTP-SVM* with known answers, for tests, documentation and benchmarks.

`linear_catalogue` lists small instances of the linear model. `catalogue` lists support patterns for which L_mm is
known in closed form. In each of them ``L_mm = S~ = (I - 11^T/V) S``, with these singular values:

``all_subsets``      every support of size k once: V - 1 times ``sqrt C(V-2, k-1)`` [zhao2024]
``one_hot``          each single token, c contexts per token: V - 1 times ``sqrt c``. All tokens have equally many
                     contexts, so this is neural collapse
``disjoint_blocks``  B blocks of b tokens, c contexts per block: B - 1 times ``sqrt(b c)``
``nested``           ``{1}, {1,2}, ..., {1..V-1}``: ``1 / (2 sin(pi f / 2V))``, f = 1..V-1, since S~ is the
                     pseudo-inverse of first differences up to sign
``cyclic``           runs of k tokens on a circle: ``|sin(pi k f / V) / sin(pi f / V)|``, f = 1..V-1, for
                     those (V, k) where the polar factor of the circulant S~ is <= 0 off support
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb, sqrt

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Bool, Float, centre_columns
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


@dataclass(frozen=True)
class KnownInstance:
    """A support pattern (V x m) with its L_mm (V x m) and nonzero singular values, falling."""

    name: str
    S: Bool
    singular_values: Float

    @property
    def L_mm(self) -> Float:
        """The solution of NTP-SVM*: the proxy in all of these."""
        return centre_columns(self.S.astype(np.float64))

    @property
    def nuclear_norm(self) -> float:
        """Sum of the singular values."""
        return float(self.singular_values.sum())


def all_subsets(V: int, k: int) -> KnownInstance:
    """Every support of size k once; tokens form an equiangular tight frame."""
    _require(V >= 2 and 1 <= k < V, "1 <= k < V", V=V, k=k)
    S = np.zeros((V, comb(V, k)), dtype=np.bool_)
    for j, support in enumerate(combinations(range(V), k)):
        S[list(support), j] = True
    return KnownInstance(f"all {k}-subsets of {V}", S, np.full(V - 1, sqrt(comb(V - 2, k - 1))))


def one_hot(V: int, copies: int = 1) -> KnownInstance:
    """Each token is the only next token of ``copies`` contexts: balanced one-hot classification."""
    _require(V >= 2 and copies >= 1, "V >= 2 and copies >= 1", V=V, copies=copies)
    S = np.repeat(np.eye(V, dtype=np.bool_), copies, axis=1)
    return KnownInstance(f"one-hot {V} x {copies}", S, np.full(V - 1, sqrt(copies)))


def disjoint_blocks(blocks: int, size: int, copies: int = 1) -> KnownInstance:
    """Supports that split the vocabulary into equal blocks, each the support of ``copies`` contexts."""
    _require(
        blocks >= 2 and size >= 1 and copies >= 1,
        "blocks >= 2, size >= 1, copies >= 1",
        blocks=blocks, size=size, copies=copies,
    )  # fmt: skip
    S = np.kron(np.eye(blocks), np.ones((size, copies))) > 0
    return KnownInstance(f"{blocks} blocks of {size}", S, np.full(blocks - 1, sqrt(size * copies)))


def nested(V: int) -> KnownInstance:
    """Supports {1}, {1,2}, ..., {1..V-1}."""
    _require(V >= 2, "V >= 2", V=V)
    f = np.arange(1, V)
    S = np.triu(np.ones((V, V - 1), dtype=np.bool_))
    return KnownInstance(f"nested {V}", S, 1.0 / (2.0 * np.sin(np.pi * f / (2 * V))))


def cyclic(V: int, k: int) -> KnownInstance:
    """Runs of k neighbours on a circle of V tokens; refused where the proxy is not exact."""
    _require(V >= 2 and 1 <= k < V, "1 <= k < V", V=V, k=k)
    run = (np.arange(V) < k).astype(np.float64)
    spectrum = np.fft.fft(run)
    spectrum[0] = 0.0
    size = np.abs(spectrum)
    kept = size > 1e-9 * size.max()
    polar = np.fft.ifft(np.where(kept, spectrum / np.where(kept, size, 1.0), 0.0)).real
    if polar[k:].max() > 1e-10:
        raise ProblemError(
            f"The answer of a cyclic pattern is known where the proxy is exact; for V={V}, k={k} the polar "
            f"factor is {polar[k:].max():.1e} > 0 off support. Use k = 1, V - 1 or near V / 2, or solve it."
        )
    shifts = (np.arange(V)[:, None] - np.arange(V)[None, :]) % V
    return KnownInstance(f"cyclic {V}, {k}", shifts < k, np.sort(size[kept])[::-1])


def catalogue() -> tuple[KnownInstance, ...]:
    """One or two small instances of every family."""
    return (
        all_subsets(6, 2), all_subsets(5, 3), one_hot(7), one_hot(4, copies=3),
        disjoint_blocks(4, 3, copies=2), nested(9), cyclic(9, 8), cyclic(11, 5), cyclic(10, 5),
    )  # fmt: skip


def _require(holds: bool, rule: str, **got: int) -> None:
    if not holds:
        values = ", ".join(f"{name}={value}" for name, value in got.items())
        raise ProblemError(f"A built-in instance needs {rule}; got {values}. Change the sizes.")
