"""The verb `compare`: a prediction and one or several runs in, agreement on a scale and a verdict out.

With learned features a run is compared at the loss that it has reached (in the norm that goes with its optimizer, and
in the other one), then in the limit of training, L_mm. The numbers (cosines, Gram matrices, centred logits, projections
on F) do not change under the rotation R of ``W R, R^T H`` or under a softmax shift. Predictions are given by their
factors ``M = U Sigma V^T``, ``W = U Sigma^{1/2}`` (V x r), ``H = Sigma^{1/2} V^T`` (r x m).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.comparison.agreement import AbstractNumbers, Agreement, Reference, assess, with_reference
from tokengeom.comparison.comparison import MEANINGS, NORM_PREFIX, PREFIXES, Comparison, evidence_of
from tokengeom.comparison.disagreement import Disagreement, disagreement
from tokengeom.comparison.explanations.base import Known, explanation_classes
from tokengeom.comparison.inputs import (
    CompareSettings,
    Observed,
    Prediction,
    hash_of,
    on_seen_tokens,
    prediction_of,
    require_same_statistics,
    run_limitations,
    runs_of,
    seen_tokens,
    statistics_behind,
)
from tokengeom.comparison.limitations import (
    feature_limitations,
    linear_limitations,
    loss_limitations,
    proxy_limitations,
    sampling_limitations,
    training_limitations,
)
from tokengeom.comparison.linear_numbers import DecoderNumbers, MarginNumbers
from tokengeom.comparison.logit_numbers import CollapseNumbers, FiniteLogits, LogitNumbers
from tokengeom.comparison.made_from import MadeFrom
from tokengeom.comparison.model_states import ModelStates
from tokengeom.comparison.norms import choose_norm, norm_of, norm_sentence, predictions_at, proven
from tokengeom.comparison.rival_numbers import ExplanationInfo, RivalRow, best_candidate, rival_rows
from tokengeom.comparison.shared_tokens import on_shared_tokens
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.comparison.verdict import Circumstances, Verdict, judge, judge_decoder
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import blas_threads_for
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.settings import make, takes
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.objective import SoftLabels

if TYPE_CHECKING:
    from typing import Unpack

    from tokengeom.core.numerics import Float, Int
    from tokengeom.keywords import CompareKeywords
    from tokengeom.models.language_model import AbstractLanguageModel

OTHER_TEXT = (
    " To compare two texts on what they share, pass the statistics of both: compare(stats, run, "
    "shared_tokens=stats_of_run), or tokengeom compare STATS RUN --shared-tokens STATS_OF_RUN. To compare regardless, "
    "pass the pair (run.W, run.H)."
)
_AT_LOSS = "probabilities and the loss"
OURS = {
    "nuclear_": ExplanationInfo("at loss, nuclear", "prediction at the loss, nuclear norm", _AT_LOSS, ours=True),
    "gamma2_": ExplanationInfo("at loss, gamma_2", "prediction at the loss, gamma_2 norm", _AT_LOSS, ours=True),
    "limit_": ExplanationInfo("L_mm", "prediction in the limit of training", "supports", ours=True),
    "proxy_": ExplanationInfo("S~", "proxy: centred supports", "supports", ours=True),
}
"""What a run is compared with, as an explanation, by the beginning of the numbers' names."""


