"""The data of the linear model: supports, probabilities, weights, fixed embeddings, and names for sentences.

where ``S`` and ``P`` are V x m, ``pi`` has m entries, and ``H`` is d x m with one column per context. Data made with
`LinearData.of` are checked as statistics are; V >= 2, and embeddings are finite and not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

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
        known = stats if isinstance(stats, NextTokenStatistics) else None
        given = known or NextTokenStatistics.from_probabilities(stats.P, stats.pi)
        if given.V < 2:
            raise ProblemError(f"At least 2 tokens are needed, or nothing is left to predict; got V={given.V}.")
        H = check_embeddings(embeddings, given.m)
        P, pi = dense(given.P), given.pi
        data = LinearData(P > 0, P / P.sum(axis=0), pi / pi.sum(), H)
        if known is None:
            return data
        if known.contexts is not None:
            check_duplicates(known.contexts, H)
        return replace(data, context_names=context_names(known), token_names=list(known.vocabulary))

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
