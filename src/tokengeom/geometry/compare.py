"""The verb: a prediction and a run in, agreement numbers with intervals and a null out.

Numbers are compared that neither the rotation R of ``W R, R^T H`` nor a softmax shift can move: cosines, Grams, centred
normalised logits, projections on F. Each comes against L_mm and, with the prefix ``proxy_``, against the proxy S~.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokengeom.errors import ProblemError
from tokengeom.geometry.agreement import AbstractNumbers, Agreement, assess, check_draws
from tokengeom.geometry.caveats import feature_caveats, linear_caveats, proxy_caveats, sample_caveats
from tokengeom.geometry.comparison import MEANINGS, Comparison
from tokengeom.geometry.finite import FiniteLogits
from tokengeom.geometry.linear_numbers import DecoderNumbers, MarginNumbers
from tokengeom.geometry.logit_numbers import CollapseNumbers, LogitNumbers
from tokengeom.geometry.observed import observe, require_decoder, require_sizes
from tokengeom.geometry.similarity_numbers import RANK_ITEMS, SimilarityNumbers
from tokengeom.geometry.targets import Factors, direction_factors, proxy_factors
from tokengeom.solvers.blas_threads import blas_threads_for
from tokengeom.theory.feature_prediction import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.sparse_proxy import ProxyPrediction

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    factors = observe(run)
    kind, families, caveats = _prepare(prediction, factors, run)
    found: dict[str, Agreement] = {}
    with blas_threads_for(factors.W.shape[0], factors.H.shape[1]):
        for numbers in families:
            found |= assess(numbers, resamples=resamples, permutations=permutations, seed=seed)
    return Comparison(_ordered(found), kind, tuple(caveats), resamples, permutations, seed, (prediction, run))


def _prepare(prediction: Any, factors: Factors, run: Any) -> tuple[str, list[AbstractNumbers], list[str]]:
    """Kind of the comparison, its numbers and its caveats, once the shapes are known to fit."""
    if isinstance(prediction, LinearPrediction):
        require_sizes(factors, prediction.data.V, prediction.data.m)
        require_decoder(factors, prediction.W_mm.shape)
        families: list[AbstractNumbers] = [DecoderNumbers(factors, prediction), MarginNumbers(factors, prediction)]
        return "linear", families, linear_caveats(prediction, factors, run)
    if isinstance(prediction, FeaturePrediction):
        require_sizes(factors, prediction.reduction.V, prediction.reduction.m)
        families = feature_families(prediction, factors)
        return "features", families, feature_caveats(prediction, factors, run) + _sampling(families)
    if isinstance(prediction, ProxyPrediction):
        require_sizes(factors, prediction.U.shape[0], prediction.Vt.shape[1])
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
        SimilarityNumbers("words", run.words, {prefix: target.words for prefix, target in targets.items()}),
        LogitNumbers(run, targets, finite),
    ]


def _sampling(families: Iterable[AbstractNumbers]) -> list[str]:
    return [s for f in families if isinstance(f, SimilarityNumbers) for s in sample_caveats(f, RANK_ITEMS)]


def _ordered(found: dict[str, Agreement]) -> dict[str, Agreement]:
    """Numbers against L_mm first, in the order of their meanings, then those against the proxy."""
    names = [*MEANINGS, *(f"proxy_{name}" for name in MEANINGS)]
    return {name: found[name] for name in names if name in found}
