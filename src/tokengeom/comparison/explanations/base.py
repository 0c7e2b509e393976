"""What every explanation has: a name, a meaning, and a fit to statistics that gives tokens and contexts.

Tokens and contexts are given for chosen items only, as columns, so no matrix is larger than factors times items.

Most explanations are logits M (V x m), centred in each column because softmax does not depend on its mean, with

``M = U Sigma V^T``,  tokens ``U Sigma^p``,  contexts ``Sigma^p V^T``.

At power ``p = 1/2`` the factors multiply to M and their Gram matrices are ``(M M^T)^{1/2}`` and ``(M^T M)^{1/2}``, as
for L_mm (`LogitFit`). At power 1 the Gram matrices are ``M M^T`` and ``M^T M``: tokens are the rows of M and contexts
its columns (`MatrixFit`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int, SparseProduct, centre_columns, column_norms
from tokengeom.core.settings import member, member_names
from tokengeom.problems.backend import SVD_SIDE
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.windows import ABSENT
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import RANK_TOLERANCE, leading_triplets
from tokengeom.training.run import Run

EXPLANATIONS = "tokengeom.comparison.explanations"
MOST_ENTRIES = 4_000_000
"""Entries V m up to which all singular vectors are computed (a few seconds); beyond it the leading ones."""
COMPONENTS = 256
"""Leading singular vectors of a larger matrix."""
ROUNDING = 1e-13
"""Logits below this are 0: they are rounding errors of a subtracted mean of size 1."""
STEP = 10**0.5
"""Ratio of two values of a free parameter by which a grid is widened."""
POWERS = (0.5, 1.0)
"""Powers of the singular values that are tried where the power is a free parameter."""


@dataclass(frozen=True, eq=False)
class ContextStatistics:
    """What is known of contexts.

    where
        P         next-token probabilities, V x k
        windows   how often each occurred, k; None where there are no counts
        tokens    their tokens, k x L, as in `NextTokenStatistics.contexts`; None where they are not known
    """

    P: csc_array
    windows: Int | None = None
    tokens: NDArray[np.int32] | None = None

    @staticmethod
    def of(stats: NextTokenStatistics) -> ContextStatistics:
        """All contexts of statistics."""
        windows = stats.context_counts if stats.has_counts else None
        return ContextStatistics(stats.P, windows, stats.contexts)

    def select(self, columns: Int) -> ContextStatistics:
        """Some of them, in the given order."""
        windows = None if self.windows is None else self.windows[columns]
        tokens = None if self.tokens is None else self.tokens[columns]
        return ContextStatistics(self.P[:, columns], windows, tokens)

    @property
    def counts(self) -> Float:
        """How often each stored pair of P occurred, in its order."""
        assert self.windows is not None, "explanations that need counts are left out where there are none"
        return np.asarray(self.P.data * np.repeat(self.windows, np.diff(self.P.indptr)))


class AbstractFit(ABC):
    """An explanation fitted to statistics of m contexts and V tokens.

    ``is_truncated``
        Whether only leading singular vectors were kept.
    ``limitation``
        How the fit falls short of what the explanation says, as a sentence; empty where it does not.
    ``seeds``
        Number of random fits whose vectors stand below each other, and whose cosines are averaged.
    """

    is_truncated: bool = False
    limitation: str = ""
    seeds: int = 1

    @abstractmethod
    def tokens(self, tokens: Int) -> Float:
        """Vectors of these tokens as columns, with the mean over the whole vocabulary removed."""

    @abstractmethod
    def contexts(self, columns: Int) -> Float:
        """Vectors of these contexts, among those it was fitted to, as columns; 0 for one without a direction."""


@dataclass(frozen=True, eq=False)
class FitInputs:
    """What is known beside the statistics, where an explanation needs it.

    where
        prediction   the prediction in the limit for these statistics; None where it must be solved for
        at           norm -> prediction at the run's loss for these statistics, where it was made before
        proxy_only   whether the statistics are too large to solve for
        loss_gap     loss gap of the run on these statistics in nats; None leaves out what depends on it
        norms        norms in which a prediction at that loss may be solved for
        tolerance    proven relative gap of predictions at a loss
        dim          dimension of the run's embeddings; None where not known
        optimizer    name of the run's optimizer; None where not known
        run          the run itself, where it was trained here
        has_counts   whether the statistics are counts
        has_tokens   whether the tokens of the contexts are known, at least one of each
    """

    prediction: FeaturePrediction | None = None
    at: Mapping[str, LossPrediction] = field(default_factory=dict)
    proxy_only: bool = False
    loss_gap: float | None = None
    norms: tuple[str, ...] = ("nuclear", "gamma2")
    tolerance: float = 1e-3
    dim: int | None = None
    optimizer: str | None = None
    run: Run | None = None
    has_counts: bool = True
    has_tokens: bool = False

    def on(self, stats: NextTokenStatistics) -> FitInputs:
        """The same with what these statistics have."""
        ids = stats.contexts
        has_tokens = ids is not None and ids.shape[1] > 0 and bool((ids[:, -1] != ABSENT).all())
        return replace(self, has_counts=stats.has_counts, has_tokens=has_tokens)


@dataclass(frozen=True)
class ExplanationInfo:
    """What an explanation is.

    ``name``, ``meaning``
        Short name in tables, and what it is in a phrase.
    ``uses``
        What it is made from: "supports", "probabilities", "counts", "probabilities and the loss".
    ``parameters``
        Its free parameters and how they were chosen; "none" where there are none.
    ``ours``
        Whether it is the prediction itself, at a loss or in the limit.
    """

    name: str
    meaning: str
    uses: str
    parameters: str = "none"
    ours: bool = False


class AbstractRival(ABC):
    """An explanation of a model's geometry; ``name, meaning, uses, parameters, ours`` are as in `ExplanationInfo`.

    ``order``
        Its place in tables among explanations that fit equally well; simpler ones have smaller numbers.
    ``quick``
        Whether its fit needs no solver and no training, so that every comparison can show it.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    order: ClassVar[float]
    uses: ClassVar[str]
    parameters: ClassVar[str] = "none"
    quick: ClassVar[bool] = True
    ours: ClassVar[bool] = False

    @classmethod
    def info(cls) -> ExplanationInfo:
        """What it is."""
        return ExplanationInfo(cls.name, cls.meaning, cls.uses, cls.parameters, cls.ours)

    @classmethod
    def candidates(cls, known: FitInputs) -> Sequence[AbstractRival]:
        """The explanation with each value of its free parameter, or once; nothing where it is left out.

        The candidate that agrees best with the run counts, for contexts and tokens separately.
        """
        return [cls()]

    def beyond(self, tried: Sequence[AbstractRival]) -> Sequence[AbstractRival]:
        """Candidates beyond this one, where it has the smallest or largest value that was tried; none by default."""
        return []

    @property
    def chosen(self) -> str:
        """The free parameters of this candidate, such as "k=5"; empty where there are none."""
        return ""

    @abstractmethod
    def fit(self, stats: NextTokenStatistics) -> AbstractFit:
        """Tokens and contexts for these statistics."""


