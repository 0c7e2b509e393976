"""The verb `compare`: a prediction and one or several runs in, agreement on a scale and a verdict out.

With learned features a run is compared at the loss that it has reached (in the norm that goes with its optimizer, and
in the other one), then in the limit of training, L_mm. The numbers (cosines, Gram matrices, centred logits, projections
on F) do not change under the rotation R of ``W R, R^T H`` or under a softmax shift. Predictions are given by their
factors ``M = U Sigma V^T``, ``W = U Sigma^{1/2}`` (V x r), ``H = Sigma^{1/2} V^T`` (r x m).

`pair_numbers` and `judged_inputs` are what `compare` and `rivals` compute alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from tokengeom.comparison.agreement import Agreement, ItemKind, Name, assess
from tokengeom.comparison.comparison import Comparison, unexplained_items
from tokengeom.comparison.explained import Chooser, Explained, RivalRow, rival_rows
from tokengeom.comparison.explanations.base import FitInputs, explanation_classes
from tokengeom.comparison.inputs import (
    OTHER_TEXT,
    CompareSettings,
    GivenSettings,
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
from tokengeom.comparison.similarity import CollapseNumbers, directed_in_all
from tokengeom.comparison.similarity_numbers import SimilarityNumbers, sampling_limitations
from tokengeom.comparison.target import (
    AT_LOSS,
    COUNTS,
    PROXY,
    TARGETS,
    Target,
    choose_norm,
    feature_limitations,
    flat_names,
    loss_limitations,
    loss_predictions,
    norm_of,
    norm_sentence,
    predictions_at,
    proven,
    tables_of,
    ties_sentences,
)
from tokengeom.comparison.verdict import Circumstances, Evidence, judge
from tokengeom.core.numerics import Float, blas_threads_for, rounded_percent
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.settings import check_tolerance, make, takes
from tokengeom.models.language_model import AbstractLanguageModel
from tokengeom.problems.base import LARGEST_GAP
from tokengeom.results.contract import carry_hash
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.linear import LinearPrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.theory.tied import TiedPrediction
from tokengeom.training.simulation import Simulation

if TYPE_CHECKING:
    from tokengeom.keywords import CompareKeywords

LARGE_GROUPS = 3
"""Pairs of support groups that may decide a number over pairs of contexts."""
LARGE_SHARE = 0.1
"""Share of the pairs of contexts from which on these are large."""
NAMED_TOKENS = 4
EFFICIENCY_LOGITS = 50_000_000
"""Logits up to which the smallest norm with their loss is compared with their own: of more it takes minutes."""
NO_EFFICIENCY = (
    f"Efficiency was not computed: it takes minutes for more than {EFFICIENCY_LOGITS:,} logits (tokens x contexts). "
    "Take fewer contexts to have it."
)


@takes(CompareSettings)
def compare(
    prediction: Prediction | str | Path,
    run: Observed | AbstractLanguageModel | str | Path | Sequence[Observed | AbstractLanguageModel | str | Path],
    *,
    tokenizer: object = None,
    stats: NextTokenStatistics | str | Path | None = None,
    at: LossPrediction | Sequence[LossPrediction] | None = None,
    loss_gap: float | None = None,
    proven_within: float = LARGEST_GAP,
    progress: AbstractProgress | None = None,
    **settings: Unpack[CompareKeywords],
) -> Comparison:
    """Compare a run with a prediction.

    Parameters
    ----------
    prediction
        Of learned features in the limit, at a loss, with ties, or of the proxy alone, or of the linear model; or a
        simulation; or the path of a saved one. With the prediction in the limit, the one at the run's own loss is made
        as well.
    run
        What ``train`` returned, the path of a saved run, any object with W (V x d) and H (d x m) (and perhaps
        ``bias``), or the pair (W, H); or a model in memory: a Hugging Face or PyTorch module, or what
        `tokengeom.language_model` returned, which is read on the contexts of the prediction. Several runs of the same
        training with different seeds, as a list, say what is reproducible, and what share of that is explained;
        numbers that are not means are those of the first.
    tokenizer
        Tokenizer of a model in memory, to check that the text was counted with it.
    stats
        Statistics that the prediction is for, whose contexts a model in memory reads; a prediction that was loaded from
        a folder does not know the names of tokens and the tokens of contexts.
    at
        Predictions at the run's loss that were made before, instead of making them.
    loss_gap
        ``CE - H`` of the run in nats, where its logits are more than ``W H (+ bias)``.
    proven_within
        Relative gap of its norm up to which a prediction at the loss is used.
    """
    chosen = make(CompareSettings, settings, "compare")
    check_tolerance(proven_within)
    shown = progress or SilentProgress()
    expected = prediction_of(prediction)
    behind = statistics_behind(expected) if stats is None else statistics_of(stats, "compare")
    if stats is not None and behind is not None:
        require_same_statistics("prediction", hash_of(expected), "statistics", behind.hash)
        if isinstance(expected, FeaturePrediction | ProxyPrediction | Simulation | TiedPrediction):
            expected = carry_hash(replace(expected, stats=behind), expected)
    runs = runs_of(run, behind, tokenizer, shown)
    given = loss_predictions(at)
    named: GivenSettings = {"at_loss": chosen.at_loss, "tolerance": chosen.tolerance, "loss_gap": loss_gap}
    named["proven_within"] = proven_within
    origin = MadeFrom.of(expected, runs, given, getattr(expected, "stats", None), named)
    if isinstance(expected, LinearPrediction):
        for observed in runs:
            require_same_statistics("prediction", hash_of(expected), "run", hash_of(observed), OTHER_TEXT)
        return replace(compare_decoder(expected, runs[0], loss_gap, chosen), made_from=origin)
    with blas_threads_for(expected.W.shape[0], expected.H.shape[1]):
        inputs = _with_targets(gather(runs, expected, given, loss_gap), chosen, proven_within, shown)
        with shown.stage("Comparing", None):
            return replace(_compare_features(inputs, chosen), made_from=origin)


def _with_targets(inputs: Inputs, settings: CompareSettings, within: float, progress: AbstractProgress) -> Inputs:
    """With the predictions at the run's loss, the contexts that all targets have a direction for, and limitations.

    `rivals` keeps contexts by their supports instead, because it solves for its predictions later, and in each fold.
    """
    prediction, at, limitations = inputs.prediction, inputs.at, run_limitations(inputs.observed[0], inputs.gap)
    if isinstance(prediction, LossPrediction | TiedPrediction):
        in_limit = isinstance(prediction, TiedPrediction) and prediction.in_limit
        limitations = [] if in_limit else loss_limitations(prediction, inputs.gap)
        if prediction.relative_gap > within:
            limitations.append(f"Its norm is proven only to a relative gap of {prediction.relative_gap:.1e}.")
    known = prediction.stats if isinstance(prediction, ProxyPrediction) else prediction
    if isinstance(known, FeaturePrediction | NextTokenStatistics | TiedPrediction):
        notes: list[str] = []
        if not at:
            at, notes = predictions_at(inputs.gap, known, settings.at_loss, settings.tolerance, progress)
        at, unproven = proven(at, within)
        limitations += [*notes, *unproven]
    if isinstance(prediction, FeaturePrediction):
        limitations += feature_limitations(prediction, inputs.run)
    elif isinstance(prediction, ProxyPrediction):
        limitations.append(
            f"The run is compared with the proxy S~, not the certified L_mm: {prediction.singular_values.size} leading "
            f"singular vectors, {rounded_percent(prediction.captured, 1)} of its squared norm. How far S~ is "
            "from L_mm is not known here."
        )
    targets = targets_of(prediction, at)
    kept = directed_in_all(target.H for target in targets.values())
    limitations += training_limitations(inputs.observed)
    return replace(inputs, at=at, targets=targets, kept=kept, limitations=tuple(limitations))


def _compare_features(inputs: Inputs, settings: CompareSettings) -> Comparison:
    run = inputs.observed[0]
    is_tied = isinstance(inputs.prediction, TiedPrediction)
    # With ties the verdict is about them, and the prediction without them stands beside.
    by_norm = {} if is_tied else {at.norm: inputs.targets[AT_LOSS[at.norm].key].H for at in inputs.at}
    norm, inputs = judged_inputs(inputs, by_norm)
    target = next(TARGETS[key] for key in TARGETS if key in inputs.targets) if norm is None else AT_LOSS[norm]
    chooser = Chooser.of(inputs)
    explained = _explanations(inputs, chooser)
    together = chooser.together(list(explained.values())) if len(explained) > len(inputs.targets) else None
    added = {} if together is None else {COUNTS.key: together}
    numbers, rows = pair_numbers(inputs, explained | added, target.key, settings, floors=tuple(inputs.targets))
    if is_tied or isinstance(inputs.prediction, Simulation):
        more, further_rows, said = _numbers_by_frequency(inputs, target.key, settings)
        numbers, rows = numbers | more, [*rows, *further_rows]
        inputs = replace(inputs, limitations=(*inputs.limitations, *said))
    shown = {*inputs.targets, *added}
    ours = {name: agreement for name, agreement in numbers.items() if name[0] in shown}
    agreements = flat_names(ours | _context_sums(inputs, settings))
    tables, circumstances = tables_of(agreements), _circumstances(inputs, target)
    judged = next((at for at in inputs.at if at.norm == norm), None)
    efficiency, limitations = (float("nan"), float("nan")), inputs.limitations
    if math.prod(inputs.size) > EFFICIENCY_LOGITS:
        limitations = (*limitations, NO_EFFICIENCY)
    elif judged is not None:
        efficiency = judged.efficiency(inputs.run.logits)
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
        reasons=(*verdict.reasons, *norm_sentence(norm, run, tables), *ties_sentences(rows)),
        limitations=(*limitations, *sampling_limitations(inputs.size[0], inputs.kept, inputs.seen)),
        unexplained=() if together is None else unexplained_items(inputs, together),
        compared=(inputs.prediction, run),
        at=inputs.at,
    )


def judged_inputs(inputs: Inputs, predicted: Mapping[str, Float]) -> tuple[str | None, Inputs]:
    """The norm of the prediction at the loss (`choose_norm`), and the inputs with the contexts that are judged."""
    wanted, H = norm_of(inputs.observed[0]), inputs.run.H
    norm, kept, said = choose_norm(wanted, predicted, H, inputs.groups, inputs.kept)
    return norm, replace(inputs, kept=kept, limitations=(*inputs.limitations, *said))


ITEMS: tuple[ItemKind, ...] = ("contexts", "supports", "tokens")
"""What agreement is about: contexts in both weightings, and tokens."""


def pair_numbers(
    inputs: Inputs,
    explained: Mapping[str, Explained],
    judged: str | None,
    settings: CompareSettings,
    floors: tuple[str, ...] | None = None,
    kinds: Sequence[ItemKind] = ITEMS,
) -> tuple[dict[Name, Agreement], list[RivalRow]]:
    """Numbers over pairs of contexts and of tokens on their scale, and rows that compare the explanations.

    ``explained``
        Key of an explanation -> its geometry, simplest first.
    ``judged``
        Key of the prediction that the others are compared with; None where there is none.
    ``floors``
        Keys of those whose Gaussian floors are wanted; None for all.
    ``kinds``
        What the numbers are about; other kinds than tokens are about the compared contexts.
    """
    agreements: dict[Name, Agreement] = {}
    rows: list[RivalRow] = []
    infos = {key: explanation.info for key, explanation in explained.items() if key != COUNTS.key}
    for items in kinds:
        numbers = SimilarityNumbers(
            items,
            inputs.geometries["tokens" if items == "tokens" else "contexts"],
            {key: explanation.of(items) for key, explanation in explained.items()},
            inputs.run.W.shape[1],
            None if items == "tokens" else inputs.units(items),
            floors,
            inputs.strata if items == "tokens" else None,
        )
        start = inputs.start if settings.permutations else None
        untrained = None if start is None else numbers.of_other_run(inputs.vectors(start, items))
        assessed = assess(numbers, settings.permutations, settings.seed, untrained)
        # All explanations together have cosines, and no vectors.
        agreements |= {
            (key, number): agreement
            for (key, number), agreement in assessed.agreements().items()
            if key != COUNTS.key or number.endswith("_agreement")
        }
        rows += rival_rows(assessed, infos, judged)
    return agreements, rows


def _numbers_by_frequency(
    inputs: Inputs, judged: str, settings: CompareSettings
) -> tuple[dict[Name, Agreement], list[RivalRow], list[str]]:
    """Numbers of the targets on frequent contexts and on rare ones, and which these are."""
    parts, said = inputs.by_frequency()
    numbers: dict[Name, Agreement] = {}
    rows: list[RivalRow] = []
    for items, contexts in parts.items():
        part = replace(inputs, kept=contexts)
        explained = _targets(part)
        more, further_rows = pair_numbers(part, explained, judged, settings, tuple(explained), (items,))
        numbers, rows = numbers | more, rows + further_rows
    return numbers, rows, said


def _targets(inputs: Inputs) -> dict[str, Explained]:
    """The geometry of each target."""
    return {
        key: Explained.by_factors(TARGETS[key].info, target, inputs, inputs.seeds(key))
        for key, target in inputs.targets.items()
    }


def _explanations(inputs: Inputs, chooser: Chooser) -> dict[str, Explained]:
    """The targets, then the explanations that need no solver, where all probabilities are known."""
    explained = _targets(inputs)
    if inputs.stats is None or PROXY.key in inputs.targets:
        return explained
    stats = on_seen_tokens(inputs.stats, inputs.seen)
    for kind in (kind for kind in explanation_classes() if kind.quick):
        best = chooser.explain(kind, stats, FitInputs())
        if best is not None:
            explained[kind.name] = best[0]
    return explained


def _context_sums(inputs: Inputs, settings: CompareSettings) -> dict[Name, Agreement]:
    """Numbers that are sums over contexts: cosines of logits, distance of finite parts, collapse."""
    prediction, run, start = inputs.prediction, inputs.run, inputs.start if settings.permutations else None
    finite = FiniteLogits.of(prediction.P) if isinstance(prediction, FeaturePrediction) else None
    logits = LogitNumbers(run, inputs.targets, inputs.groups, finite)
    families: list[LogitNumbers | CollapseNumbers] = [logits]
    if isinstance(prediction, FeaturePrediction):
        families.append(CollapseNumbers(run, prediction.context_groups))
    agreements: dict[Name, Agreement] = {}
    for numbers in families:
        untrained = None if start is None else replace(numbers, run=start).values()
        agreements |= assess(numbers, settings.permutations, settings.seed, untrained).agreements()
    return agreements


def _circumstances(inputs: Inputs, target: Target) -> Circumstances:
    limit = inputs.prediction if isinstance(inputs.prediction, FeaturePrediction) else None
    return Circumstances(
        groups=int(np.unique(inputs.groups[inputs.kept]).size),
        V=inputs.size[0],
        one_hot=limit is not None and bool(np.all(np.diff(limit.P.indptr) == 1)),
        coverage=getattr(inputs.prediction, "coverage", None if inputs.stats is None else inputs.stats.coverage),
        merged=0.0 if inputs.stats is None else inputs.stats.merged_share,
        large_groups=_large_groups(inputs),
        frequency_gap=None if limit is None else frequency_gap(limit),
        uniform_gap=None if limit is None else limit.largest_gap,
        d=int(inputs.run.W.shape[1]),
        rank=int(inputs.targets[target.key].W.shape[1]) // inputs.seeds(target.key),
    )


def frequency_gap(prediction: FeaturePrediction) -> float:
    """Loss gap in nats of a guess by the tokens' frequencies, the same in every context."""
    share = np.asarray(prediction.P @ prediction.pi)
    seen = share[share > 0]
    return float(-(seen @ np.log(seen)) - prediction.entropy)


