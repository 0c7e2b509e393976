"""The verb `rivals`: which explanation fits the geometry of a run best, on the same contexts and tokens.

Each explanation makes tokens and contexts from the statistics, and some from the run's loss (``explanations/``, one
file each). Their cosines are compared with the run's over pairs of contexts with different supports, and of different
tokens, with intervals, floors, the share of what is reproducible where there are several runs, and paired differences
to the best explanation and to the prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

import numpy as np

from tokengeom.comparison.compare import judged_inputs, pair_numbers
from tokengeom.comparison.explained import Chooser, Explained, best_for_contexts, try_candidates
from tokengeom.comparison.explanations.base import (
    EXPLANATIONS,
    AbstractFit,
    AbstractRival,
    FactorFit,
    FitInputs,
    explanation_classes,
)
from tokengeom.comparison.inputs import (
    CompareSettings,
    GivenSettings,
    Inputs,
    MadeFrom,
    Observed,
    gather,
    on_seen_tokens,
    run_limitations,
    runs_of,
)
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.similarity_numbers import sampling_limitations
from tokengeom.comparison.target import AT_LOSS, LIMIT, PROXY, loss_predictions, norms_at_loss, optimizer_of, too_large
from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.core.numerics import blas_threads_for
from tokengeom.core.progress import AbstractProgress, AbstractStage, SilentProgress
from tokengeom.core.settings import make, member_names, option, takes
from tokengeom.models.language_model import AbstractLanguageModel
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.run import Run

if TYPE_CHECKING:
    from tokengeom.keywords import RivalKeywords

FEWEST_CONTEXTS = 3

T = TypeVar("T")


@dataclass(frozen=True)
class RivalSettings(CompareSettings):
    """Which explanations are compared, and how."""

    explanations: tuple[str, ...] | str | None = option(
        None, "Which explanations, by file name; all by default.", choices=lambda: member_names(EXPLANATIONS)
    )

    @property
    def classes(self) -> list[type[AbstractRival]]:
        """Classes of the explanations, simplest first."""
        named = self.explanations
        return explanation_classes((named,) if isinstance(named, str) else named)


@takes(RivalSettings)
def rivals(
    stats: NextTokenStatistics | str | Path,
    run: Observed | AbstractLanguageModel | str | Path | Sequence[Observed | AbstractLanguageModel | str | Path],
    prediction: FeaturePrediction | LossPrediction | ProxyPrediction | str | Path | None = None,
    *,
    tokenizer: object = None,
    at: LossPrediction | Iterable[LossPrediction] = (),
    loss_gap: float | None = None,
    progress: AbstractProgress | None = None,
    **settings: Unpack[RivalKeywords],
) -> Rivals:
    """Compare explanations of a run's geometry.

    Parameters
    ----------
    stats
        Statistics that the run was trained on, or the path of saved ones.
    run
        What ``train`` returned, the path of a saved run, any object with W (V x d) and H (d x m), the pair (W, H), or a
        model in memory, as in ``compare``. Several runs of the same training with different seeds, as a list, say what
        is reproducible.
    prediction
        Prediction of learned features in the limit, or its path; it is solved for where it is not given. A prediction
        of the proxy alone, for statistics that are too large to solve, leaves out what needs a solver.
    tokenizer
        Tokenizer of a model in memory, to check that the text was counted with it.
    at
        Predictions at the run's loss that were made before, instead of making them.
    loss_gap
        ``CE - H`` of the run in nats, where its logits are more than ``W H (+ bias)``.
    """
    chosen = make(RivalSettings, settings, "rivals")
    stats, shown = statistics_of(stats, "rivals"), progress or SilentProgress()
    runs = runs_of(run, stats, tokenizer, shown)
    limit, given = _predictions(prediction, at, stats)
    with blas_threads_for(stats.V, stats.m):
        inputs = _on_partial_supports(gather(runs, limit, given, loss_gap, stats))
        known, notes = _fit_inputs(inputs, chosen)
        table = _compared(inputs, stats, known, chosen, shown)
    named: GivenSettings = {"at_loss": chosen.at_loss, "tolerance": chosen.tolerance, "loss_gap": loss_gap}
    named["explanations"] = [kind.__module__.rpartition(".")[2] for kind in chosen.classes]
    return replace(
        table,
        limitations=(*run_limitations(runs[0], known.loss_gap), *notes, *table.limitations),
        made_from=MadeFrom.of(limit, runs, given, stats, named),
    )


def _predictions(
    given: FeaturePrediction | LossPrediction | ProxyPrediction | str | Path | None,
    at: LossPrediction | Iterable[LossPrediction],
    stats: NextTokenStatistics,
) -> tuple[FeaturePrediction | ProxyPrediction | None, list[LossPrediction]]:
    """The prediction in the limit, and those at the loss, one per norm."""
    prediction: object = load(given) if isinstance(given, str | Path) else given
    losses = list(loss_predictions(at))
    if isinstance(prediction, LossPrediction):
        losses, prediction = [prediction, *losses], None
    if prediction is not None and not isinstance(prediction, FeaturePrediction | ProxyPrediction):
        raise ProblemError(
            "Rivals explain learned tokens and contexts: the prediction must be of learned features, or left out; got "
            f"{type(prediction).__name__}. Call predict(stats) without embeddings."
        )
    if isinstance(prediction, FeaturePrediction) and prediction.statistics_hash in (None, stats.hash):
        theirs = prediction.P
        if theirs.shape != stats.P.shape or (theirs.astype(bool) != stats.P.astype(bool)).nnz:
            raise ProblemError(
                f"The prediction must be for these statistics; it has {theirs.shape[0]} tokens, {theirs.shape[1]} "
                f"contexts and {theirs.nnz} pairs, and the statistics {stats.V}, {stats.m} and {stats.table.nnz}. "
                "Predict again from these statistics, or leave the prediction out."
            )
    return prediction, list({loss.norm: loss for loss in losses}.values())


def _on_partial_supports(inputs: Inputs) -> Inputs:
    """With the contexts whose support is not the whole vocabulary, which have no predicted direction in the limit.

    `compare` keeps those that its predictions have a direction for; here most explanations are not made yet.
    """
    assert inputs.stats is not None
    stats = inputs.stats
    partial = np.flatnonzero(stats.support_sizes < stats.V)
    full = stats.m - partial.size
    if not full:
        return inputs
    said = f"{full} of {stats.m} contexts have full support: supports give them no direction"
    if partial.size < FEWEST_CONTEXTS:
        return replace(inputs, limitations=(f"{said}.",))
    return replace(inputs, kept=partial, limitations=(f"{said}, and they are left out.",))


def _fit_inputs(inputs: Inputs, settings: RivalSettings) -> tuple[FitInputs, list[str]]:
    """What explanations may use beside the statistics, and what is missing."""
    assert inputs.stats is not None
    prediction, P = inputs.prediction, inputs.stats.P
    known = FitInputs(
        prediction=prediction if isinstance(prediction, FeaturePrediction) else None,
        at={at.norm: at for at in inputs.at},
        proxy_only=PROXY.key in inputs.targets,
        tolerance=settings.tolerance,
        dim=inputs.run.W.shape[1],
        optimizer=optimizer_of(inputs.observed[0]),
        run=run if isinstance(run := inputs.observed[0], Run) and run.settings.get("model") != "linear" else None,
    )
    if settings.at_loss is False or known.proxy_only:
        return known, []
    missing = "Explanations at the loss reached are left out: "
    norms = norms_at_loss(P, settings.at_loss)
    if not norms:
        return known, [missing + too_large(P)]
    assert inputs.gap is not None, "all probabilities are known"
    largest = float(np.log(inputs.stats.V)) - inputs.stats.entropy
    if not 0.0 < inputs.gap < largest:
        outside = f"the run's loss gap of {inputs.gap:.3g} nats is not between 0 and that of a uniform guess, "
        return known, [f"{missing}{outside}{largest:.3g}."]
    return replace(known, loss_gap=inputs.gap, norms=norms), []


def _compared(
    inputs: Inputs, stats: NextTokenStatistics, known: FitInputs, settings: RivalSettings, progress: AbstractProgress
) -> Rivals:
    """Fit every explanation, and compare."""
    classes, seen = settings.classes, on_seen_tokens(stats, inputs.seen)

    def predicted(kind: type[AbstractRival]) -> FactorFit | None:
        """A prediction, which is made for the whole vocabulary and has no free parameter."""
        fit = best_for_contexts(try_candidates(kind, stats, known, lambda _: ()))
        assert fit is None or isinstance(fit, FactorFit), "predictions have factors"
        return fit

    with progress.stage("Fitting explanations", len(classes)) as stage:
        # The predictions come first: they decide which contexts are judged.
        ours, notes = _fit([kind for kind in classes if kind.ours], known, stage, predicted)
        reference, inputs = _reference(inputs, ours)
        chooser = Chooser.of(inputs)
        others, more = _fit(
            [kind for kind in classes if not kind.ours], known, stage, lambda kind: chooser.explain(kind, seen, known)
        )
        notes += more
        infos = {kind.name: kind.info() for kind in classes if kind.name in ours}
        explained = {name: Explained.by_factors(info, ours[name].factors, inputs) for name, info in infos.items()}
        explained |= {name: one for name, (one, _) in others.items()}
        if not explained:
            raise ProblemError(
                f"At least one explanation is needed; explanations={settings.explanations!r} leaves none here. "
                f"{' '.join(notes)} Choose among {', '.join(member_names(EXPLANATIONS))}."
            )
        if reference is None and known.proxy_only and PROXY.info.name in others:
            reference = PROXY.info.name
        in_order = {kind.name: explained[kind.name] for kind in classes if kind.name in explained}
        _, rows = pair_numbers(inputs, in_order, reference, settings)
    notes = [*inputs.limitations, *notes, *_fit_limitations({name: fit for name, (_, fit) in others.items()})]
    return Rivals(
        rows=tuple(rows),
        limitations=(*notes, *sampling_limitations(stats.V, inputs.kept, inputs.seen)),
        held_out=0,
        permutations=settings.permutations,
        seed=settings.seed,
        prediction=reference,
        runs=len(inputs.runs),
        loss_gap=known.loss_gap,
    )


def _fit(
    classes: Sequence[type[AbstractRival]],
    known: FitInputs,
    stage: AbstractStage,
    fit: Callable[[type[AbstractRival]], T | None],
) -> tuple[dict[str, T], list[str]]:
    """Explanations that were fitted, and why some were not."""
    fitted: dict[str, T] = {}
    notes, absent = [], []
    for kind in classes:
        try:
            best = fit(kind)
        except (ProblemError, ResourceError) as problem:
            if kind.quick:
                raise
            notes.append(f"{kind.name} was left out. {problem}")
        else:
            if best is not None:
                fitted[kind.name] = best
            elif not kind.quick and known.proxy_only:
                absent.append(kind.name)
        stage.advance(1, kind.name)
    if absent:
        notes.append(f"Left out: {', '.join(absent)}. The given prediction is of the proxy alone.")
    return fitted, notes


def _reference(inputs: Inputs, predictions: Mapping[str, FactorFit]) -> tuple[str | None, Inputs]:
    """Name of the prediction, and the contexts that are judged.

    It is the one at the loss in the norm of the optimizer, or that was chosen on half of the supports; else the one in
    the limit.
    """
    at = {norm: target.info.name for norm, target in AT_LOSS.items() if target.info.name in predictions}
    norm, inputs = judged_inputs(inputs, {norm: predictions[name].factors.H for norm, name in at.items()})
    if norm is not None:
        return at[norm], inputs
    return LIMIT.info.name if LIMIT.info.name in predictions else None, inputs


def _fit_limitations(fits: Mapping[str, AbstractFit]) -> list[str]:
    sentences = [fit.limitation for fit in fits.values() if fit.limitation]
    truncated = [name for name, fit in fits.items() if fit.is_truncated]
    if truncated:
        sentences.append(
            f"Only the leading singular vectors of {', '.join(truncated)} are used: the statistics are large."
        )
    return sentences