def explanation_classes(names: Sequence[str] | None = None) -> list[type[AbstractRival]]:
    """Classes of the explanations by file name, all by default, simplest first."""
    wanted = member_names(EXPLANATIONS) if names is None else names
    classes = [
        member(EXPLANATIONS, name, AbstractRival, "An explanation")  # type: ignore[type-abstract]
        for name in dict.fromkeys(wanted)
    ]
    return sorted(classes, key=lambda rival: (rival.order, rival.name))


Rule = Callable[[ContextStatistics], csc_array | SparseProduct]
"""From contexts to their logits before centring, V x k."""


class AbstractMatrixRival(AbstractRival):
    """A rule that gives each pair of token and context a logit; ``power`` is that of the singular values."""

    power: float = 0.5

    @abstractmethod
    def rule(self, stats: NextTokenStatistics) -> Rule:
        """Logits of any contexts, given these statistics."""

    def fit(self, stats: NextTokenStatistics) -> AbstractFit:
        contexts, rule, small = ContextStatistics.of(stats), self.rule(stats), stats.V * stats.m <= MOST_ENTRIES
        if self.power == 1.0 and small:
            return MatrixFit(contexts, rule)
        return LogitFit.of(contexts, rule, self.power, everything=small and min(stats.V, stats.m) <= SVD_SIDE)


