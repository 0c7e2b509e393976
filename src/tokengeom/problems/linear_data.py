"""The data of the linear model: supports, probabilities, weights, fixed embeddings, and names for sentences.

where ``S`` and ``P`` are V x m, ``pi`` has m entries, and ``H`` is d x m with one column per context. Data made with
`LinearData.of` are checked: V >= 2, m >= 1, no empty support, finite embeddings, no embedding equal to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import check_duplicates, check_embeddings
from tokengeom.core.numerics import Bool, Float, Matrix, dense, x_log_x
from tokengeom.statistics.next_token import NextTokenStatistics

LONGEST_LIST = 6
"""Names that a sentence lists before it says how many more there are."""


class SoftLabels(Protocol):
    """Next-token probabilities with the share of each context, as `NextTokenStatistics` and `LinearData` have them."""

    @property
    def P(self) -> Matrix:
        """Probabilities of the next token, V x m, columns that sum to 1."""

    @property
    def pi(self) -> ArrayLike | None:
        """Share of each context, m; None for equal shares."""


@dataclass(frozen=True, eq=False)
class LinearData:
    """Supports S, probabilities P, weights pi and embeddings H, with names of contexts and tokens where known."""

    S: Bool
    P: Float
    pi: Float
    H: Float
    context_names: Sequence[str] | None = None
    token_names: Sequence[str] | None = None

    @staticmethod
    def of(stats: SoftLabels, embeddings: Matrix) -> LinearData:
        """Checked data from statistics and embeddings (d x m), with the names that the statistics have."""
        P = _checked_probabilities(stats.P)
        H = check_embeddings(embeddings, P.shape[1])
        data = LinearData(P > 0, P, _checked_weights(stats.pi, P.shape[1]), H)
        if not isinstance(stats, NextTokenStatistics):
            return data
        if stats.contexts is not None:
            check_duplicates(stats.contexts, H)
        return LinearData(data.S, P, data.pi, H, context_names(stats), list(stats.vocabulary))

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

    def context_name(self, j: int) -> str:
        """A context's number, and its text where known."""
        return f"context {j}" if self.context_names is None else f"context {j} {self.context_names[j]!r}"

    def token_name(self, v: int) -> str:
        """A token's number, and its text where known."""
        return f"token {v}" if self.token_names is None else f"token {v} {self.token_names[v]!r}"

    def list_contexts(self, indices: Sequence[int]) -> str:
        """Names of contexts for a sentence; a long list is cut."""
        return _listing([self.context_name(j) for j in indices])

    def list_pairs(self, pairs: Sequence[tuple[int, int]]) -> str:
        """Names of (context, token) pairs for a sentence; a long list is cut."""
        return _listing([f"{self.token_name(v)} after {self.context_name(j)}" for j, v in pairs])


def context_names(stats: NextTokenStatistics) -> list[str] | None:
    """Text or label of every context; None where statistics have neither."""
    named = stats.contexts is not None or stats.labels is not None
    return [stats.context_text(j) for j in range(stats.m)] if named else None


def _listing(names: list[str]) -> str:
    shown = ", ".join(names[:LONGEST_LIST])
    return shown if len(names) <= LONGEST_LIST else f"{shown} and {len(names) - LONGEST_LIST} more"


def _checked_probabilities(given: Matrix) -> Float:
    P = dense(given)
    if P.ndim != 2:
        raise ProblemError(f"P must be a V x m matrix; got an array of shape {P.shape}.")
    V, m = P.shape
    if m == 0:
        raise ProblemError("The data must hold at least one context; got m=0. Count a longer text.")
    if V < 2:
        raise ProblemError(f"The vocabulary must hold at least 2 tokens, or nothing is left to predict; got V={V}.")
    if not np.all(np.isfinite(P)) or P.min() < 0:
        v, j = np.argwhere(~(P >= 0) | ~np.isfinite(P))[0]
        raise ProblemError(
            f"Probabilities must be finite and at least 0; got P[{v}, {j}]={P[v, j]} (token {v}, context {j})."
        )
    total = P.sum(axis=0)
    for j in np.flatnonzero(total <= 0)[:1]:
        raise ProblemError(
            f"Every context must be followed by at least one token; context {j} has an empty support "
            f"(column sum {total[j]}). Drop the context or fix its counts."
        )
    for j in np.flatnonzero(np.abs(total - 1) > 1e-8)[:1]:
        raise ProblemError(f"Every column of P must sum to 1; column {j} sums to {total[j]!r}. Pass counts instead.")
    return np.asarray(P / total)


def _checked_weights(pi: ArrayLike | None, m: int) -> Float:
    weights = np.full(m, 1.0 / m) if pi is None else np.asarray(pi, dtype=np.float64)
    if weights.shape != (m,):
        raise ProblemError(f"pi must have one entry per context, shape ({m},); got shape {weights.shape}.")
    bad = np.flatnonzero(~(weights > 0) | ~np.isfinite(weights))
    if bad.size:
        raise ProblemError(f"Every context's weight must be positive; got pi[{bad[0]}]={weights[bad[0]]}.")
    return np.asarray(weights / weights.sum())
