"""The exact soft-label loss on distinct contexts, as a gap that does not cancel.

::

    CE(L) - H = sum_j pi_j KL(p_j || softmax L_j)
    KL(p_j || q_j) = sum_{z in S_j} p_{j,z} (exp(u_{j,z}) - 1 - u_{j,z}) + log1p(q_j(off) / q_j(on))

where
    L        logits, V x m
    q_j      softmax of column j; q_j(on), q_j(off) its mass on and off the support S_j
    u_{j,z}  ``log q_{j,z} - log q_j(on) - log p_{j,z}``, on the support

Both terms are sums of positive numbers in log space, so a gap of 1e-30 is accurate, where the difference of two losses
of 1.6 would be rounding noise. The loss on the n raw windows is the same number, since equal contexts share a column
[thrampoulidis2024].

`WindowSampler` draws batches of raw windows. A window is a pair (context j, next token z) with probability
``pi_j p_{j,z}`` and a one-hot label, so the mean gradient over batches is the gradient of the exact loss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.core.errors import ProblemError, StatisticsError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Bool, Float, Int, excess_exponential, log_sum_exp

if TYPE_CHECKING:
    from tokengeom.statistics.next_token import NextTokenStatistics

BLOCK_ENTRIES = 2**22
"""Logits of one block of contexts in `SoftLabels.loss_gap_of`: 32 MB in float64."""


@dataclass(frozen=True, eq=False, repr=False)
class SoftLabels:
    """Next-token distributions of m contexts as plain arrays, one context after the other.

    ``start``             Context j has the pairs e from ``start[j]`` to ``start[j + 1]``; m + 1 integers.
    ``token``, ``share``  Token z and probability ``p_{j,z} > 0`` of each pair.
    ``weight``            ``pi``, m; sums to 1.
    ``windows``           Number of windows n that the statistics were counted from; the number of contexts where there
                          are no counts.
    ``statistics_hash``   Hash of the statistics that the labels were made of; None where they were given as arrays.
    """

    V: int
    start: Int
    token: Int
    share: Float
    weight: Float
    windows: int
    statistics_hash: str | None = None

    @classmethod
    def from_statistics(cls, stats: NextTokenStatistics) -> SoftLabels:
        """The labels of next-token statistics."""
        P = stats.P
        labels = cls(
            V=int(stats.V),
            start=np.array(P.indptr, np.int64),
            token=np.array(P.indices, np.int64),
            share=np.array(P.data, np.float64),
            weight=np.array(stats.pi, np.float64),
            windows=int(stats.n if stats.has_counts else stats.m),
            statistics_hash=stats.hash,
        )
        labels.check()
        return labels

    @classmethod
    def from_dense(cls, P: Float, pi: Float | None = None, windows: int | None = None) -> SoftLabels:
        """The labels of a dense V x m matrix of probabilities; ``pi`` is uniform unless given."""
        P = np.asarray(P, np.float64)
        if P.ndim != 2:
            raise StatisticsError(f"P must be a V x m matrix; got {P.ndim} dimension(s), shape {P.shape}.")
        V, m = P.shape
        context, token = np.nonzero(P.T)
        start = np.concatenate(([0], np.cumsum(np.bincount(context, minlength=m)))).astype(np.int64)
        pi = np.full(m, 1.0 / max(m, 1)) if pi is None else np.asarray(pi, np.float64)
        labels = cls(V, start, token.astype(np.int64), P.T[context, token], pi, windows or m)
        labels.check()
        return labels

    def __repr__(self) -> str:
        return f"SoftLabels(V={self.V:,}, m={self.m:,}, windows={self.windows:,})"

    @property
    def m(self) -> int:
        """Number of distinct contexts."""
        return self.start.size - 1

    @cached_property
    def context(self) -> Int:
        """Context of each pair."""
        return np.repeat(np.arange(self.m), np.diff(self.start))

    @cached_property
    def support(self) -> Bool:
        """``S``, V x m."""
        S = np.zeros((self.V, self.m), dtype=bool)
        S[self.token, self.context] = True
        return S

    @cached_property
    def entropy(self) -> float:
        """The entropy floor H, in nats."""
        return float(-np.sum(self.weight[self.context] * self.share * np.log(self.share)))

    @cached_property
    def hash(self) -> str:
        """Hash of the statistics, or of the arrays where there are none: a resumed run must have the same."""
        if self.statistics_hash is not None:
            return self.statistics_hash
        parts = (self.start, self.token, self.share, self.weight)
        return hashlib.sha256(str(self.V).encode() + b"".join(p.tobytes() for p in parts)).hexdigest()

    def check(self) -> None:
        """Refuse labels that no model can be trained on, and say what is wrong with them."""
        if self.m < 1:
            raise StatisticsError("Training needs at least one context; got m=0. Was the text shorter than a window?")
        if self.V < 2:
            raise StatisticsError(f"Training needs at least two tokens; got V={self.V}. There is nothing to predict.")
        empty = np.flatnonzero(np.diff(self.start) == 0)
        if empty.size:
            raise StatisticsError(
                f"Every context needs at least one next token; context {empty[0]} has none ({empty.size} such "
                "contexts in all). Did a support policy remove them? Drop these contexts or relax the policy."
            )
        if not (np.all(np.isfinite(self.share)) and np.all(self.share > 0)):
            raise StatisticsError(f"Stored probabilities must be positive; the smallest is {self.share.min()}.")
        sums = np.add.reduceat(self.share, self.start[:-1])
        worst = int(np.argmax(np.abs(sums - 1.0)))
        if abs(sums[worst] - 1.0) > 1e-8:
            raise StatisticsError(f"Columns of P must sum to 1; context {worst} sums to {sums[worst]:.12g}.")
        if self.weight.shape != (self.m,) or np.any(self.weight < 0) or abs(self.weight.sum() - 1.0) > 1e-8:
            raise StatisticsError(
                f"pi must have m={self.m} entries >= 0 that sum to 1; got shape {self.weight.shape}, sum "
                f"{self.weight.sum():.12g}."
            )

    def context_gaps(self, L: Float) -> Float:
        """``KL(p_j || softmax L_j)`` of each context, m numbers >= 0."""
        self._check_logits(L)
        logits = L[self.token, self.context]
        top = np.maximum.reduceat(logits, self.start[:-1])
        on = top + np.log(np.add.reduceat(np.exp(logits - top[self.context]), self.start[:-1]))
        rest = np.array(L, dtype=np.float64)
        rest[self.token, self.context] = -np.inf
        off = log_sum_exp(rest)
        u = logits - on[self.context] - np.log(self.share)
        inside = np.add.reduceat(self.share * excess_exponential(u), self.start[:-1])
        difference = off - on
        # log1p(exp(x)) on both sides of 0, where one of the forms would overflow.
        outside = np.maximum(difference, 0.0) + np.log1p(np.exp(-np.abs(difference)))
        outside = np.where(difference < 0, np.log1p(np.exp(np.minimum(difference, 0.0))), outside)
        return np.asarray(inside + outside)

    def loss_gap(self, L: Float) -> float:
        """``CE(L) - H >= 0``, in nats."""
        return float(self.weight @ self.context_gaps(L))

    def loss_gap_of(self, state: Factors, after: Callable[[Float], Float] | None = None) -> float:
        """``CE - H`` of the logits ``W H (+ bias)``, in blocks of contexts; W may have more rows than V.

        ``after``  What a model applies to ``W H (+ bias)``, such as a soft cap.
        """
        rows = state.W.shape[0]
        most = max(1, BLOCK_ENTRIES // rows)
        total = 0.0
        for first in range(0, self.m, most):
            last = min(first + most, self.m)
            pairs = slice(self.start[first], self.start[last])
            block = SoftLabels(
                rows,
                self.start[first : last + 1] - self.start[first],
                self.token[pairs],
                self.share[pairs],
                self.weight[first:last],
                last - first,
            )
            # A product of float32 factors is faster, and exact to about 1e-6; sums of exponentials are in float64.
            L = np.asarray(Factors(state.W, state.H[:, first:last], state.bias).logits, np.float64)
            total += block.loss_gap(L if after is None else after(L))
        return total

    def gradient(self, L: Float) -> Float:
        """Derivative of ``CE`` by the logits: ``(softmax(L) - P) diag(pi)``, V x m."""
        self._check_logits(L)
        q = np.exp(L - log_sum_exp(L)[None, :])
        q[self.token, self.context] -= self.share
        return np.asarray(q * self.weight)

    def margins(self, L: Float) -> Float:
        """Smallest in-support minus largest off-support logit of each context; inf where the support is full."""
        self._check_logits(L)
        lowest = np.min(np.where(self.support, L, np.inf), axis=0)
        highest = np.max(np.where(self.support, -np.inf, L), axis=0)
        return np.asarray(lowest - highest)

    def _check_logits(self, L: Float) -> None:
        if L.shape != (self.V, self.m):
            raise ProblemError(f"Logits must be V x m = {self.V} x {self.m}; got {L.shape}.")


@dataclass
class WindowSampler:
    """Draws windows with its own generator, whose state can be saved and restored."""

    labels: SoftLabels
    generator: np.random.Generator
    _cumulative: Float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        total = np.cumsum(self.labels.weight[self.labels.context] * self.labels.share)
        self._cumulative = total / total[-1]

    def draw(self, steps: int, batch: int) -> Int:
        """Index of the pair of each window, steps x batch; two calls give the same windows as one call for both."""
        uniform = self.generator.random((steps, batch))
        return np.searchsorted(self._cumulative, uniform, side="right").astype(np.int64)

    def state(self) -> dict[str, Any]:
        """State of the generator as plain data."""
        return dict(self.generator.bit_generator.state)

    def load(self, state: dict[str, Any]) -> None:
        """Restore a state of the generator."""
        self.generator.bit_generator.state = state
