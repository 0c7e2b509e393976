"""Tied features: contexts that share tokens share vectors, so contexts that were never seen have a place too.

``H = A Phi``,   ``L = W A Phi = B Phi``

where

``Phi``    features of contexts (`ContextFeatures`), F x m: which tokens stand where
``A``      one vector per feature, d x F; ``W`` one per token, V x d
``B``      ``W A``, V x F, of smallest nuclear norm for its loss, or in the limit with margins 1 on ``B Phi``

With a feature per context and no other this is the prediction for unconstrained features. A context x that the text
does not have lies at ``h(x) = A phi(x)``, and its logits are ``B phi(x)``.

**Two views of one sum.** The cosine of two contexts is a sum over pairs of their features, ``<h_j, h_k> = sum_fg
Phi_fj Phi_gk <a_f, a_g>``: a feature that both have contributes by its own length, and two different ones by the angle
between their vectors. That angle comes from the tokens that follow them: with ``G = (P - softmax(L)) diag(pi) / lam``
the optimality conditions in the nuclear norm are ``A^T = (G Phi^T)^T W`` and ``W = G Phi^T A^T``. So ``a_f = sum_z (G
Phi^T)_zf w_z``: a feature is pulled by the tokens to which the prediction gives less than the text does, after the
contexts that have it; and ``h_j = sum_z (G Phi^T Phi)_zj w_z`` is the same sum over all features of a context.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csc_array

from tokengeom.ask.place import PlacesContexts
from tokengeom.core.numerics import Float, Int
from tokengeom.core.resources import require_memory
from tokengeom.problems.backend import Backend
from tokengeom.problems.base import Certificate
from tokengeom.problems.gamma2 import MaxNormFactors, WeightedDual
from tokengeom.problems.regularised_logits import Merging
from tokengeom.problems.tied_logits import DistinctFeatures, TiedLogits
from tokengeom.results.contract import AbstractResult
from tokengeom.statistics.context_features import ContextFeatures
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.statistics.supports import group_supports
from tokengeom.theory.at_loss import NORMS, PredictedCosines, ProvenNorm
from tokengeom.theory.pulls import Pulls, pulls_with_ties
from tokengeom.theory.storage import read_tied, write_tied


@dataclass(frozen=True, eq=False, repr=False)
class TiedPrediction(ProvenNorm, PredictedCosines, PlacesContexts, AbstractResult):
    """What tied features are predicted to be at a loss gap, or in the limit, with their certificate.

    ``W``, ``A``
        Vectors of tokens, V x d, and of features, d x F.
    ``features``
        The features, whose matrix is Phi, F x m.
    ``P``, ``pi``
        Next-token probabilities, V x m, and shares of the contexts, m.
    ``loss_gap``, ``lam``
        ``CE - H`` in nats, and the strength at which B is optimal; both 0 in the limit.
    ``certificate``
        Of ``CE(B Phi) - H + lam ||B||``, or in the limit of the norm: the bound is proven, the value evaluated.
    ``norm``, ``weights``
        The norm of B: "nuclear" or "gamma2", where rows of W and columns of A are at most ``sqrt(gamma_2)`` long; and
        for gamma2 the squares of the weights of merged tokens and of distinct features that prove the bound.
    ``change``
        For gamma2 at a loss, the dual ``R - P`` that proves the bound with these weights, of merged tokens, V' x m.
    ``entropy``, ``status``, ``seconds``, ``statistics_hash``, ``stats``
        As in `LossPrediction`.
    """

    kind: ClassVar[str] = "tokengeom-tied"
    title: ClassVar[str] = "Prediction with tied contexts"

    W: Float
    A: Float
    features: ContextFeatures
    P: csc_array
    pi: Float
    lam: float
    loss_gap: float
    certificate: Certificate
    entropy: float
    status: str
    seconds: float
    norm: str = "nuclear"
    weights: tuple[Float, Float] | None = None
    change: Float | None = None
    statistics_hash: str | None = None
    stats: NextTokenStatistics | None = None

    @property
    def in_limit(self) -> bool:
        """Whether this is the prediction in the limit of no loss."""
        return self.lam == 0.0

    @property
    def norm_value(self) -> float:
        """The norm of B that is smallest."""
        return self.certificate.value if self.in_limit else super().norm_value

    @property
    def lower_bound(self) -> float:
        """Proven lower bound on the norm of every B with at most this loss gap, or in the limit with margins 1."""
        return self.certificate.bound if self.in_limit else super().lower_bound

    @cached_property
    def nuclear_norm(self) -> float:
        """``||B||_*``, whichever norm is smallest."""
        if self.norm == "nuclear":
            return self.norm_value
        small = np.linalg.qr(self.W)[1] @ np.linalg.qr(self.A.T)[1].T
        return float(np.linalg.svd(small, compute_uv=False).sum())

    @property
    def rank(self) -> int:
        """Rank d of B."""
        return int(self.W.shape[1])

    @cached_property
    def H(self) -> Float:
        """Context embeddings ``A Phi``, d x m."""
        return self.embeddings_of(self.features.matrix)

    def embeddings_of(self, Phi: csc_array) -> Float:
        """``A Phi`` of any contexts with these features, d x k."""
        return np.asarray((Phi.T @ self.A.T).T)

    @property
    def context_vectors(self) -> Float:
        """H: the vectors of the counted contexts."""
        return self.H

    def logits_of(self, Phi: csc_array) -> Float:
        """``B Phi`` of any contexts with these features."""
        return np.asarray(self.W @ self.embeddings_of(Phi))

    def parts_of(self, phi: csc_array) -> Float:
        """``phi_f a_f`` of the features of one context, which add up to its vector."""
        return np.asarray(self.A[:, phi.indices] * phi.data)

    @cached_property
    def B(self) -> Float:
        """``W A``, V x F."""
        require_memory(8 * self.W.shape[0] * self.A.shape[1], "B (V x F)", "Use W and A, which are small.")
        return np.asarray(self.W @ self.A)

    @cached_property
    def L(self) -> Float:
        """Logits ``B Phi``, V x m."""
        require_memory(8 * self.W.shape[0] * self.features.m, "L (V x m)", "Use W and H, which are small.")
        return np.asarray(self.W @ self.H)

    @cached_property
    def context_groups(self) -> Int:
        """Support group of each context, m: equal numbers have the same support; -1 is a full support."""
        groups = group_supports(self.P)
        return np.where(np.diff(self.P.indptr) == self.P.shape[0], -1, groups.label).astype(np.int64)

    def proven_again(self) -> tuple[float, Certificate]:
        """Loss gap and certificate at a loss, computed again from W, A, the features and the probabilities."""
        merging = Merging.of_tokens(self.P)
        distinct = DistinctFeatures.of(self.features.matrix, largest_rows=self.weights is not None)
        problem = TiedLogits.of(self.P, self.pi, distinct.matrix, merging, Backend.on()).at(self.lam)
        W = self.W[np.unique(merging.row_of, return_index=True)[1]]
        A = distinct.of_distinct(self.A)
        if self.weights is None:
            X = A.T @ (W * np.sqrt(merging.a)[:, None]).T
            return problem.loss_gap(X), problem.certify(X, problem.change(X))
        factors = MaxNormFactors(W, A)
        dual = WeightedDual(self.change, *map(np.sqrt, self.weights)).normalised(problem.backend)
        given = None if self.change is None else problem.loss.layout.split(self.change)
        return problem.loss_gap(factors), problem.reweighted(dual.r, dual.c).certify(factors, given)

    def summary(self) -> str:
        """Ties, loss gap, norm with its proof, and rank, one sentence per line."""
        where = (
            "In the limit of training"
            if self.in_limit
            else (f"At a loss gap of {self.loss_gap:.4g} nats (entropy floor {self.entropy:.4f})")
        )
        what = "separate every support" if self.in_limit else "have this loss"
        return "\n".join(
            [
                f"{self.features.m:,} contexts tied by {self.features.F:,} features ({self.features.ties}).",
                f"{where}: {NORMS[self.norm]} {self.norm_value:.6g}, proven within {self.relative_gap:.1e} of the "
                f"smallest with which these features {what}.",
                f"Rank {self.rank}; {self.status}.",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "ties": self.features.ties,
            "features": self.features.F,
            "loss_gap": self.loss_gap,
            "lam": self.lam,
            "norm": self.norm,
            "norm_value": self.norm_value,
            "nuclear_norm": self.nuclear_norm,
            "lower_bound": self.lower_bound,
            "relative_gap": self.relative_gap,
            "rank": self.rank,
            "entropy_nats": self.entropy,
            "statistics_hash": self.statistics_hash,
        }

    @property
    def _source(self) -> str:
        where = "in the limit" if self.in_limit else f"at a loss gap of {self.loss_gap:.3g} nats"
        return f"predicted {where} with contexts tied by {self.features.ties}"

    def _pulls(self) -> Pulls | str:
        shown = "With ties, what pulls an item is shown for predictions at a loss, not in the limit."
        return shown if self.in_limit else pulls_with_ties(self)

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("ties", f"{self.features.ties}: {self.features.F:,} features"),
            ("loss gap", "0 (limit)" if self.in_limit else f"{self.loss_gap:.4g} nats"),
            (NORMS[self.norm], f"{self.norm_value:.6g}"),
            ("rank", f"{self.rank}"),
            ("proven gap", f"{self.relative_gap:.1e}"),
        ]

    def _write(self, folder: Path) -> dict[str, Any]:
        return write_tied(self, folder)

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> TiedPrediction:
        return read_tied(cls, folder, manifest)
