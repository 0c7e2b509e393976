"""A decoder with fixed embeddings compared with its prediction: direction, finite part, and margins in each norm.

``cosine``, ``cosine_without_finite``   ``cos(W, W^mm)`` and ``cos(W - W*, W^mm)``; 1 is best
``finite_error``                        ``||P_F(W) - W*|| / ||W*||``; 0 is best, absolute when ``W* = 0``
``margin_{norm}``                       smallest margin per unit of a norm; larger is better

where ``F = span{(e_z - e_z') h_j^T : z, z' in S_j}``. The first three are sums over tokens, so tokens (rows of W) are
left out (jackknife) and permuted. A margin is a minimum, for which the jackknife is not valid: it has a null but no
interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tokengeom.comparison.agreement import AbstractNumbers, Better, ItemKind, Name, assess
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.inputs import CompareSettings, Observed, run_limitations
from tokengeom.comparison.logit_numbers import cosine_of_products
from tokengeom.comparison.target import flat_names
from tokengeom.comparison.verdict import judge_decoder
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int, blas_threads_for
from tokengeom.problems.ntp_svm import NORMS
from tokengeom.problems.supports import margins
from tokengeom.solvers.finite_part import has_few_equations
from tokengeom.theory.linear import LinearPrediction

EMBEDDING_TOLERANCE = 1e-9
"""Embeddings with a relative distance below this are the same."""


@dataclass(frozen=True, eq=False)
class DecoderNumbers(AbstractNumbers):
    """Cosines with W_mm, error of the finite part, and normalised margins on the effective supports, over V tokens."""

    run: Factors
    prediction: LinearPrediction
    items: ItemKind = "tokens"

    @property
    def units(self) -> Int:
        return np.arange(self.run.W.shape[0], dtype=np.int64)

    @property
    def better(self) -> Mapping[Name, Better]:
        names = ("cosine", "cosine_without_finite", *(f"margin_{norm}" for norm in NORMS))
        return {**{("", name): "higher" for name in names}, ("", "finite_error"): "lower"}

    def values(self) -> Mapping[Name, float]:
        smallest = np.min(margins(self.run.W @ self.run.H, self.prediction.effective_support))
        margin = {name: float(values[0]) for name, values in self._margins(np.array([smallest])).items()}
        return {**super().values(), **margin}

    def resampled(self, draws: Float) -> dict[Name, Float]:
        W, W_mm, W_star = self.run.W, self.prediction.W_mm, self.prediction.W_star

        def products(X: Float, Y: Float) -> Float:
            return np.asarray(draws @ np.einsum("vd,vd->v", X, Y))

        error, size = self.prediction.finite_part(W) - W_star, products(W_star, W_star)
        return {
            **{
                ("", name): cosine_of_products(products(X, W_mm), products(X, X), products(W_mm, W_mm))
                for name, X in (("cosine", W), ("cosine_without_finite", W - W_star))
            },
            ("", "finite_error"): np.sqrt(products(error, error) / np.where(size > 0, size, 1.0)),
        }

    def permuted(self, orders: Int) -> dict[Name, Float]:
        """Each number when the run's tokens are permuted, which does not change the norms of W.

        The error of the finite part is among them only where F has a basis in memory.
        """
        W, W_mm, W_star = self.run.W, self.prediction.W_mm, self.prediction.W_star
        numbers: dict[Name, Float] = {}
        for name, X in (("cosine", W), ("cosine_without_finite", W - W_star)):
            cross = (X @ W_mm.T)[orders, np.arange(self.size)].sum(axis=1)
            numbers["", name] = cosine_of_products(cross, float(np.vdot(X, X)), float(np.vdot(W_mm, W_mm)))
        if has_few_equations(self.prediction.effective_support, self.prediction.data.H):
            size = float(np.linalg.norm(W_star)) or 1.0
            errors = [np.linalg.norm(self.prediction.finite_part(W[order]) - W_star) for order in orders]
            numbers["", "finite_error"] = np.array(errors) / size
        L, S = W @ self.run.H, self.prediction.effective_support
        return numbers | self._margins(np.array([np.min(margins(L[order], S)) for order in orders]))

    def _margins(self, smallest: Float) -> dict[Name, Float]:
        """Smallest margins per unit of each norm of W; NaN where W is 0 or there is no other token."""
        smallest = np.where(np.isfinite(smallest), smallest, np.nan)
        return {("", f"margin_{name}"): smallest / (norm.value(self.run.W) or np.nan) for name, norm in NORMS.items()}


def compare_decoder(
    prediction: LinearPrediction, run: Observed, loss_gap: float | None, settings: CompareSettings
) -> Comparison:
    """Compare a decoder with the prediction for its fixed embeddings."""
    factors = Factors.of(run)
    factors.require_sizes(prediction.data.V, prediction.data.m)
    factors.require_decoder(prediction.W_mm.shape)
    with blas_threads_for(factors.W.shape[0], factors.H.shape[1]):
        numbers = assess(DecoderNumbers(factors, prediction), settings.permutations, settings.seed).agreements()
    floor = 0.0 if prediction.reaches_entropy else prediction.loss_floor - prediction.entropy
    verdict = judge_decoder(numbers["", "cosine_without_finite"])
    gap = getattr(run, "loss_gap", None) if loss_gap is None else loss_gap
    return Comparison(
        prediction_kind="linear",
        verdict=verdict.outcome,
        loss_gap=gap if isinstance(gap, float) else None,
        permutations=settings.permutations,
        seed=settings.seed,
        agreements=flat_names(numbers),
        reasons=verdict.reasons,
        limitations=(*run_limitations(run, loss_gap, floor), *linear_limitations(prediction, factors)),
        compared=(prediction, run),
    )


def linear_limitations(prediction: LinearPrediction, run: Factors) -> list[str]:
    """What does not diverge, is not separable, or belongs to other embeddings."""
    sentences = []
    if not prediction.W_mm.any():
        sentences.append("W_mm is 0, so nothing diverges and cosines with it are not defined.")
    if not prediction.separable:
        sentences.append("The data are not separable: margins and finite part are those of the effective supports.")
    if not prediction.W_star.any():
        sentences.append("W_star is 0: finite_error is the absolute norm of the projection on F.")
    H = prediction.data.H
    distance = float(np.linalg.norm(run.H - H) / np.linalg.norm(H))
    if distance > EMBEDDING_TOLERANCE:
        sentences.append(
            f"The distance of the run's embeddings from those of the prediction is {distance:.2g} (relative): the "
            "prediction is for fixed embeddings, and margins are measured with the run's own."
        )
    sentences.append(
        "Under gradient descent directions converge slowly (for one-hot labels like 1/log(steps)): a cosine below 1 is "
        "expected after any practical number of steps."
    )
    return sentences
