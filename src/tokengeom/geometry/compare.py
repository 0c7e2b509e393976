"""What a comparison must not be taken for, in plain sentences made from the prediction and the run.

The verb: a prediction and a run in, agreement numbers with intervals and a null out.

Numbers are compared that neither the rotation R of ``W R, R^T H`` nor a softmax shift can move: cosines, Grams, centred
normalised logits, projections on F. Each comes against L_mm and, with the prefix ``proxy_``, against the proxy S~.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.factors import Factors
from tokengeom.geometry.agreement import AbstractNumbers, Agreement, assess, check_draws
from tokengeom.geometry.comparison import MEANINGS, Comparison
from tokengeom.geometry.linear_numbers import DecoderNumbers, MarginNumbers
from tokengeom.geometry.logit_numbers import CollapseNumbers, FiniteLogits, LogitNumbers
from tokengeom.geometry.similarity_numbers import RANK_ITEMS, SimilarityNumbers
from tokengeom.geometry.targets import direction_factors, proxy_factors
from tokengeom.numerics import blas_threads_for
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokengeom.factors import Factors
    from tokengeom.geometry.similarity_numbers import SimilarityNumbers
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.theory.linear import LinearPrediction
    from tokengeom.theory.proxy import ProxyPrediction


ALIKE = 1e-9
"""Embeddings closer than this, relatively, are the same."""


def feature_caveats(prediction: FeaturePrediction, run: Factors, raw: Any) -> list[str]:
    """Caveats of a comparison of learned features."""
    d, proof = run.H.shape[0], prediction.certificate
    found = [*run_state(raw), *prediction.warnings]
    if prediction.rank == 0:
        return found
    found.append(_uniqueness(prediction))
    if proof.relative_gap > 1e-4:
        found.append(f"L_mm is proven only to a relative gap of {proof.relative_gap:.1e}.")
    if not prediction.suffices(d):
        found.append(
            f"The run has d={d} < rank L_mm = {prediction.rank}: it cannot hold the predicted geometry, so that "
            "disagreement is expected and does not speak against the prediction."
        )
    if prediction.proxy_is_exact:
        found.append("The proxy is exact here: its numbers are those of L_mm as far as L_mm is unique.")
    return [*found, *_groups(prediction)]


def proxy_caveats(prediction: ProxyPrediction, raw: Any) -> list[str]:
    """Caveats of a comparison with the proxy alone."""
    return [*run_state(raw), f"{prediction.summary()} How far S~ is from L_mm is not known here."]


def sample_caveats(numbers: SimilarityNumbers, rank_items: int) -> list[str]:
    """Say where pairs were sampled."""
    found = []
    if numbers.size < numbers.kept.size:
        found.append(
            f"Of {numbers.kept.size} {numbers.items}, {numbers.size} drawn at random give the correlations, intervals "
            "and null: intervals are wider than all of them would give."
        )
    if numbers.size > rank_items:
        found.append(f"Spearman correlations of {numbers.items} use {rank_items} drawn at random.")
    return found


def linear_caveats(prediction: LinearPrediction, run: Factors, raw: Any) -> list[str]:
    """Caveats of a comparison with fixed embeddings."""
    found = run_state(raw, 0.0 if prediction.reaches_entropy else prediction.loss_floor - prediction.entropy)
    if not prediction.W_mm.any():
        found.append("Nothing diverges (W_mm = 0): there is no direction to agree with, and cosines are not defined.")
    if not prediction.separable:
        found.append("The data are not separable: margins and F are those of the effective supports.")
    if not prediction.W_star.any():
        found.append("W_star is 0: finite_error is the absolute norm of the projection on F.")
    H = prediction.data.H
    away = float(np.linalg.norm(run.H - H) / np.linalg.norm(H))
    if away > ALIKE:
        found.append(
            f"The run's embeddings are {away:.2g} (relative) from those that the prediction was made for: the "
            "prediction is for fixed embeddings, margins are measured with the run's own."
        )
    found.append(
        "Directions converge like 1/log(steps) for gradient descent: a cosine below 1 after any number of steps "
        "that can be run is expected."
    )
    return found


def run_state(raw: Any, floor: float = 0.0) -> list[str]:
    """How far the run came; ``floor`` is what ``CE - H`` tends to: 0, unless the entropy is out of reach."""
    status, gap = getattr(raw, "status", None), getattr(raw, "loss_gap", None)
    found = []
    if isinstance(status, str) and status != "finished":
        found.append(f"The run is not complete: {status}.")
    if isinstance(gap, float):
        found.append(f"The run's loss is {gap - floor:.3g} nats above its floor; the prediction is for the limit 0.")
    return found


def _uniqueness(prediction: FeaturePrediction) -> str:
    tight = prediction.pinned.tight_share()
    proven = f"The certificate pins down {tight:.0%} of the margins of L_mm for every optimal answer"
    if prediction.spread is None:
        return f"{proven}; whether L_mm is unique was not measured (spread_solves=2 does)."
    if prediction.spread.looks_unique:
        return f"{proven}; {_lowered(prediction.spread.sentence)}"
    return f"{proven}. {prediction.spread.sentence} Agreement with this one L_mm beyond that spread means nothing."


def _groups(prediction: FeaturePrediction) -> list[str]:
    n, m = prediction.reduction.n, prediction.reduction.m
    left_out = m - int(n.sum())
    found = []
    if left_out:
        found.append(f"{left_out} of {m} contexts have full support, no predicted direction, and are left out.")
    if n.size and n.max() > 1:
        share = float((n * (n - 1)).sum() / max(n.sum() * (n.sum() - 1), 1.0))
        found.append(
            f"{int(n.sum())} contexts share {n.size} supports, {share:.1%} of their pairs one support: part of the "
            "agreement is collapse. Intervals treat contexts as independent draws; those of one support are not."
        )
    elif n.size:
        found.append("No two contexts share a support: collapse is not defined on these data.")
    return found


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


__all__ = ["Agreement", "Comparison", "compare"]


def compare(
    prediction: FeaturePrediction | LinearPrediction | ProxyPrediction,
    run: Any,
    *,
    resamples: int = 200,
    permutations: int = 200,
    seed: int = 0,
) -> Comparison:
    """Hold a run against a prediction.

    ``prediction``
        Of learned features, of the linear model, or of the proxy alone (every name then starts with ``proxy_``).
    ``run``
        What ``train`` returned, any object with W (V x d) and H (d x m) (and ``bias``), or the pair (W, H).
    ``resamples``, ``permutations``
        Draws behind the intervals and the null; 0 leaves them out (NaN).
    """
    check_draws(resamples, permutations)
    factors = Factors.of(run)
    kind, families, caveats = _prepare(prediction, factors, run)
    found: dict[str, Agreement] = {}
    with blas_threads_for(factors.W.shape[0], factors.H.shape[1]):
        for numbers in families:
            found |= assess(numbers, resamples=resamples, permutations=permutations, seed=seed)
    return Comparison(_ordered(found), kind, tuple(caveats), resamples, permutations, seed, (prediction, run))


def _prepare(prediction: Any, factors: Factors, run: Any) -> tuple[str, list[AbstractNumbers], list[str]]:
    """Kind of the comparison, its numbers and its caveats, once the shapes are known to fit."""
    if isinstance(prediction, LinearPrediction):
        factors.require_sizes(prediction.data.V, prediction.data.m)
        factors.require_decoder(prediction.W_mm.shape)
        families: list[AbstractNumbers] = [DecoderNumbers(factors, prediction), MarginNumbers(factors, prediction)]
        return "linear", families, linear_caveats(prediction, factors, run)
    if isinstance(prediction, FeaturePrediction):
        factors.require_sizes(prediction.reduction.V, prediction.reduction.m)
        families = feature_families(prediction, factors)
        return "features", families, feature_caveats(prediction, factors, run) + _sampling(families)
    if isinstance(prediction, ProxyPrediction):
        factors.require_sizes(prediction.U.shape[0], prediction.Vt.shape[1])
        families = _families(factors, {"proxy_": direction_factors(prediction)}, None)
        return "features", families, proxy_caveats(prediction, run) + _sampling(families)
    raise ProblemError(
        f"A prediction must come from predict; got {type(prediction).__name__}. Call compare(prediction, run), in this "
        "order."
    )


def feature_families(prediction: FeaturePrediction, run: Factors) -> list[AbstractNumbers]:
    """Every number of learned features, with what it needs of the prediction."""
    targets = {"": direction_factors(prediction), "proxy_": proxy_factors(prediction.reduction)}
    families = _families(run, targets, FiniteLogits.of(prediction.P))
    return [*families, CollapseNumbers(run.H, prediction.context_groups)]


def _families(run: Factors, targets: dict[str, Factors], finite: FiniteLogits | None) -> list[AbstractNumbers]:
    return [
        SimilarityNumbers("contexts", run.H, {prefix: target.H for prefix, target in targets.items()}),
        SimilarityNumbers("tokens", run.tokens, {prefix: target.tokens for prefix, target in targets.items()}),
        LogitNumbers(run, targets, finite),
    ]


def _sampling(families: Iterable[AbstractNumbers]) -> list[str]:
    return [s for f in families if isinstance(f, SimilarityNumbers) for s in sample_caveats(f, RANK_ITEMS)]


def _ordered(found: dict[str, Agreement]) -> dict[str, Agreement]:
    """Numbers against L_mm first, in the order of their meanings, then those against the proxy."""
    names = [*MEANINGS, *(f"proxy_{name}" for name in MEANINGS)]
    return {name: found[name] for name in names if name in found}
