"""What every explanation has: a name, a meaning, and a fit to statistics that gives tokens and contexts.

Tokens and contexts are given for chosen items only, as columns, so no matrix is larger than factors times items. A fit
also places new contexts, from their next-token probabilities and its tokens; contexts of the fit are placed where they
are.

Most explanations are logits M (V x m), centred in each column because softmax does not depend on its mean, with

``M = U Sigma V^T``,  tokens ``U Sigma^{1/2}``,  contexts ``Sigma^{1/2} V^T``,

so the Gram matrices are ``(M M^T)^{1/2}`` and ``(M^T M)^{1/2}``, as for L_mm. A context with logits ``M_j`` is placed
at the smallest h with ``W h`` nearest to ``M_j``, which is ``h = Sigma^{-1/2} U^T M_j`` (`LogitFit`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from tokengeom.numerics import centre_columns
from tokengeom.theory.proxy import RANK_TOLERANCE, SVD_SIDE, leading_triplets

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from tokengeom.geometry.rivals import RivalSettings
    from tokengeom.numerics import Float, Int
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.theory.proxy import ProxyPrediction

MOST_ENTRIES = 4_000_000
"""Entries V m up to which all singular vectors are computed (a few seconds); beyond it the leading ones."""
COMPONENTS = 256
"""Leading singular vectors of a larger matrix."""
ROUNDING = 1e-13
"""Logits below this are 0: they are rounding errors of a subtracted mean of size 1."""


class AbstractFit(ABC):
    """An explanation fitted to statistics of m contexts and V tokens."""

    @abstractmethod
    def tokens(self, tokens: Int) -> Float:
        """Vectors of these tokens as columns, with the mean over the whole vocabulary removed."""

    @abstractmethod
    def contexts(self, columns: Int) -> Float:
        """Vectors of these contexts, among those it was fitted to, as columns; 0 for one without a direction."""

    @abstractmethod
    def place(self, P: csc_array) -> Float:
        """Vectors of contexts with next-token probabilities P (V x k), as columns."""

    @property
    def is_truncated(self) -> bool:
        """Whether only leading singular vectors were kept."""
        return False


class AbstractRival(ABC):
    """An explanation of a model's geometry.

    ``name``, ``meaning``
        Short name in tables, and what it is in a phrase.
    ``order``
        Its place in tables among explanations that fit equally well; simpler ones have smaller numbers.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    order: ClassVar[float]

    @classmethod
    def of(cls, settings: RivalSettings, prediction: FeaturePrediction | ProxyPrediction | None) -> Self | None:
        """The explanation under these settings; None where it is left out.

        ``prediction``
            What the user passed for the statistics that the explanation is fitted to, if anything.
        """
        return cls()

    @abstractmethod
    def fit(self, stats: NextTokenStatistics) -> AbstractFit:
        """Tokens and contexts for these statistics."""


class AbstractLogitRival(AbstractRival):
    """A rule that gives each observed pair of token and context a logit; other pairs have 0 before centring."""

    @abstractmethod
    def values(self, P: csc_array, background: Float) -> Float:
        """Logit of each stored pair of P (V x m), in its order; ``background`` is p(z), V."""

    def fit(self, stats: NextTokenStatistics) -> LogitFit:
        """Factors of the rule's logits."""
        background = np.asarray(stats.P @ stats.pi)
        return LogitFit.of(stats.P, lambda P: self.values(P, background))


@dataclass(frozen=True, eq=False)
class LogitFit(AbstractFit):
    """Factors of centred logits: ``U`` (V x r), ``s`` (r), and the rule that turns probabilities into logits."""

    P: csc_array
    rule: Callable[[csc_array], Float]
    U: Float
    s: Float
    is_truncated: bool = False

    @staticmethod
    def of(P: csc_array, rule: Callable[[csc_array], Float]) -> LogitFit:
        """Factor the rule's logits: all singular vectors, or the leading ones of a large matrix."""
        M, side = _with_values(P, rule(P)), min(P.shape)
        if side <= SVD_SIDE and P.shape[0] * P.shape[1] <= MOST_ENTRIES:
            U, s, _ = np.linalg.svd(centre_columns(M.toarray()), full_matrices=False)
        else:
            U, s, _ = leading_triplets(M, min(COMPONENTS, side - 1))
        r = int((s > RANK_TOLERANCE * s[0]).sum())
        return LogitFit(P, rule, U[:, :r], s[:r], U.shape[1] < side)

    def tokens(self, tokens: Int) -> Float:
        """``U Sigma^{1/2}``, whose columns sum to 0 like those of M."""
        return np.asarray((self.U[tokens] * np.sqrt(self.s)).T)

    def contexts(self, columns: Int) -> Float:
        """``Sigma^{1/2} V^T``, from ``U^T M = Sigma V^T``."""
        return self.place(self.P[:, columns])

    def place(self, P: csc_array) -> Float:
        """Least squares on the tokens."""
        # The columns of U sum to 0, so M need not be centred first.
        M = _with_values(P, self.rule(P))
        inside = (M.T @ self.U).T
        size = np.sqrt(np.asarray(M.multiply(M).sum(axis=0))).ravel()
        # A column of equal logits has no direction; what is left of it is rounding.
        inside[:, np.linalg.norm(inside, axis=0) <= RANK_TOLERANCE * size] = 0.0
        return np.asarray(inside / np.sqrt(self.s)[:, None])


def _with_values(P: csc_array, values: Float) -> csc_array:
    from scipy.sparse import csc_array

    exact = np.where(np.abs(values) > ROUNDING, values, 0.0)
    return csc_array((exact, P.indices, P.indptr), shape=P.shape)
