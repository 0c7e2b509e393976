"""The data of every linear-model problem, checked once: supports, probabilities, weights, embeddings, names.

``S`` and ``P`` are V x m, ``pi`` has m entries, ``H`` is d x m with one column a context. Every problem and
solver behind this door may rely on: V >= 2, m >= 1, no empty support, finite embeddings, no zero column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.numerics import Float, x_log_x

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokengeom.numerics import Bool

MANY = 6


@dataclass(frozen=True, eq=False)
class LinearData:
    """Checked arrays, and how to call a context and a token in a sentence."""

    S: Bool
    P: Float
    pi: Float
    H: Float
    context_names: Sequence[str] | None = None
    token_names: Sequence[str] | None = None

    @property
    def V(self) -> int:
        """Size of the vocabulary."""
        return int(self.S.shape[0])

    @property
    def m(self) -> int:
        """Number of distinct contexts."""
        return int(self.S.shape[1])

    @property
    def d(self) -> int:
        """Dimension of the embeddings."""
        return int(self.H.shape[0])

    @property
    def entropy(self) -> float:
        """Entropy floor H in nats."""
        return -float(self.pi @ x_log_x(self.P).sum(axis=0))

    def context(self, j: int) -> str:
        """Name of a context: its index, and its text when known."""
        return f"context {j}" if self.context_names is None else f"context {j} {self.context_names[j]!r}"

    def token(self, v: int) -> str:
        """Name of a token: its index, and its text when known."""
        return f"token {v}" if self.token_names is None else f"token {v} {self.token_names[v]!r}"

    def contexts(self, indices: Sequence[int]) -> str:
        """Put a list of contexts in words, cut when long."""
        return _listing([self.context(j) for j in indices])

    def pairs(self, indices: Sequence[tuple[int, int]]) -> str:
        """Put a list of (context, token) pairs in words, cut when long."""
        return _listing([f"{self.token(v)} after {self.context(j)}" for j, v in indices])


def _listing(names: list[str]) -> str:
    shown = ", ".join(names[:MANY])
    return shown if len(names) <= MANY else f"{shown} and {len(names) - MANY} more"


def dense(matrix: Any) -> Float:
    """Make a float64 array from an array or a scipy sparse matrix."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)


def check_probabilities(P: Any, pi: Any) -> tuple[Bool, Float, Float]:
    """Supports, probabilities and weights from user input, or an error that names the context at fault."""
    probabilities = dense(P)
    if probabilities.ndim != 2:
        raise ProblemError(f"P must be a V x m matrix; got an array of shape {probabilities.shape}.")
    V, m = probabilities.shape
    if m == 0:
        raise ProblemError("the data must hold at least one context; got m=0. Count a longer text.")
    if V < 2:
        raise ProblemError(f"the vocabulary must hold at least 2 tokens, or nothing is left to predict; got V={V}.")
    if not np.all(np.isfinite(probabilities)) or probabilities.min() < 0:
        v, j = np.argwhere(~(probabilities >= 0) | ~np.isfinite(probabilities))[0]
        raise ProblemError(
            f"probabilities must be finite and at least 0; got "
            f"P[{v}, {j}]={probabilities[v, j]} (token {v}, context {j})."
        )
    total = probabilities.sum(axis=0)
    for j in np.flatnonzero(total <= 0)[:1]:
        raise ProblemError(
            f"every context must be followed by at least one token; context {j} has an empty support "
            f"(column sum {total[j]}). Drop the context or fix its counts."
        )
    for j in np.flatnonzero(np.abs(total - 1) > 1e-8)[:1]:
        raise ProblemError(f"every column of P must sum to 1; column {j} sums to {total[j]!r}. Pass counts instead.")
    return probabilities > 0, probabilities / total, _check_weights(pi, m)


def _check_weights(pi: Any, m: int) -> Float:
    weights = np.full(m, 1.0 / m) if pi is None else np.asarray(pi, dtype=np.float64)
    if weights.shape != (m,):
        raise ProblemError(f"pi must have one entry a context, shape ({m},); got shape {weights.shape}.")
    bad = np.flatnonzero(~(weights > 0) | ~np.isfinite(weights))
    if bad.size:
        raise ProblemError(f"every context's weight must be positive; got pi[{bad[0]}]={weights[bad[0]]}.")
    return np.asarray(weights / weights.sum())


def check_embeddings(H: Any, m: int) -> Float:
    """Embeddings as a d x m float64 array, or an error that names the shape, entry or column at fault."""
    try:
        embeddings = dense(H)
    except (TypeError, ValueError) as cause:
        raise ProblemError(f"embeddings must be a d x m array of numbers; got {type(H).__name__}: {cause}") from cause
    if embeddings.ndim != 2 or embeddings.shape[1] != m or embeddings.shape[0] == 0:
        hint = " They look transposed: pass H.T." if embeddings.ndim == 2 and embeddings.shape[0] == m else ""
        raise ProblemError(
            f"embeddings must have shape (d, m) with one column a context, here (d, {m}); "
            f"got shape {embeddings.shape}.{hint}"
        )
    bad = np.argwhere(~np.isfinite(embeddings))
    if bad.size:
        i, j = bad[0]
        raise ProblemError(
            f"embeddings must be finite; got H[{i}, {j}]={embeddings[i, j]} "
            f"(context {j}; {len(bad)} such entries in all)."
        )
    zero = np.flatnonzero(~embeddings.any(axis=0))
    if zero.size:
        raise ProblemError(
            f"no embedding may be zero, because the logits of its context would stay 0 whatever W is; column "
            f"{zero[0]} of H has norm 0.0 ({zero.size} such columns in all). Drop the context or embed it."
        )
    return embeddings


def check_duplicates(contexts: Any, H: Float) -> None:
    """Refuse two columns for the same context that carry different embeddings."""
    rows = np.asarray(contexts)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    representative = first[inverse.reshape(-1)]
    clash = np.flatnonzero(np.any(H[:, representative] != H, axis=0))
    if clash.size:
        j, i = int(clash[0]), int(representative[clash[0]])
        distance = float(np.linalg.norm(H[:, j] - H[:, i]))
        raise ProblemError(
            f"one context must have one embedding; contexts {i} and {j} are both {rows[j].tolist()} but "
            f"their embeddings are {distance:.3g} apart. Merge the two contexts, or give them "
            "the same column of H."
        )