@takes(CompareSettings)
def compare(
    prediction: Prediction | NextTokenStatistics | str | Path,
    run: Observed | AbstractLanguageModel | str | Path | Sequence[Observed | AbstractLanguageModel | str | Path],
    *,
    tokenizer: object = None,
    stats: NextTokenStatistics | str | Path | None = None,
    at: LossPrediction | Sequence[LossPrediction] | None = None,
    loss_gap: float | None = None,
    shared_tokens: NextTokenStatistics | str | Path | None = None,
    progress: AbstractProgress | None = None,
    **settings: Unpack[CompareKeywords],
) -> Comparison:
    """Compare a run with a prediction.

    Parameters
    ----------
    prediction
        Of learned features in the limit, at a loss, or of the proxy alone, or of the linear model; or the path of a
        saved one. With the prediction in the limit, the one at the run's own loss is made as well.
    run
        What ``train`` returned, the path of a saved run, any object with W (V x d) and H (d x m) (and perhaps
        ``bias``), or the pair (W, H); or a model in memory: a Hugging Face or PyTorch module, or what
        `tokengeom.language_model` returned, which is read on the contexts of the prediction. A list of runs of the same
        training with different seeds compares the first one; the others give the ceiling.
    tokenizer
        Tokenizer of a model in memory, to check that the text was counted with it.
    stats
        Statistics that the prediction is for, whose contexts a model in memory reads; needed where the prediction was
        loaded from a folder.
    at
        Predictions at the run's loss that were made before, instead of making them.
    loss_gap
        ``CE - H`` of the run in nats, where its logits are more than ``W H (+ bias)``.
    shared_tokens
        Statistics of the text that the run was trained on, where that is another text: pass the statistics of this one
        in place of the prediction. It is predicted and compared on the tokens and contexts that both texts have.
    """
    chosen = make(CompareSettings, settings, "compare")
    shown = progress or SilentProgress()
    expected: Prediction
    if shared_tokens is None:
        expected = prediction_of(prediction)
        behind = statistics_behind(expected) if stats is None else statistics_of(stats, "compare")
        if stats is not None and behind is not None:
            require_same_statistics("prediction", hash_of(expected), "statistics", behind.hash)
        runs = runs_of(run, behind, tokenizer, shown)
        for one in runs:
            require_same_statistics("prediction", hash_of(expected), "run", hash_of(one), OTHER_TEXT)
    else:
        mine, theirs = (statistics_of(one, "compare") for one in (prediction, shared_tokens))
        expected, runs = on_shared_tokens(mine, runs_of(run, theirs, tokenizer, shown), theirs, shown)
    factors = [Factors.of(one) for one in runs]
    given = () if at is None else (at,) if isinstance(at, LossPrediction) else tuple(at)
    origin = None
    if shared_tokens is None:
        named = {"at_loss": chosen.at_loss, "tolerance": chosen.tolerance, "loss_gap": loss_gap}
        origin = MadeFrom.of(expected, runs, given, getattr(expected, "stats", None), named)
    with blas_threads_for(factors[0].W.shape[0], factors[0].H.shape[1]):
        if isinstance(expected, LinearPrediction):
            return replace(_compare_decoder(expected, factors[0], runs, loss_gap, chosen), made_from=origin)
        for one in factors:
            one.require_sizes(expected.W.shape[0], expected.H.shape[1])
        for known in given:
            require_same_statistics("prediction", hash_of(expected), "prediction at a loss", hash_of(known))
            factors[0].require_sizes(known.W.shape[0], known.H.shape[1])
        compared = _Compared.of(expected, factors, runs, loss_gap, given, chosen, shown)
        with shown.stage("Comparing", None):
            return replace(_compare_features(compared, runs, chosen), made_from=origin)


