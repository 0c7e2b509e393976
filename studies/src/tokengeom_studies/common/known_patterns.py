"""Support patterns for which L_mm is known in closed form.

In each of them ``L_mm = S~ = (I - 11^T/V) S``, with these singular values:

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

from tokengeom.extending import Bool, Float, ProblemError, centre_columns


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
