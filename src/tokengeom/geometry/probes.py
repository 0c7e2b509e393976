"""Probes: how far a run is from its predicted limit, measured at every record during training.

``train(stats, ..., probes=linear_probes(prediction))`` or ``probes=feature_probes(prediction)`` adds these columns to
the trajectory. What a probe needs of the prediction is computed once, when the probes are made. A number that is not
defined (nothing diverges, so there is no direction to compare with; a state that is not finite) is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.factors import Factors, factored_logit_distance
from tokengeom.geometry.collapse import subspace_collapse
from tokengeom.geometry.linear_numbers import FiniteDecoder, margin
from tokengeom.geometry.logit_numbers import FiniteLogits
from tokengeom.geometry.similarity import cosine, directional_similarity
from tokengeom.problems.ntp_svm import NORMS, Norm
from tokengeom.theory.proxy import proxy_factors

if TYPE_CHECKING:
    from tokengeom.numerics import Bool, Int
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.theory.linear import LinearPrediction
    from tokengeom.training.loop import Probe, State

Measure = Callable[[Factors], float]


def linear_probes(prediction: LinearPrediction) -> dict[str, Probe]:
    """Probes of a decoder W (V x d) with fixed embeddings, on its path towards ``W* + R W^mm``.

    ``cosine``, ``cosine_without_finite``
        ``cos(W, W^mm)`` and ``cos(W - W*, W^mm)``, in [-1, 1], rising to 1 like ``1 - O(1/log^2 k)``; NaN when nothing
        diverges (``W^mm = 0``).
    ``finite_error``
        ``||P_F(W) - W*|| / ||W*||`` >= 0, falling to 0; absolute when ``W* = 0``. F is that of the effective supports.
    ``margin_frobenius``, ``margin_max``, ``margin_spectral``, ``margin_sum``
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


def feature_probes(prediction: FeaturePrediction) -> dict[str, Probe]:
    """Probes of learned tokens W (V x d) and contexts H (d x m), on their path towards the predicted geometry.

    ``finite_distance``
        ``||P_F(L) - L_in||_F`` >= 0, falling to 0.
    ``logit_distance``
        Distance of the centred, normalised logits from L_mm's, in [0, 2], falling to 0 (slowly, like 1/R).
    ``context_similarity``, ``token_similarity``
        SIM of the run's cosine matrix with L_mm's, in (-1, 1], rising to 1; ``proxy_...`` with the proxy's.
    ``collapse``
        ``subspace_collapse`` of the contexts by support group, >= 0, falling to 0.
    """
    V, m = prediction.reduction.V, prediction.reduction.m
    return {name: partial(_measure, measure, (V, m)) for name, measure in feature_measures(prediction).items()}


def feature_measures(prediction: FeaturePrediction) -> dict[str, Measure]:
    """The same numbers as functions of W and H."""
    direction, proxy = Factors(prediction.W, prediction.H), proxy_factors(prediction.reduction)
    finite, groups = FiniteLogits.of(prediction.P), prediction.context_groups
    return {
        "finite_distance": finite.distance,
        "logit_distance": partial(factored_logit_distance, direction),
        "context_similarity": partial(_context_similarity, direction),
        "token_similarity": partial(_token_similarity, direction),
        "proxy_context_similarity": partial(_context_similarity, proxy),
        "proxy_token_similarity": partial(_token_similarity, proxy),
        "collapse": partial(_collapse, groups),
    }


def _measure(measure: Measure, shape: tuple[int, int], state: State) -> float:
    """Value of a measure for a state of the right shape; NaN where the state is not finite (a run that diverged)."""
    if (state.W.shape[0], state.H.shape[1]) != shape:
        raise ProblemError(
            f"The prediction is for V x m = {shape[0]} x {shape[1]}; the run has W of shape {state.W.shape} and H of "
            f"shape {state.H.shape}. Likely different statistics: predict and train on the same ones."
        )
    if not (np.isfinite(state.W).all() and np.isfinite(state.H).all()):
        return float("nan")
    return measure(Factors(state.W, state.H, state.readout.bias))


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


def _collapse(groups: Int, state: Factors) -> float:
    return subspace_collapse(state.H, groups)