@dataclass(frozen=True, eq=False)
class _Compared:
    """What the numbers of learned features are made from.

    ``runs``
        Factors of the run and of the others of the same training; ``start`` is the run before training.
    ``targets``
        Prefix -> factors of a prediction; ``at`` are those at the loss.
    ``groups``
        Support group of each context; those without a predicted direction have a group of their own.
    ``kept``
        Contexts with a predicted direction.
    ``gap``
        Loss gap of the run; None where not known.
    """

    prediction: FeaturePrediction | LossPrediction | ProxyPrediction
    runs: list[Factors]
    start: Factors | None
    targets: dict[str, Factors]
    at: tuple[LossPrediction, ...]
    groups: Int
    kept: Int
    gap: float | None
    limitations: list[str]

    @staticmethod
    def of(
        prediction: FeaturePrediction | LossPrediction | ProxyPrediction,
        factors: list[Factors],
        runs: list[Observed],
        loss_gap: float | None,
        given: tuple[LossPrediction, ...],
        settings: CompareSettings,
        progress: AbstractProgress,
    ) -> _Compared:
        direction, limitations = Factors(prediction.W, prediction.H), list[str]()
        own = getattr(runs[0], "loss_gap", None) if loss_gap is None else loss_gap
        gap = float(own) if isinstance(own, int | float) else None
        at: tuple[LossPrediction, ...] = ()
        if isinstance(prediction, LossPrediction):
            at, targets = (prediction,), {NORM_PREFIX[prediction.norm]: direction}
            limitations += loss_limitations(prediction, gap)
        elif isinstance(prediction, ProxyPrediction):
            targets = {"proxy_": direction}
            limitations += run_limitations(runs[0], gap) + proxy_limitations(prediction)
        else:
            if loss_gap is None and not isinstance(runs[0], ModelStates):
                gap = _loss_gap(prediction, factors[0])
            assert gap is not None
            made, notes = (given, []) if given else predictions_at(gap, prediction, settings, progress)
            at, unproven = proven(made)
            notes = [*notes, *unproven]
            targets = {NORM_PREFIX[one.norm]: Factors(one.W, one.H) for one in at}
            if prediction.rank > 0 or not at:
                targets["limit_"] = direction
            limitations += run_limitations(runs[0], gap) + notes + feature_limitations(prediction, factors[0])
        limitations += training_limitations(runs)
        kept = np.flatnonzero(np.logical_and.reduce([target.H.any(axis=0) for target in targets.values()]))
        start = _start_of(runs[0], factors[0])
        return _Compared(prediction, factors, start, targets, at, support_groups(prediction), kept, gap, limitations)

    @property
    def statistics(self) -> NextTokenStatistics | None:
        """Statistics that explanations are made from; None where the prediction does not have all probabilities."""
        if not isinstance(self.prediction, FeaturePrediction):
            return None
        return self.prediction.statistics

    @cached_property
    def seen(self) -> Int:
        """Tokens that follow some context. The prediction gives all others the same embedding."""
        stats = statistics_behind(self.prediction)
        return np.arange(self.prediction.W.shape[0]) if stats is None else seen_tokens(stats.P)

    def items(self, factors: Factors, items: str) -> Float:
        """Compared contexts, or tokens with their mean removed, as columns."""
        return factors.H[:, self.kept] if items == "contexts" else factors.rows(self.seen).tokens

    def context_agreements(self) -> dict[str, float]:
        """Agreement of the contexts with the prediction at the loss in each norm."""
        prefixes, kept = {one.norm: NORM_PREFIX[one.norm] for one in self.at}, self.kept
        targets = {prefix: self.targets[prefix].H[:, kept] for prefix in prefixes.values()}
        values = SimilarityNumbers.of("contexts", self.runs[0].H[:, kept], targets, self.groups[kept]).values()
        return {norm: values[f"{prefix}context_agreement"] for norm, prefix in prefixes.items()}


def _loss_gap(prediction: FeaturePrediction, factors: Factors) -> float:
    """Loss gap of a run's logits, which must be finite."""
    with np.errstate(over="ignore"):
        size = np.linalg.norm(factors.W) * np.linalg.norm(factors.H)
    if not np.isfinite(size):
        raise ProblemError(
            "The logits W H of a run must be finite; entries of W and H are so large that they overflow. Likely a run "
            "that diverged: lower its learning rate. To compare directions alone, divide W and H by their norms."
        )
    return SoftLabels.from_statistics(prediction.statistics).loss_gap_of(factors)


def _start_of(run: object, factors: Factors) -> Factors | None:
    """W and H of a run before training, where it has them."""
    start = getattr(run, "start", None)
    sizes = factors.W.shape[0], factors.H.shape[1]
    return start if isinstance(start, Factors) and (start.W.shape[0], start.H.shape[1]) == sizes else None


