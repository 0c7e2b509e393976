"""Probes: agreement of a run with the predictions at its loss and in the limit, at every record during training.

``train(stats, ..., probes=linear_probes(prediction))`` or ``probes=feature_probes(prediction)`` adds these columns to
the trajectory. What a probe needs of the prediction is computed once, when the probes are made. A number that is not
defined (nothing diverges, so there is no direction to compare with; a state that is not finite) is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial

import numpy as np

from tokengeom.comparison.inputs import support_groups
from tokengeom.comparison.linear_numbers import FiniteDecoder, margin
from tokengeom.comparison.logit_numbers import FiniteLogits
from tokengeom.comparison.similarity import cosine, directional_agreement, directional_similarity, subspace_collapse
from tokengeom.comparison.target import LIMIT, PROXY, loss_path
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors, factored_logit_distance
from tokengeom.core.numerics import Bool, Int
from tokengeom.problems.ntp_svm import NORMS, Norm
from tokengeom.problems.regularised_logits import Merging
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.loss_path import LossPath
from tokengeom.theory.proxy import proxy_factors
from tokengeom.training.loop import Probe, State

Measure = Callable[[State], float]

PER_DECADE = 4
"""Losses per decade at which predictions are made: every other loss is within a factor of 1.34 of one of them."""
TOLERANCE = 2e-3
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
    finite = FiniteDecoder.of(prediction)
    W_mm, W_star, S = prediction.W_mm, prediction.W_star, prediction.effective_support
    measures: dict[str, Measure] = {
        "cosine": lambda state: cosine(state.W, W_mm),
        "cosine_without_finite": lambda state: cosine(state.W - W_star, W_mm),
        "finite_error": lambda state: finite.error(state.W),
    }
    for name, norm in NORMS.items():
        measures[f"margin_{name}"] = partial(_margin, S, norm)
    return _probes(measures, lambda run: run.require_decoder(W_mm.shape))


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
    limit, proxy = Factors(prediction.W, prediction.H), proxy_factors(prediction.reduction)
    finite, groups = FiniteLogits.of(prediction.P), support_groups(prediction)
    measures: dict[str, Measure] = {}
    if Merging.of(prediction.P).entries <= AT_LOSS_ENTRIES if at_loss is None else at_loss:
        predictions = PredictionsAtLoss(prediction, norm)
        measures |= _agreements(lambda state: predictions.factors_at(state.labels.loss_gap(state.L)), groups)
    in_limit = _agreements(lambda state: limit, groups)
    measures |= {LIMIT.named(name): measure for name, measure in in_limit.items()}
    measures |= {
        "finite_distance": lambda state: finite.distance(state.readout),
        "logit_distance": lambda state: factored_logit_distance(limit, state.readout),
        **_similarities(limit),
        **{PROXY.named(name): measure for name, measure in _similarities(proxy).items()},
        "collapse": lambda state: subspace_collapse(state.H, prediction.context_groups),
    }
    return _probes(measures, lambda run: run.require_sizes(V, m))


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
        self.prediction, self.norm = prediction, norm
        self.per_decade, self.tolerance = per_decade, tolerance
        self._solved: dict[int, LossPrediction | None] = {}

    @cached_property
    def _path(self) -> LossPath:
        return loss_path(self.prediction, self.norm, self.tolerance)

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

    def factors_at(self, gap: float) -> Factors | None:
        """W and H of that prediction."""
        prediction = self.at(gap)
        return None if prediction is None else Factors(prediction.W, prediction.H)


def _probes(measures: Mapping[str, Measure], require_shape: Callable[[Factors], None]) -> dict[str, Probe]:
    """Measures of states that are checked first; NaN where a state is not finite (a run that diverged)."""

    def probe(measure: Measure, state: State) -> float:
        require_shape(state.readout)
        is_finite = np.isfinite(state.W).all() and np.isfinite(state.H).all()
        return measure(state) if is_finite else float("nan")

    return {name: partial(probe, measure) for name, measure in measures.items()}


def _margin(S: Bool, norm: Norm, state: State) -> float:
    return margin(state.W @ state.H, S, norm.value(state.W))


def _similarities(target: Factors) -> dict[str, Measure]:
    """SIM of contexts and of tokens with a target."""
    return {
        "context_similarity": lambda state: directional_similarity(
            target.context_directions, state.readout.context_directions
        ),
        "token_similarity": lambda state: directional_similarity(
            target.token_directions, state.readout.token_directions
        ),
    }


def _agreements(target_of: Callable[[State], Factors | None], groups: Int) -> dict[str, Measure]:
    """Agreement of contexts and of tokens with the target of each state; NaN where it has none."""

    def contexts(state: State) -> float:
        target, run = target_of(state), state.readout
        if target is None:
            return float("nan")
        return directional_agreement(target.context_directions, run.context_directions, groups)

    def tokens(state: State) -> float:
        target, run = target_of(state), state.readout
        return float("nan") if target is None else directional_agreement(target.token_directions, run.token_directions)

    return {"context_agreement": contexts, "token_agreement": tokens}