class AbstractGridRival(AbstractMatrixRival):
    """A rule with one free parameter beside the power, whose grid is widened until the best value is inside.

    ``parameter``, ``symbol``
        Name of the field, and what it is called in tables.
    ``grid``
        Values that are tried first, at every power.
    """

    parameter: ClassVar[str]
    symbol: ClassVar[str]
    grid: ClassVar[tuple[float, ...]]

    @classmethod
    def candidates(cls, known: FitInputs) -> Sequence[AbstractRival]:
        """With each value of the grid at every power; left out where it needs counts and there are none."""
        if "counts" in cls.uses and not known.has_counts:
            return []
        return cls._at_all_powers(cls.grid)

    @classmethod
    def _at_all_powers(cls, values: Sequence[float]) -> list[AbstractRival]:
        return [cls(**{cls.parameter: value, "power": power}) for value in values for power in POWERS]

    @property
    def chosen(self) -> str:
        return f"{self.symbol}={getattr(self, self.parameter):g}, power {self.power:g}"

    def beyond(self, tried: Sequence[AbstractRival]) -> Sequence[AbstractRival]:
        """The next value beyond this one, at every power, where no tried one is beyond it."""
        own, others = getattr(self, self.parameter), [getattr(other, self.parameter) for other in tried]
        values = [self.next_value(own, up=up) for up, end in ((False, min(others)), (True, max(others))) if own == end]
        return self._at_all_powers(values)

    @staticmethod
    def next_value(value: float, *, up: bool) -> float:
        """The value after, or before, another one on the grid."""
        return float(f"{value * STEP if up else value / STEP:.2g}")


class AbstractLogitRival(AbstractMatrixRival):
    """A rule that gives each observed pair of token and context a logit; other pairs have 0 before centring."""

    @abstractmethod
    def values(self, contexts: ContextStatistics, background: Float) -> Float:
        """Logit of each stored pair of ``contexts.P``, in its order; ``background`` is p(z), V."""

    def rule(self, stats: NextTokenStatistics) -> Rule:
        background = np.asarray(stats.P @ stats.pi)
        return lambda contexts: _with_values(contexts.P, self.values(contexts, background))