def support_groups(prediction: FeaturePrediction | LossPrediction | ProxyPrediction) -> Int:
    """Support group of each context, numbered from 0; a context without a predicted direction is its own group."""
    found = prediction.context_groups
    alone = np.flatnonzero(found < 0)
    labels = np.array(found)
    labels[alone] = labels.max(initial=-1) + 1 + np.arange(alone.size)
    return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _compare_features(compared: _Compared, runs: list[Observed], settings: CompareSettings) -> Comparison:
    norm = choose_norm(norm_of(runs[0]), [one.norm for one in compared.at], compared.context_agreements)
    prefix = next(iter(compared.targets)) if norm is None else NORM_PREFIX[norm]
    found, rows = _pair_numbers(compared, prefix, settings)
    found |= _context_sums(compared, settings)
    circumstances = _circumstances(compared, prefix)
    verdict = judge(evidence_of(found, rows, prefix, compared.gap, circumstances))
    return Comparison(
        _ordered(found),
        "features",
        verdict.outcome,
        (*verdict.reasons, *norm_sentence(norm, runs[0], found)),
        tuple(compared.limitations + sampling_limitations(compared.runs[0].W.shape[0], compared.kept, compared.seen)),
        permutations=settings.permutations,
        seed=settings.seed,
        better_explanation=verdict.better,
        norm=norm,
        loss_gap=compared.gap,
        disagreement=_sources(compared, norm),
        rows=tuple(rows),
        runs=len(compared.runs),
        circumstances=circumstances,
        compared=(compared.prediction, runs[0]),
        at=compared.at,
    )


def _pair_numbers(
    compared: _Compared, prefix: str, settings: CompareSettings
) -> tuple[dict[str, Agreement], list[RivalRow]]:
    """Numbers over pairs of contexts and of tokens, and the explanations beside the prediction with this prefix."""
    run, explanations = compared.runs[0], _explanations(compared)
    infos = {name: OURS[name] for name in compared.targets} | {name: info for name, (info, _) in explanations.items()}
    found: dict[str, Agreement] = {}
    rows: list[RivalRow] = []
    for items, units in (("contexts", compared.groups[compared.kept]), ("tokens", None)):
        ours = {name: compared.items(target, items) for name, target in compared.targets.items()}
        others = {name: vectors[items] for name, (_, vectors) in explanations.items()}
        numbers = SimilarityNumbers.of(items, compared.items(run, items), ours | others, units, floors=tuple(ours))
        assessed = assess(numbers, **settings.draws)
        references: dict[Reference, Mapping[str, float]] = {}
        if compared.start is not None and settings.permutations:
            references["untrained"] = numbers.of_other_run(compared.items(compared.start, items))
        if len(compared.runs) > 1:
            references["ceiling"] = numbers.with_other_runs([compared.items(one, items) for one in compared.runs[1:]])
        assessed = replace(assessed, references=references)
        one = assessed.agreements()
        found |= {name: value for name, value in one.items() if name.startswith(tuple(ours))}
        rows += rival_rows(assessed, infos, prefix)
    return found, rows


def _context_sums(compared: _Compared, settings: CompareSettings) -> dict[str, Agreement]:
    """Numbers that are sums over contexts: cosines of logits, distance of finite parts, collapse."""
    prediction, run, start = compared.prediction, compared.runs[0], compared.start
    finite = FiniteLogits.of(prediction.P) if isinstance(prediction, FeaturePrediction) else None
    logits = LogitNumbers(run, compared.targets, compared.groups, finite)
    families: list[tuple[AbstractNumbers, AbstractNumbers | None]] = [
        (logits, None if start is None else replace(logits, run=start))
    ]
    if isinstance(prediction, FeaturePrediction):
        groups = prediction.context_groups
        families.append((CollapseNumbers(run.H, groups), None if start is None else CollapseNumbers(start.H, groups)))
    found: dict[str, Agreement] = {}
    for numbers, before in families:
        one = assess(numbers, **settings.draws).agreements()
        if before is not None and settings.permutations:
            one = with_reference(one, "untrained", before.values())
        found |= one
    if len(compared.runs) > 1:
        found = with_reference(found, "ceiling", logits.with_other_runs(compared.runs[1:]))
    return found


