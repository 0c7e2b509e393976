"""The verb `compare`: a prediction and a run in, agreement numbers with intervals and a permutation null out.

The numbers (cosines, Gram matrices, centred normalised logits, projections on F) do not change under the rotation R of
``W R, R^T H`` or under a softmax shift. With learned features each is computed against L_mm and, with the prefix
``proxy_``, against the proxy S~. Both are given by factors, for M = L_mm and M = S~:

``M = U Sigma V^T``,  ``W = U Sigma^{1/2}`` (V x r),  ``H = Sigma^{1/2} V^T`` (r x m)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.factors import Factors, HasFactors
from tokengeom.geometry.agreement import AbstractNumbers, Agreement, assess, check_draws
from tokengeom.geometry.comparison import MEANINGS, PREFIXES, Comparison, PredictionKind
from tokengeom.geometry.linear_numbers import DecoderNumbers, MarginNumbers
from tokengeom.geometry.logit_numbers import CollapseNumbers, FiniteLogits, LogitNumbers
from tokengeom.geometry.similarity_numbers import RANK_ITEMS, SimilarityNumbers
from tokengeom.numerics import blas_threads_for
from tokengeom.results import load
from tokengeom.settings import make, option, takes
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction, proxy_factors

if TYPE_CHECKING:
    from collections.abc import Iterable

PANEL = "Intervals and permutation test"
SAME_LOSS = 0.02
"""Loss gaps with a relative difference below this are the same."""
EMBEDDING_TOLERANCE = 1e-9
"""Embeddings with a relative distance below this are the same."""

Prediction = FeaturePrediction | LinearPrediction | LossPrediction | ProxyPrediction
Observed = HasFactors | tuple[object, object]
"""A run: any object with W (V x d) and H (d x m), or the pair (W, H)."""


@dataclass(frozen=True)
class CompareSettings:
    """Draws for intervals and the permutation test."""

    resamples: int = option(
        200, "Bootstrap resamples behind the 95% intervals; at least 20, or 0 for no intervals.", panel=PANEL
    )
    permutations: int = option(200, "Permutations of the permutation test; at least 20, or 0 for none.", panel=PANEL)
    seed: int = option(0, "Seed of resamples, permutations and random splits.", panel=PANEL)

    def __post_init__(self) -> None:
        check_draws(self.resamples, self.permutations)

    @property
    def draws(self) -> dict[str, int]:
        """Resamples, permutations and seed by name."""
        return {"resamples": self.resamples, "permutations": self.permutations, "seed": self.seed}


@takes(CompareSettings)
def compare(
    prediction: Prediction | str | Path,
    run: Observed | str | Path,
    *,
    loss_gap: float | None = None,
    **settings: object,
) -> Comparison:
    """Compare a run with a prediction.

    Parameters
    ----------
    prediction
        Of learned features in the limit, at a loss (names start with ``at_loss_``) or of the proxy alone (names start
        with ``proxy_``), or of the linear model; or the path of a saved one.
    run
        What ``train`` returned, the path of a saved run, any object with W (V x d) and H (d x m) (and perhaps
        ``bias``), or the pair (W, H).
    loss_gap
        ``CE - H`` of the run in nats, for a run that does not carry it.
    """
    chosen = make(CompareSettings, settings, "compare")
    expected, observed = prediction_of(prediction), run_of(run)
    hint = " Pass the pair (run.W, run.H) to compare regardless."
    require_same_statistics("prediction", hash_of(expected), "run", hash_of(observed), hint)
    factors = Factors.of(observed)
    kind, families, limitations = _prepare(expected, factors, observed, loss_gap)
    found: dict[str, Agreement] = {}
    with blas_threads_for(factors.W.shape[0], factors.H.shape[1]):
        for numbers in families:
            found |= assess(numbers, **chosen.draws)
    return Comparison(_ordered(found), kind, tuple(limitations), **chosen.draws, compared=(expected, observed))


def prediction_of(given: Prediction | str | Path) -> Prediction:
    """A prediction from what a user passed: a prediction, or the path of a saved one."""
    found: object = load(given) if isinstance(given, str | Path) else given
    if not isinstance(found, Prediction):
        at = f" in {given}" if isinstance(given, str | Path) else ""
        raise ProblemError(
            f"A prediction must come from predict; got {type(found).__name__}{at}. Call compare(prediction, run), in "
            "this order."
        )
    return found


def run_of(given: Observed | str | Path) -> Observed:
    """A run from what a user passed: a run, arrays, or the path of a saved result that has W and H."""
    if not isinstance(given, str | Path):
        return given
    found = load(given)
    if not isinstance(found, HasFactors):
        raise ProblemError(
            f"A run must have W (V x d) and H (d x m); {given} holds a {type(found).__name__}, which does not. Pass "
            "the folder that `train` saved."
        )
    return found


def require_same_statistics(name: str, one: str | None, other_name: str, other: str | None, hint: str = "") -> None:
    """Refuse two results whose statistics have different hashes; a hash that is not known (None) is not compared."""
    if one is not None and other is not None and one != other:
        raise ProblemError(
            f"The {name} and the {other_name} come from different statistics (hashes {one[:8]} and {other[:8]}). "
            f"Make both from the same statistics.{hint}"
        )


def hash_of(result: object) -> str | None:
    """Hash of the statistics that a result was made from, where it knows it."""
    found = getattr(result, "statistics_hash", None)
    return found if isinstance(found, str) else None


def _prepare(
    prediction: Prediction, factors: Factors, run: object, loss_gap: float | None
) -> tuple[PredictionKind, list[AbstractNumbers], list[str]]:
    """Kind of the prediction, numbers and limitations, after checking that the shapes fit."""
    if isinstance(prediction, LinearPrediction):
        factors.require_sizes(prediction.data.V, prediction.data.m)
        factors.require_decoder(prediction.W_mm.shape)
        families: list[AbstractNumbers] = [DecoderNumbers(factors, prediction), MarginNumbers(factors, prediction)]
        floor = 0.0 if prediction.reaches_entropy else prediction.loss_floor - prediction.entropy
        return "linear", families, run_limitations(run, loss_gap, floor) + _linear_limitations(prediction, factors)
    factors.require_sizes(prediction.W.shape[0], prediction.H.shape[1])
    direction = Factors(prediction.W, prediction.H)
    if isinstance(prediction, LossPrediction):
        families = _families(factors, {"at_loss_": direction}, None)
        limitations = _loss_limitations(prediction, run, loss_gap)
        return "features", families, limitations + _sampling_limitations(families)
    state = run_limitations(run, loss_gap)
    if isinstance(prediction, FeaturePrediction):
        targets = {"": direction, "proxy_": proxy_factors(prediction.reduction)}
        families = _families(factors, targets, FiniteLogits.of(prediction.P))
        families.append(CollapseNumbers(factors.H, prediction.context_groups))
        limitations = _feature_limitations(prediction, factors)
    else:
        families = _families(factors, {"proxy_": direction}, None)
        limitations = _proxy_limitations(prediction)
    return "features", families, state + limitations + _sampling_limitations(families)


def _families(run: Factors, targets: dict[str, Factors], finite: FiniteLogits | None) -> list[AbstractNumbers]:
    return [
        SimilarityNumbers("contexts", run.H, {prefix: target.H for prefix, target in targets.items()}),
        SimilarityNumbers("tokens", run.tokens, {prefix: target.tokens for prefix, target in targets.items()}),
        LogitNumbers(run, targets, finite),
    ]


def _ordered(found: dict[str, Agreement]) -> dict[str, Agreement]:
    """Numbers against L_mm first, in the order of `MEANINGS`, then those at a loss and those against the proxy."""
    names = [f"{prefix}{name}" for prefix in PREFIXES for name in MEANINGS]
    return {name: found[name] for name in names if name in found}


def run_limitations(run: object, loss_gap: float | None = None, floor: float = 0.0) -> list[str]:
    """How far the run came; ``floor`` is what ``CE - H`` tends to: 0, unless the entropy is out of reach."""
    status = getattr(run, "status", None)
    gap = getattr(run, "loss_gap", None) if loss_gap is None else loss_gap
    found = []
    if isinstance(status, str) and status != "finished":
        found.append(f"The run is not complete: {status}.")
    if isinstance(gap, float):
        found.append(
            f"The run's loss is {gap - floor:.3g} nats above its floor; the prediction is for the limit of training, "
            "where this is 0."
        )
    return found


def _loss_limitations(prediction: LossPrediction, run: object, loss_gap: float | None) -> list[str]:
    gap = getattr(run, "loss_gap", None) if loss_gap is None else loss_gap
    if not isinstance(gap, float):
        return [f"The prediction is at a loss gap of {prediction.loss_gap:.3g} nats; that of the run is not known."]
    if abs(gap - prediction.loss_gap) <= SAME_LOSS * prediction.loss_gap:
        return [
            f"The loss gaps of the run ({gap:.3g} nats) and of the prediction ({prediction.loss_gap:.3g} nats) agree "
            f"within {SAME_LOSS:.0%}."
        ]
    return [
        f"The prediction is at a loss gap of {prediction.loss_gap:.3g} nats and the run at {gap:.3g}: predict at the "
        "run's own loss gap to compare like with like."
    ]


def _feature_limitations(prediction: FeaturePrediction, run: Factors) -> list[str]:
    d, proof = run.H.shape[0], prediction.certificate
    found = list(prediction.warnings)
    if prediction.rank == 0:
        return found
    found.append(_uniqueness(prediction))
    if proof.relative_gap > 1e-4:
        found.append(f"L_mm is proven only to a relative gap of {proof.relative_gap:.1e}.")
    if not prediction.suffices(d):
        found.append(
            f"The run has d={d} < rank L_mm = {prediction.rank}: it cannot represent the predicted geometry, so "
            "disagreement is expected and is not evidence against the prediction."
        )
    if prediction.proxy_is_exact:
        found.append("The proxy is exact here: its numbers equal those of L_mm as far as L_mm is unique.")
    return [*found, *_group_limitations(prediction)]


def _uniqueness(prediction: FeaturePrediction) -> str:
    share = prediction.solution_bounds.tight_share()
    pinned = f"The certificate determines {share:.0%} of the margins of L_mm: they are equal in every optimal solution."
    if prediction.spread is None:
        return f"{pinned} Whether L_mm is unique was not measured (predict(stats, spread_solves=2) measures it)."
    if prediction.spread.looks_unique:
        return f"{pinned} {prediction.spread.sentence}"
    return f"{pinned} {prediction.spread.sentence} Differences in agreement below this spread have no meaning."


def _group_limitations(prediction: FeaturePrediction) -> list[str]:
    n, m = prediction.reduction.n, prediction.reduction.m
    left_out = m - int(n.sum())
    found = []
    if left_out:
        found.append(
            f"{left_out} of {m} contexts have full support: they have no predicted direction and are left out."
        )
    if n.size and n.max() > 1:
        share = float((n * (n - 1)).sum() / max(n.sum() * (n.sum() - 1), 1.0))
        found.append(
            f"{int(n.sum())} contexts share {n.size} supports, and {share:.1%} of the pairs of contexts have the same "
            "support: part of the agreement is collapse. Intervals treat contexts as independent, which contexts with "
            "the same support are not."
        )
    elif n.size:
        found.append("No two contexts share a support: collapse is not defined on these data.")
    return found


def _proxy_limitations(prediction: ProxyPrediction) -> list[str]:
    return [
        f"The run is compared with the proxy S~, not the certified L_mm: {prediction.singular_values.size} leading "
        f"singular vectors, {prediction.captured:.1%} of its squared norm. How far S~ is from L_mm is not known here."
    ]


def _sampling_limitations(families: Iterable[AbstractNumbers]) -> list[str]:
    found = []
    for numbers in families:
        if not isinstance(numbers, SimilarityNumbers):
            continue
        if numbers.size < numbers.kept.size:
            found.append(
                f"Correlations, intervals and null use {numbers.size} of {numbers.kept.size} {numbers.items}, drawn at "
                "random: intervals are wider than all of them would give."
            )
        if numbers.size > RANK_ITEMS:
            found.append(f"Spearman correlations use {RANK_ITEMS} {numbers.items}, drawn at random.")
    return found


def _linear_limitations(prediction: LinearPrediction, run: Factors) -> list[str]:
    found = []
    if not prediction.W_mm.any():
        found.append("Nothing diverges (W_mm = 0): there is no direction to compare with, and cosines are not defined.")
    if not prediction.separable:
        found.append("The data are not separable: margins and finite part are those of the effective supports.")
    if not prediction.W_star.any():
        found.append("W_star is 0: finite_error is the absolute norm of the projection on F.")
    H = prediction.data.H
    distance = float(np.linalg.norm(run.H - H) / np.linalg.norm(H))
    if distance > EMBEDDING_TOLERANCE:
        found.append(
            f"The distance of the run's embeddings from those of the prediction is {distance:.2g} (relative): the "
            "prediction is for fixed embeddings, and margins are measured with the run's own."
        )
    found.append(
        "Under gradient descent directions converge like 1/log(steps): a cosine below 1 is expected after any "
        "practical number of steps."
    )
    return found
