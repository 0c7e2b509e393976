"""Six rival explanations of a model's geometry, each a rule from next-token statistics to tokens and contexts.

Four are logits M (V x m), centred in each column since softmax cannot see its mean, and give

``M = U Sigma V^T``,  tokens ``U Sigma^{1/2}``,  contexts ``Sigma^{1/2} V^T``,

so that the Grams are ``(M M^T)^{1/2}`` and ``(M^T M)^{1/2}``, as for L_mm: centred probabilities, L_in, shifted PMI
and the proxy. The fifth is L_mm itself, the sixth a simplex frame, whose words and contexts are written down at once.
Every rule says where a context goes that was not there when the tokens were made (``place``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.geometry.logit_numbers import FiniteLogits
from tokengeom.geometry.rival_fits import AbstractFit, FrameFit, LogitFit, MarginFit
from tokengeom.theory.features import FeaturePrediction, predict_features

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.statistics.next_token import NextTokenStatistics


class AbstractRival(ABC):
    """An explanation: its short ``name``, what it is in words, and how it is fitted to statistics."""

    name: ClassVar[str]
    meaning: ClassVar[str]

    @abstractmethod
    def fit(self, stats: NextTokenStatistics) -> AbstractFit:
        """Tokens and contexts that the rule gives to these statistics."""


class AbstractLogitRival(AbstractRival):
    """A rule that gives every seen pair of token and context a number; unseen pairs are 0 before centring."""

    @abstractmethod
    def values(self, P: Any, background: Float) -> Float:
        """Number of each stored pair of P (V x m, sparse by columns), in its order; ``background`` is p(z), V."""

    def fit(self, stats: NextTokenStatistics) -> LogitFit:
        """Factor the rule's logits."""
        background = np.asarray(stats.P @ stats.pi)
        return LogitFit.of(stats.P, lambda P: self.values(P, background))


class CentredProbabilities(AbstractLogitRival):
    """``M[z,j] = p_jz - 1/V``: contexts are alike as far as the same tokens are equally likely after both."""

    name = "P"
    meaning = "centred next-token probabilities"

    def values(self, P: Any, background: Float) -> Float:
        """The probabilities themselves."""
        return np.asarray(P.data)


class FinitePart(AbstractLogitRival):
    """``M = L_in``: the log-probabilities on support, their mean removed; 0 for a context with one next token."""

    name = "L_in"
    meaning = "log-count part of the logits, which stays finite"

    def values(self, P: Any, background: Float) -> Float:
        """Centred log-probabilities."""
        return FiniteLogits.of(P).value


@dataclass(frozen=True)
class ShiftedPMI(AbstractLogitRival):
    """``M[z,j] = max(log(p_jz / p_z) - log k, 0)``, positive shifted pointwise mutual information [levy2014].

    where ``p_z = sum_j pi_j p_jz``, and k is the number of negative samples of the skip-gram model that factors PMI
    - log k. A pair that never occurs has PMI minus infinity, so that its positive part is 0.
    """

    name: ClassVar[str] = "PMI"
    meaning: ClassVar[str] = "positive shifted pointwise mutual information"
    k: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.k) and self.k > 0):
            raise ProblemError(f"The shift log k of PMI needs a finite k > 0; got k={self.k}. 1 means no shift.")

    def values(self, P: Any, background: Float) -> Float:
        """Positive part of shifted PMI on seen pairs."""
        return np.asarray(np.maximum(np.log(P.data / background[P.indices]) - np.log(self.k), 0.0))


class Proxy(AbstractLogitRival):
    """``M = S~ = (I - 11^T/V) S``: contexts are alike as far as the same tokens may follow both [zhao2024]."""

    name = "S~"
    meaning = "proxy: centred supports"

    def values(self, P: Any, background: Float) -> Float:
        """One on support."""
        return np.ones(P.nnz)


@dataclass(frozen=True, eq=False)
class MaximumMargin(AbstractRival):
    """``M = L_mm``, the smallest nuclear norm that separates every support from the rest [zhao2024].

    ``prediction``
        The answer for the statistics that it is first fitted to, where that is at hand; else it is solved for.
    """

    name: ClassVar[str] = "L_mm"
    meaning: ClassVar[str] = "prediction: maximum-margin direction of the logits"
    prediction: FeaturePrediction | None = None

    def fit(self, stats: NextTokenStatistics) -> MarginFit:
        """Take the answer, or solve."""
        return MarginFit(self.prediction or predict_features(stats, spread_solves=0))


class SimplexFrame(AbstractRival):
    """Neural collapse: tokens ``I - 11^T/V``, equiangular; a context lies on the vertex of its token [papyan2020].

    Neural collapse is stated for one-hot labels. With soft labels a context is put on the vertex of its commonest next
    token, or on the mean of the vertices where several are equally common: the one-hot label that fits it best.
    """

    name = "ETF"
    meaning = "simplex frame of neural collapse, each context at its commonest next token"

    def fit(self, stats: NextTokenStatistics) -> FrameFit:
        """Nothing is fitted: the frame is the same for all statistics."""
        return FrameFit(stats.P)


def all_rivals(k: float = 1.0, prediction: FeaturePrediction | None = None) -> tuple[AbstractRival, ...]:
    """Every rival, the simplest first; ``k`` is PMI's."""
    simple = (SimplexFrame(), ShiftedPMI(k), FinitePart(), CentredProbabilities())
    return (*simple, Proxy(), MaximumMargin(prediction))
