"""The verb `compare`: a prediction and one or several runs in, agreement on a scale and a verdict out.

With learned features a run is compared at the loss that it has reached (in the norm that goes with its optimizer, and
in the other one), then in the limit of training, L_mm. The numbers (cosines, Gram matrices, centred logits, projections
on F) do not change under the rotation R of ``W R, R^T H`` or under a softmax shift. Predictions are given by their
factors ``M = U Sigma V^T``, ``W = U Sigma^{1/2}`` (V x r), ``H = Sigma^{1/2} V^T`` (r x m).

`pair_numbers` and `best_candidate` are what `compare` and `rivals` compute alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from tokengeom.comparison.agreement import (
    CONTEXTS_AND_TOKENS,
    Agreement,
    AssessedNumbers,
    Name,
    Reference,
    assess,
)
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.explanations.base import AbstractFit, AbstractRival, FitInputs, explanation_classes
from tokengeom.comparison.held_out import FoldedNumbers
from tokengeom.comparison.inputs import (
    OTHER_TEXT,
    CompareSettings,
    Inputs,
    MadeFrom,
    Observed,
    Prediction,
    gather,
    hash_of,
    on_seen_tokens,
    prediction_of,
    require_same_statistics,
    run_limitations,
    runs_of,
    statistics_behind,
    targets_of,
    training_limitations,
)
from tokengeom.comparison.linear_numbers import compare_decoder
from tokengeom.comparison.logit_numbers import FiniteLogits, LogitNumbers, disagreement
from tokengeom.comparison.model_states import on_shared_tokens
from tokengeom.comparison.rival_table import RivalRow, rival_rows
from tokengeom.comparison.similarity import NO_VARIATION, CollapseNumbers
from tokengeom.comparison.similarity_numbers import SimilarityNumbers, sampling_limitations
from tokengeom.comparison.target import (
    AT_LOSS,
    PROXY,
    TARGETS,
    ExplanationInfo,
    Target,
    choose_norm,
    feature_limitations,
    flat_names,
    loss_limitations,
    norm_of,
    norm_sentence,
    predictions_at,
    proven,
    proxy_limitations,
    tables_of,
)
from tokengeom.comparison.verdict import Circumstances, Evidence, judge
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, Int, blas_threads_for, cosines
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.settings import make, takes
from tokengeom.models.language_model import AbstractLanguageModel
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction

if TYPE_CHECKING:
    from tokengeom.keywords import CompareKeywords

MOST_CHOOSING = 500
"""Contexts on which a free parameter is chosen; of more, this many drawn at random."""


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
    else:
        mine, theirs = (statistics_of(given, "compare") for given in (prediction, shared_tokens))
        runs = runs_of(run, theirs, tokenizer, shown)
        for observed in runs:
            require_same_statistics("statistics of the runs", theirs.hash, "run", hash_of(observed))
        expected, runs = on_shared_tokens(mine, runs, theirs, shown)
    given = () if at is None else (at,) if isinstance(at, LossPrediction) else tuple(at)
    origin = None
    if shared_tokens is None:
        named = {"at_loss": chosen.at_loss, "tolerance": chosen.tolerance, "loss_gap": loss_gap}
        origin = MadeFrom.of(expected, runs, given, getattr(expected, "stats", None), named)
    if isinstance(expected, LinearPrediction):
        for observed in runs:
            require_same_statistics("prediction", hash_of(expected), "run", hash_of(observed), OTHER_TEXT)
        return replace(compare_decoder(expected, runs[0], loss_gap, chosen), made_from=origin)
    with blas_threads_for(expected.W.shape[0], expected.H.shape[1]):
        inputs = _with_targets(gather(runs, expected, given, loss_gap), chosen, shown)
        with shown.stage("Comparing", None):
            return replace(_compare_features(inputs, chosen), made_from=origin)


def _with_targets(inputs: Inputs, settings: CompareSettings, progress: AbstractProgress) -> Inputs:
    """With the predictions at the run's loss, the contexts that all targets have a direction for, and limitations.

    `rivals` keeps contexts by their supports instead, because it solves for its predictions later, and in each fold.
    """
    prediction, at, limitations = inputs.prediction, inputs.at, run_limitations(inputs.observed[0], inputs.gap)
    if isinstance(prediction, LossPrediction):
        limitations = loss_limitations(prediction, inputs.gap)
    elif isinstance(prediction, ProxyPrediction):
        limitations += proxy_limitations(prediction)
    elif isinstance(prediction, FeaturePrediction):
        assert inputs.gap is not None, "it has all probabilities"
        asked = settings.at_loss, settings.tolerance
        made, notes = (at, []) if at else predictions_at(inputs.gap, prediction, *asked, progress)
        at, unproven = proven(made)
        limitations += [*notes, *unproven, *feature_limitations(prediction, inputs.run)]
    targets = targets_of(prediction, at)
    directed = np.logical_and.reduce([target.H.any(axis=0) for target in targets.values()])
    limitations += training_limitations(inputs.observed)
    return replace(inputs, at=at, targets=targets, kept=np.flatnonzero(directed), limitations=tuple(limitations))


def _compare_features(inputs: Inputs, settings: CompareSettings) -> Comparison:
    run = inputs.observed[0]
    norm = choose_norm(norm_of(run), [at.norm for at in inputs.at], lambda: _agreement_by_norm(inputs))
    target = TARGETS[next(iter(inputs.targets))] if norm is None else AT_LOSS[norm]
    explained = _explanations(inputs)
    numbers, rows = pair_numbers(inputs, explained, target.key, settings, floors=tuple(inputs.targets))
    ours = {name: agreement for name, agreement in numbers.items() if name[0] in inputs.targets}
    agreements = flat_names(ours | _context_sums(inputs, settings))
    tables, circumstances = tables_of(agreements), _circumstances(inputs, target)
    judged = next((at for at in inputs.at if at.norm == norm), None)
    efficiency = (float("nan"), float("nan")) if judged is None else judged.efficiency(inputs.run.logits)
    verdict = judge(Evidence.of(tables, rows, target, inputs.gap, circumstances))
    return Comparison(
        prediction_kind="features",
        verdict=verdict.outcome,
        better_explanation=verdict.better,
        norm=norm,
        loss_gap=inputs.gap,
        runs=len(inputs.runs),
        permutations=settings.permutations,
        seed=settings.seed,
        agreements=agreements,
        rows=tuple(rows),
        disagreement=disagreement(inputs.run, inputs.groups, norm or "nuclear", efficiency, inputs.seen),
        circumstances=circumstances,
        reasons=(*verdict.reasons, *norm_sentence(norm, run, tables)),
        limitations=(*inputs.limitations, *sampling_limitations(inputs.size[0], inputs.kept, inputs.seen)),
        compared=(inputs.prediction, run),
        at=inputs.at,
    )


def _agreement_by_norm(inputs: Inputs) -> dict[str, float]:
    """Agreement of the contexts with the prediction at the loss in each norm."""
    keys, kept = {at.norm: AT_LOSS[at.norm].key for at in inputs.at}, inputs.kept
    targets = {key: inputs.targets[key].H[:, kept] for key in keys.values()}
    values = SimilarityNumbers.of("contexts", inputs.run.H[:, kept], targets, inputs.groups[kept]).values()
    return {norm: values[key, "context_agreement"] for norm, key in keys.items()}


@dataclass(frozen=True, eq=False)
class Explained:
    """An explanation of a run: what it is, and its vectors of the compared contexts and tokens, as columns."""

    info: ExplanationInfo
    contexts: Float
    tokens: Float


def pair_numbers(
    inputs: Inputs,
    explained: Mapping[str, Explained],
    judged: str | None,
    settings: CompareSettings,
    floors: tuple[str, ...] | None = None,
) -> tuple[dict[Name, Agreement], list[RivalRow]]:
    """Numbers over pairs of contexts and of tokens with floors and ceiling, and rows that compare the explanations.

    ``explained``
        Key of an explanation -> its vectors, simplest first.
    ``judged``
        Key of the prediction that the others are compared with; None where there is none.
    ``floors``
        Keys of those whose Gaussian floors are wanted; None for all.
    """
    agreements: dict[Name, Agreement] = {}
    rows: list[RivalRow] = []
    infos = {key: explanation.info for key, explanation in explained.items()}
    for items in CONTEXTS_AND_TOKENS:
        vectors = {key: getattr(explanation, items) for key, explanation in explained.items()}
        units = inputs.groups[inputs.kept] if items == "contexts" else None
        numbers = SimilarityNumbers.of(items, inputs.vectors(inputs.run, items), vectors, units, floors)
        assessed = assess_run(inputs, numbers, partial(inputs.vectors, items=items), settings)
        agreements |= assessed.agreements()
        rows += rival_rows(assessed, infos, judged)
    return agreements, rows


def assess_run(
    inputs: Inputs,
    numbers: SimilarityNumbers | FoldedNumbers,
    vectors_of: Callable[[Factors], Float],
    settings: CompareSettings,
) -> AssessedNumbers:
    """Numbers of a run with intervals, floors and, where there are other runs, the ceiling.

    ``vectors_of``
        The same items of other factors.
    """
    references: dict[Reference, Mapping[Name, float]] = {}
    if inputs.start is not None and settings.permutations:
        references["untrained"] = numbers.of_other_run(vectors_of(inputs.start))
    if len(inputs.runs) > 1:
        references["ceiling"] = numbers.with_other_runs([vectors_of(run) for run in inputs.runs[1:]])
    return replace(assess(numbers, **settings.draws), references=references)


def best_candidate(
    kind: type[AbstractRival], stats: NextTokenStatistics, known: FitInputs, H: Float, kept: Int, groups: Int
) -> tuple[ExplanationInfo, AbstractFit] | None:
    """An explanation with the free parameters at which its contexts agree best with the run; None where left out.

    ``H``
        The run's contexts, d x m.
    ``kept``
        Contexts on which that is decided.
    ``groups``
        Support group of each context, m.
    """
    candidates = kind.candidates(replace(known, has_counts=stats.has_counts))
    if not candidates:
        return None
    fits = [candidate.fit(stats) for candidate in candidates]
    best = 0
    if len(fits) > 1:
        if kept.size > MOST_CHOOSING:
            kept = np.sort(np.random.default_rng(0).choice(kept, MOST_CHOOSING, replace=False))
        values = context_agreements(H[:, kept], [fit.contexts(kept) for fit in fits], groups[kept])
        best = int(np.argmax(np.nan_to_num(values, nan=-2.0)))
    parameters = kind.parameters
    if candidates[best].chosen:
        parameters = f"{candidates[best].chosen}, the best of {len(candidates)} for this run's contexts"
    return ExplanationInfo(kind.name, kind.meaning, kind.uses, parameters, kind.ours), fits[best]


def context_agreements(run: Float, targets: Sequence[Float], groups: Int) -> Float:
    """Agreement of each of several candidates over pairs of contexts with different supports; NaN where undefined."""
    apart = np.triu(groups[:, None] != groups[None, :])
    x = cosines(run)[apart]
    values = []
    for target in targets:
        y = cosines(target)[apart]
        varied = x.size > 1 and min(np.var(x), np.var(y)) > NO_VARIATION
        values.append(np.corrcoef(x, y)[0, 1] if varied else np.nan)
    return np.array(values)


def _explanations(inputs: Inputs) -> dict[str, Explained]:
    """The targets, then the explanations that need no solver, where all probabilities are known."""
    explained = {
        key: Explained(TARGETS[key].info, inputs.vectors(target, "contexts"), inputs.vectors(target, "tokens"))
        for key, target in inputs.targets.items()
    }
    if inputs.stats is None or PROXY.key in inputs.targets:
        return explained
    stats = on_seen_tokens(inputs.stats, inputs.seen)
    everything = np.arange(stats.V, dtype=np.int64)
    for kind in (kind for kind in explanation_classes() if kind.quick):
        best = best_candidate(kind, stats, FitInputs(), inputs.run.H, inputs.kept, inputs.groups)
        if best is not None:
            info, fit = best
            explained[info.name] = Explained(info, fit.contexts(inputs.kept), fit.tokens(everything))
    return explained


def _context_sums(inputs: Inputs, settings: CompareSettings) -> dict[Name, Agreement]:
    """Numbers that are sums over contexts: cosines of logits, distance of finite parts, collapse."""
    prediction, run, start = inputs.prediction, inputs.run, inputs.start
    finite = FiniteLogits.of(prediction.P) if isinstance(prediction, FeaturePrediction) else None
    logits = LogitNumbers(run, inputs.targets, inputs.groups, finite)
    families: list[LogitNumbers | CollapseNumbers] = [logits]
    if isinstance(prediction, FeaturePrediction):
        families.append(CollapseNumbers(run, prediction.context_groups))
    agreements: dict[Name, Agreement] = {}
    for numbers in families:
        references: dict[Reference, Mapping[Name, float]] = {}
        if start is not None and settings.permutations:
            references["untrained"] = replace(numbers, run=start).values()
        if numbers is logits and len(inputs.runs) > 1:
            references["ceiling"] = logits.with_other_runs(inputs.runs[1:])
        agreements |= replace(assess(numbers, **settings.draws), references=references).agreements()
    return agreements


def _circumstances(inputs: Inputs, target: Target) -> Circumstances:
    limit = inputs.prediction if isinstance(inputs.prediction, FeaturePrediction) else None
    return Circumstances(
        groups=int(np.unique(inputs.groups[inputs.kept]).size),
        V=inputs.size[0],
        one_hot=limit is not None and bool(np.all(np.diff(limit.P.indptr) == 1)),
        coverage=getattr(inputs.prediction, "coverage", None),
        frequency_gap=None if limit is None else frequency_gap(limit),
        uniform_gap=None if limit is None else limit.largest_gap,
        d=int(inputs.run.W.shape[1]),
        rank=int(inputs.targets[target.key].W.shape[1]),
    )


def frequency_gap(prediction: FeaturePrediction) -> float:
    """Loss gap in nats of a guess by the tokens' frequencies, the same in every context."""
    share = np.asarray(prediction.P @ prediction.pi)
    seen = share[share > 0]
    return float(-(seen @ np.log(seen)) - prediction.entropy)
