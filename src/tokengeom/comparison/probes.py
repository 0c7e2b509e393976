"""Probes: agreement of a run with the predictions at its loss and in the limit, at every record during training.

``train(stats, ..., probes=linear_probes(prediction))`` or ``probes=feature_probes(prediction)`` adds these columns to
the trajectory. What a probe needs of the prediction is computed once, when the probes are made. A number that is not
defined (nothing diverges, so there is no direction to compare with; a state that is not finite) is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from tokengeom.comparison.inputs import support_groups
from tokengeom.comparison.linear_numbers import FiniteDecoder, margin
from tokengeom.comparison.logit_numbers import FiniteLogits
from tokengeom.comparison.similarity import (
    cosine,
    directional_agreement,
    directional_similarity,
    subspace_collapse,
)
from tokengeom.comparison.target import LIMIT, PROXY
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors, factored_logit_distance
from tokengeom.core.numerics import Bool, Int
from tokengeom.problems.ntp_svm import NORMS, Norm
from tokengeom.problems.regularised_logits import Merging
from tokengeom.theory.at_loss import LossPrediction, LossSettings
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.loss_path import LossPath
from tokengeom.theory.proxy import proxy_factors
from tokengeom.training.loop import Probe, State

Measure = Callable[[Factors], float]

PER_DECADE = 4
"""Losses per decade at which predictions are made: every other loss is within a factor of 1.34 of one of them."""
TOLERANCE = 1e-2
"""Proven relative gap of these predictions."""
SMALLEST_GAP = 1e-10
"""Loss gap in nats below which there is only the prediction in the limit."""
AT_LOSS_ENTRIES = 50_000
"""Merged tokens times contexts up to which they are made by default: 3 s for a run on 104 tokens, 382 contexts."""
MOST_KEPT = 8
"""Predictions kept, so that a loss that rises and falls is not solved for again."""


def linear_probes(prediction: LinearPrediction) -> dict[str, Probe]:
    """Probes of a decoder W (V x d) with fixed embeddings, on its path towards ``W* + R W^mm``.

    ``cosine``, ``cosine_without_finite``
        ``cos(W, W^mm)`` and ``cos(W - W*, W^mm)``, in [-1, 1], rising to 1 like ``1 - O(1/log^2 k)``; NaN when nothing
        diverges (``W^mm = 0``).
    ``finite_error``
        ``||P_F(W) - W*|| / ||W*||`` >= 0, falling to 0; absolute when ``W* = 0``. F is that of the effective supports.
    ``margin_frobenius``, ``margin_max``, ``margin_spectral``, ``margin_nuclear``, ``margin_sum``
        Smallest margin of a context's (effective) support over its other tokens, in-support mean minus off-support
        logit, per unit of a norm of W. Positive once all contexts are separated; larger is better. The Frobenius margin
        tends to ``prediction.effective_margin``. NaN when there is no other token, or W = 0.
    """
    measures = linear_measures(prediction)
    return {name: partial(_measure_linear, measure, prediction.W_mm.shape) for name, measure in measures.items()}


def linear_measures(prediction: LinearPrediction) -> dict[str, Measure]:
    """The same numbers as functions of W and H."""
    finite = FiniteDecoder.of(prediction)
    W_mm, W_star, S = prediction.W_mm, prediction.W_star, prediction.effective_support
    measures: dict[str, Measure] = {
        "cosine": lambda state: cosine(state.W, W_mm),
        "cosine_without_finite": lambda state: cosine(state.W - W_star, W_mm),
        "finite_error": lambda state: finite.error(state.W),
    }
    for name, norm in NORMS.items():
        measures[f"margin_{name}"] = partial(_margin, S, norm)
    return measures


def feature_probes(
    prediction: FeaturePrediction, *, at_loss: bool | None = None, norm: str = "nuclear"
) -> dict[str, Probe]:
    """Probes of learned tokens W (V x d) and contexts H (d x m), on their path towards the predicted geometry.

    ``context_agreement``, ``token_agreement``
        Correlation of the run's cosines with those of the prediction at the record's own loss, over pairs of contexts
        with different supports and of different tokens, in [-1, 1]; NaN where the loss is not below that of a uniform
        guess. Predictions are made for four losses per decade, and the nearest one is used: it is within a factor of
        1.34 of the record's.
    ``limit_context_agreement``, ``limit_token_agreement``
        The same with L_mm, the prediction in the limit.
    ``finite_distance``
        ``||P_F(L) - L_in||_F`` >= 0, falling to 0.
    ``logit_distance``
        Distance of the centred, normalised logits from L_mm's, in [0, 2], falling to 0 (slowly, like 1/R).
    ``context_similarity``, ``token_similarity``
        SIM of the run's cosine matrix with L_mm's, in (-1, 1], rising to 1; ``proxy_...`` with the proxy's.
    ``collapse``
        ``subspace_collapse`` of the contexts by support group, >= 0, falling to 0.

    Parameters
    ----------
    at_loss
        Whether to compare with predictions at each record's loss; by default up to 50,000 pairs of distinct tokens
        and distinct contexts, where a whole run costs a few seconds.
    norm
        Norm of these predictions: nuclear, or gamma2, which goes with AdamW.
    """
    V, m = prediction.reduction.V, prediction.reduction.m
    probes: dict[str, Probe] = {}
    if Merging.of(prediction.P).entries <= AT_LOSS_ENTRIES if at_loss is None else at_loss:
        path = _PathOfRun(prediction, norm)
        probes = {"context_agreement": path.context_agreement, "token_agreement": path.token_agreement}
    return probes | {name: partial(_measure, measure, (V, m)) for name, measure in feature_measures(prediction).items()}


def feature_measures(prediction: FeaturePrediction) -> dict[str, Measure]:
    """The numbers that need no solver, as functions of W and H."""
    direction, proxy = Factors(prediction.W, prediction.H), proxy_factors(prediction.reduction)
    finite, groups = FiniteLogits.of(prediction.P), prediction.context_groups
    return {
        LIMIT.named("context_agreement"): partial(_context_agreement, direction, groups),
        LIMIT.named("token_agreement"): partial(_token_agreement, direction),
        "finite_distance": finite.distance,
        "logit_distance": partial(factored_logit_distance, direction),
        "context_similarity": partial(_context_similarity, direction),
        "token_similarity": partial(_token_similarity, direction),
        PROXY.named("context_similarity"): partial(_context_similarity, proxy),
        PROXY.named("token_similarity"): partial(_token_similarity, proxy),
        "collapse": partial(_collapse, groups),
    }


class PredictionsAtLoss:
    """Predictions at the losses that a run passes, on a grid of losses, each solved from the nearest one before it.

    ``per_decade``
        Losses per decade at which predictions are made; the one nearest to the loss asked for is returned.
    ``tolerance``
        Their proven relative gap.
    """

    def __init__(
        self, prediction: FeaturePrediction, norm: str, *, per_decade: int = PER_DECADE, tolerance: float = TOLERANCE
    ) -> None:
        self.prediction, self.per_decade = prediction, per_decade
        self.settings = LossSettings(norm=norm, tolerance=tolerance)
        self._solved: dict[int, LossPrediction | None] = {}

    @cached_property
    def _path(self) -> LossPath:
        limit = self.prediction
        return LossPath(
            limit.P,
            limit.pi,
            entropy=limit.entropy,
            statistics_hash=limit.statistics_hash,
            settings=self.settings,
        )

    def at(self, gap: float) -> LossPrediction | None:
        """The prediction at the loss of the grid nearest to this one; None where there is none."""
        largest = self.prediction.largest_gap
        if not SMALLEST_GAP < gap < largest:
            return None
        step = round(self.per_decade * math.log10(largest / gap))
        if step not in self._solved:
            if len(self._solved) >= MOST_KEPT:
                del self._solved[next(iter(self._solved))]
            try:
                # The path begins below the largest gap.
                self._solved[step] = self._path.at(largest * 10.0 ** (-max(step, 0.25) / self.per_decade))
            except ProblemError:
                self._solved[step] = None
        return self._solved[step]


class _PathOfRun:
    """Agreement of a run's records with the prediction at the loss of each."""

    def __init__(self, prediction: FeaturePrediction, norm: str) -> None:
        self.shape = prediction.reduction.V, prediction.reduction.m
        self.groups, self.predictions = support_groups(prediction), PredictionsAtLoss(prediction, norm)

    def context_agreement(self, state: State) -> float:
        """Over pairs of contexts with different supports."""
        return self._agreement(state, lambda target, run: _context_agreement(target, self.groups, run))

    def token_agreement(self, state: State) -> float:
        """Over pairs of different tokens."""
        return self._agreement(state, _token_agreement)

    def _agreement(self, state: State, number: Callable[[Factors, Factors], float]) -> float:
        def measure(run: Factors) -> float:
            target = self.predictions.at(state.labels.loss_gap(state.L))
            return float("nan") if target is None else number(Factors(target.W, target.H), run)

        return _measure(measure, self.shape, state)