def _large_groups(inputs: Inputs) -> str | None:
    """The support groups that hold most of the pairs of contexts, as a phrase; None where none of them is large."""
    if inputs.stats is None:
        return None
    _, first, sizes = np.unique(inputs.groups[inputs.kept], return_index=True, return_counts=True)
    # The largest products are among the largest sizes.
    top = np.argsort(-sizes, kind="stable")[: LARGE_GROUPS + 1]
    pairs = sorted(((int(sizes[a] * sizes[b]), a, b) for a, b in combinations(top, 2)), reverse=True)[:LARGE_GROUPS]
    share = 2.0 * sum(size for size, _, _ in pairs) / max(float(sizes.sum() ** 2 - (sizes**2).sum()), 1.0)
    if share < LARGE_SHARE:
        return None
    names = [_support_name(inputs.stats, int(inputs.kept[first[g]])) for g in top[: len(pairs)]]
    total = sizes.size * (sizes.size - 1) // 2
    held = f"{len(pairs)} of {total:,} pairs of groups hold {rounded_percent(share)} of the pairs of contexts"
    return f"{held}; the next tokens of the largest groups are {'; '.join(names)}"


def _support_name(stats: NextTokenStatistics, context: int) -> str:
    """The next tokens of a context, the first of very many."""
    tokens = stats.S.indices[stats.S.indptr[context] : stats.S.indptr[context + 1]]
    shown = ", ".join(f"'{stats.vocabulary[z]}'" for z in tokens[:NAMED_TOKENS])
    return f"{{{shown}{', ...' if tokens.size > NAMED_TOKENS else ''}}}"