def _explanations(compared: _Compared) -> dict[str, tuple[ExplanationInfo, dict[str, Float]]]:
    """Explanations that need no solver: prefix -> what it is, and its contexts and tokens as columns."""
    stats = compared.statistics
    if stats is None:
        return {}
    stats, run = on_seen_tokens(stats, compared.seen), compared.runs[0].rows(compared.seen)
    everything = np.arange(stats.V, dtype=np.int64)
    kept, groups = compared.kept, compared.groups
    found = {}
    for kind in explanation_classes():
        best = best_candidate(kind, stats, Known(), run, kept, groups) if kind.quick else None
        if best is not None:
            info, fit = best
            found[f"{info.name}: "] = info, {"contexts": fit.contexts(kept), "tokens": fit.tokens(everything)}
    return found


def _sources(compared: _Compared, norm: str | None) -> Disagreement:
    """Efficiency and split of the run."""
    run, unknown = compared.runs[0], (float("nan"), float("nan"))
    at = next((one for one in compared.at if one.norm == norm), None)
    efficiency = unknown if at is None else at.efficiency(run.logits)
    return disagreement(run, compared.groups, norm or "nuclear", efficiency, compared.seen)


def _circumstances(compared: _Compared, prefix: str) -> Circumstances:
    prediction = compared.prediction
    one_hot, gaps = False, tuple[float | None, float | None]((None, None))
    if isinstance(prediction, FeaturePrediction):
        one_hot = bool(np.all(np.diff(prediction.P.indptr) == 1))
        gaps = frequency_gap(prediction), prediction.largest_gap
    return Circumstances(
        groups=int(np.unique(compared.groups[compared.kept]).size),
        V=int(prediction.W.shape[0]),
        one_hot=one_hot,
        coverage=getattr(prediction, "coverage", None),
        frequency_gap=gaps[0],
        uniform_gap=gaps[1],
        d=int(compared.runs[0].W.shape[1]),
        rank=int(compared.targets[prefix].W.shape[1]),
    )


def frequency_gap(prediction: FeaturePrediction) -> float:
    """Loss gap in nats of a guess by the tokens' frequencies, the same in every context."""
    share = np.asarray(prediction.P @ prediction.pi)
    seen = share[share > 0]
    return float(-(seen @ np.log(seen)) - prediction.entropy)


def _compare_decoder(
    prediction: LinearPrediction,
    factors: Factors,
    runs: list[Observed],
    loss_gap: float | None,
    settings: CompareSettings,
) -> Comparison:
    factors.require_sizes(prediction.data.V, prediction.data.m)
    factors.require_decoder(prediction.W_mm.shape)
    found: dict[str, Agreement] = {}
    for numbers in (DecoderNumbers(factors, prediction), MarginNumbers(factors, prediction)):
        found |= assess(numbers, **settings.draws).agreements()
    floor = 0.0 if prediction.reaches_entropy else prediction.loss_floor - prediction.entropy
    verdict: Verdict = judge_decoder(found["cosine_without_finite"])
    gap = getattr(runs[0], "loss_gap", None) if loss_gap is None else loss_gap
    return Comparison(
        _ordered(found),
        "linear",
        verdict.outcome,
        verdict.reasons,
        tuple(run_limitations(runs[0], loss_gap, floor) + linear_limitations(prediction, factors)),
        permutations=settings.permutations,
        seed=settings.seed,
        loss_gap=gap if isinstance(gap, float) else None,
        compared=(prediction, runs[0]),
    )


def _ordered(found: Mapping[str, Agreement]) -> dict[str, Agreement]:
    """Numbers at the loss reached first, then in the limit, each in the order of `MEANINGS`."""
    names = [f"{prefix}{name}" for prefix in (*PREFIXES, "") for name in MEANINGS]
    return {name: found[name] for name in names if name in found}