def _measure(measure: Measure, shape: tuple[int, int], state: State) -> float:
    """Value of a measure for a state of the right shape; NaN where the state is not finite (a run that diverged)."""
    if (state.W.shape[0], state.H.shape[1]) != shape:
        raise ProblemError(
            f"The prediction is for V x m = {shape[0]} x {shape[1]}; the run has W of shape {state.W.shape} and H of "
            f"shape {state.H.shape}. Likely different statistics: predict and train on the same ones."
        )
    if not (np.isfinite(state.W).all() and np.isfinite(state.H).all()):
        return float("nan")
    return measure(state.readout)


def _measure_linear(measure: Measure, shape: tuple[int, int], state: State) -> float:
    if state.W.shape != shape:
        raise ProblemError(
            f"The prediction is for a decoder V x d = {shape[0]} x {shape[1]}; the run has W of shape "
            f"{state.W.shape}. Train with the embeddings that the prediction was made for."
        )
    return _measure(measure, (shape[0], state.H.shape[1]), state)


def _margin(S: Bool, norm: Norm, state: Factors) -> float:
    return margin(state.W @ state.H, S, norm.value(state.W))


def _context_similarity(target: Factors, state: Factors) -> float:
    return directional_similarity(target.context_directions, state.context_directions)


def _token_similarity(target: Factors, state: Factors) -> float:
    return directional_similarity(target.token_directions, state.token_directions)


def _context_agreement(target: Factors, groups: Int, state: Factors) -> float:
    return directional_agreement(target.context_directions, state.context_directions, groups)


def _token_agreement(target: Factors, state: Factors) -> float:
    return directional_agreement(target.token_directions, state.token_directions)


def _collapse(groups: Int, state: Factors) -> float:
    return subspace_collapse(state.H, groups)
