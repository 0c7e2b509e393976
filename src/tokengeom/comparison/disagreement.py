"""Where a disagreement comes from: how economical the logits are, and how W and H share them.

``efficiency``       smallest norm of logits with this loss, divided by the norm of the run's logits: in (0, 1]. Low
                     means logits that are larger than the loss needs
``split``            agreement of W and H with the balanced factors of the run's own logits, ``U Sigma^{1/2}`` and
                     ``Sigma^{1/2} V^T`` of ``L = U Sigma V^T``: 1 where both factors share the logits equally
``split_exponent``   slope of ``log ||W^T u_k||`` against ``log sigma_k``: 1/2 when balanced, below it where the tokens
                     are the lazy factor, above it where the contexts are

Prediction and logits can agree while the embeddings do not, if the split is far from balanced: gradient flow keeps
``W^T W - H H^T``, so an imbalance at the start remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.comparison.target import NormName
from tokengeom.core.factors import Factors
from tokengeom.results.convert import Number
from tokengeom.theory.at_loss import NORMS

if TYPE_CHECKING:
    from tokengeom.core.numerics import Float, Int

LOW_EFFICIENCY = 0.7
LOW_SPLIT = 0.9
"""Values below which the diagnosis names a cause."""
FAR_EXPONENT = 0.15
"""Distance of the split exponent from 1/2 from which on a factor is called lazy."""
SMALLEST_SINGULAR = 1e-3
"""Singular values below this share of the largest are left out of the exponent."""
LARGE_FACTOR = 2_000_000
"""Entries of W from which its singular values come from ``W^T W``: exact to 1e-8 of the largest, instead of 1e-16."""


@dataclass(frozen=True)
class Disagreement:
    """The numbers above; NaN for what is not known.

    ``norm``
        Norm in which the efficiency is measured.
    ``efficiency``, ``efficiency_high``
        Proven lower and upper bound. The lower one comes from the certificate and is close to the efficiency itself;
        the upper one comes from logits with the run's loss, and is 1 where none were found.
    """

    norm: NormName
    efficiency: Number
    efficiency_high: Number
    split_contexts: Number
    split_tokens: Number
    split_exponent: Number

    @property
    def lazy_factor(self) -> str | None:
        """The factor, tokens or contexts, that carries clearly less than half of the logits, if any."""
        away = self.split_exponent - 0.5
        return None if not abs(away) > FAR_EXPONENT else "tokens" if away < 0 else "contexts"

    def sentences(self) -> list[str]:
        """What the numbers say about this run."""
        sentences = []
        if np.isfinite(self.efficiency):
            sentences.append(
                f"Efficiency at least {self.efficiency:.3f} (proven, and at most {self.efficiency_high:.3f}): no "
                f"logits with this loss have less than {self.efficiency:.1%} of the run's {NORMS[self.norm]}."
            )
        if np.isfinite(self.split_contexts):
            sentences.append(
                f"Split: the run's contexts and tokens agree with the balanced factors of its own logits to "
                f"{self.split_contexts:.3f} and {self.split_tokens:.3f}{self._exponent()}."
            )
        return sentences

    def _exponent(self) -> str:
        known = np.isfinite(self.split_exponent)
        return f"; the split exponent is {self.split_exponent:.2f} (0.5 when balanced)" if known else ""

    def remedies(self) -> list[str]:
        """What to change in training, for numbers that are low."""
        sentences = []
        if self.efficiency < LOW_EFFICIENCY:
            sentences.append(
                "The logits are larger than the loss needs. A lower learning rate, weight decay or a norm before the "
                "last layer makes them more economical."
            )
        if self.lazy_factor is not None:
            sentences.append(
                f"The {self.lazy_factor} carry less than their share of the logits. A smaller start, or a higher "
                f"learning rate for the {self.lazy_factor}, balances the factors."
            )
        return sentences


def balanced_factors(run: Factors, tokens: Int | None = None) -> tuple[Factors, Float, Float]:
    """Balanced factors of the run's centred logits, ``||W^T u_k||`` (r) and the singular values (r).

    ``tokens``
        Tokens whose rows are wanted; None for all. Singular vectors are those of all tokens.
    """
    A, B = run.centred_logits
    RA = _root_of_gram(A)
    QB, RB = np.linalg.qr(B.T)
    with np.errstate(over="ignore", invalid="ignore"):
        core = RA @ RB.T
    # Logits that overflow have no factors.
    _, s, Vt = np.linalg.svd(core if np.isfinite(core).all() else np.zeros_like(core))
    r = int((s > SMALLEST_SINGULAR**2 * s[0]).sum()) if s.size and s[0] > 0 else 0
    s, V = s[:r], QB @ Vt[:r].T
    # L V = U Sigma, so U = A X; and W^T U has the first d rows of A^T A X.
    X, root = (B @ V) / s, np.sqrt(s)
    carried = np.linalg.norm((RA.T @ (RA @ X))[: run.W.shape[1]], axis=0) if r else np.zeros(0)
    rows = A if tokens is None else A[tokens]
    return Factors((rows @ X) * root, (V * root).T), carried, s


def _root_of_gram(A: Float) -> Float:
    """A small matrix R with ``R^T R = A^T A``; from the Gram matrix itself where a QR decomposition would take long."""
    if A.size <= LARGE_FACTOR:
        return np.asarray(np.linalg.qr(A, mode="r"))
    values, vectors = np.linalg.eigh(A.T @ A)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def split_exponent(carried: Float, s: Float) -> float:
    """Slope of ``log ||W^T u_k||`` against ``log sigma_k``; NaN where fewer than three singular values count."""
    kept = (s > SMALLEST_SINGULAR * s[0]) & (carried > 0) if s.size else np.zeros(0, bool)
    if kept.sum() < 3 or np.ptp(np.log(s[kept])) < 1e-6:
        return float("nan")
    return float(np.polyfit(np.log(s[kept]), np.log(carried[kept]), 1)[0])


def disagreement(
    run: Factors, groups: Int, norm: str, efficiency: tuple[float, float], seen: Int | None = None
) -> Disagreement:
    """The numbers of a run; ``groups`` (m) are the units of its contexts, ``seen`` the tokens that follow some."""
    balanced, carried, s = balanced_factors(run, seen)
    if not s.size:
        return Disagreement(norm, *efficiency, *[float("nan")] * 3)
    tokens = (run if seen is None else run.rows(seen)).tokens
    contexts = SimilarityNumbers.of("contexts", run.H, {"": balanced.H}, groups).values()
    similar = SimilarityNumbers.of("tokens", tokens, {"": balanced.tokens}).values()
    split = contexts["", "context_agreement"], similar["", "token_agreement"]
    return Disagreement(norm, *efficiency, *split, split_exponent(carried, s))