@dataclass(frozen=True, eq=False)
class LogitFit(AbstractFit):
    """Factors of centred logits: ``U`` (V x r), ``s`` (r), their power, and the rule that gives contexts logits."""

    fitted_to: ContextStatistics
    rule: Rule
    U: Float
    s: Float
    power: float = 0.5
    is_truncated: bool = False

    @staticmethod
    def of(contexts: ContextStatistics, rule: Rule, power: float, *, everything: bool) -> LogitFit:
        """Factor the rule's logits: all singular vectors, or the leading ones of a large matrix."""
        M, side = rule(contexts), min(contexts.P.shape)
        if everything:
            U, s = left_singular_vectors(centre_columns(M.toarray()))
        else:
            U, s, _ = leading_triplets(M, min(COMPONENTS, side - 1))
        r = int((s > RANK_TOLERANCE * s[0]).sum())
        return LogitFit(contexts, rule, U[:, :r], s[:r], power, U.shape[1] < side)

    def tokens(self, tokens: Int) -> Float:
        """``U Sigma^p``, whose columns sum to 0 like those of M."""
        rows = self.U[tokens]
        # A token with equal logits in all contexts has no direction; what is left of it is rounding.
        has_direction = np.linalg.norm(rows * self.s, axis=1) > RANK_TOLERANCE * self.s.max(initial=0.0)
        return np.asarray(np.where(has_direction[:, None], rows * self.s**self.power, 0.0).T)

    def contexts(self, columns: Int) -> Float:
        """``Sigma^p V^T``, from ``U^T M = Sigma V^T``; the columns of U sum to 0, so M need not be centred."""
        M = self.rule(self.fitted_to.select(columns))
        inside = np.asarray((M.T @ self.U).T)
        # A column of equal logits has no direction; what is left of it is rounding.
        inside[:, np.linalg.norm(inside, axis=0) <= RANK_TOLERANCE * column_norms(M)] = 0.0
        return np.asarray(inside * self.s[:, None] ** (self.power - 1.0))


@dataclass(frozen=True, eq=False)
class MatrixFit(AbstractFit):
    """Centred logits themselves: tokens are rows and contexts are columns."""

    fitted_to: ContextStatistics
    rule: Rule

    def tokens(self, tokens: Int) -> Float:
        # Centring needs all rows, so the dense matrix is made here; its size is limited by `MOST_ENTRIES`.
        return np.asarray(centre_columns(self.rule(self.fitted_to).toarray())[tokens].T)

    def contexts(self, columns: Int) -> Float:
        M = centre_columns(self.rule(self.fitted_to.select(columns)).toarray())
        M[:, np.ptp(M, axis=0) <= ROUNDING * np.abs(M).max(initial=0.0)] = 0.0
        return M


@dataclass(frozen=True, eq=False)
class FactorFit(AbstractFit):
    """Tokens and contexts of given factors; those of several random fits stand below each other."""

    factors: Factors
    limitation: str = ""
    seeds: int = 1

    def tokens(self, tokens: Int) -> Float:
        return np.asarray(self.factors.tokens[:, tokens])

    def contexts(self, columns: Int) -> Float:
        return np.asarray(self.factors.H[:, columns])


def left_singular_vectors(M: Float) -> tuple[Float, Float]:
    """Left singular vectors (V x k) and singular values (k, falling) of a matrix, from its smaller Gram matrix.

    Three times as fast as an SVD. The values are norms of ``Q^T M``, which keep the digits that the roots of the Gram
    matrix's eigenvalues lose.
    """
    tall = M.shape[0] > M.shape[1]
    A = M.T if tall else M
    Q = np.linalg.eigh(A @ A.T)[1]
    inside = Q.T @ A
    s = np.linalg.norm(inside, axis=1)
    order = np.argsort(-s)
    s = s[order]
    if not tall:
        return np.asarray(Q[:, order]), s
    return np.asarray((inside[order] / np.where(s > 0, s, 1.0)[:, None]).T), s


def most_frequent(P: csc_array, tie: float = 1e-9) -> Float:
    """One-hot labels that fit best, one entry per stored pair: 1 at a context's most frequent next token.

    Where several are equally frequent, up to a share ``tie``, each has an equal part.
    """
    sizes = np.diff(P.indptr)
    largest = np.maximum.reduceat(P.data, P.indptr[:-1]) if P.nnz else np.zeros(0)
    top = P.data >= (1.0 - tie) * np.repeat(largest, sizes)
    number = np.add.reduceat(top.astype(np.float64), P.indptr[:-1]) if P.nnz else np.zeros(0)
    return np.asarray(top / np.repeat(number, sizes))


def _with_values(P: csc_array, values: Float) -> csc_array:
    exact = np.where(np.abs(values) > ROUNDING, values, 0.0)
    return csc_array((exact, P.indices, P.indptr), shape=P.shape)
