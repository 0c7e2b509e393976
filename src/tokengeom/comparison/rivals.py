"""The verb `rivals`: which explanation fits the geometry of a run best, on the same contexts and tokens.

Each explanation makes tokens and contexts from the statistics, and some from the run's loss (``explanations/``, one
file each). Their cosines are compared with the run's over pairs of contexts with different supports, and of different
tokens, with intervals, floors, a ceiling where there is a second run, and paired differences to the best explanation
and to the prediction. Contexts are then held out (`tokengeom.comparison.held_out`) and placed by each explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokengeom.comparison.agreement import assess, with_reference
from tokengeom.comparison.explanations.base import (
    EXPLANATIONS,
    AbstractFactorFit,
    AbstractFit,
    AbstractRival,
    Known,
    explanation_classes,
)
from tokengeom.comparison.held_out import HELD_OUT, Fold, FoldedNumbers, check_share, held_out_limitations, make_folds
from tokengeom.comparison.inputs import (
    NORM_OF_OPTIMIZER,
    CompareSettings,
    Observed,
    hash_of,
    on_seen_tokens,
    optimizer_of,
    require_same_statistics,
    run_limitations,
    runs_of,
    seen_tokens,
)
from tokengeom.comparison.limitations import sampling_limitations
from tokengeom.comparison.made_from import MadeFrom
from tokengeom.comparison.model_states import ModelStates
from tokengeom.comparison.norms import norms_at_loss, too_large
from tokengeom.comparison.rival_numbers import ExplanationInfo, RivalRow, best_candidate, context_agreements, rival_rows
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.similarity_numbers import SimilarityNumbers
from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import blas_threads_for
from tokengeom.core.progress import SilentProgress
from tokengeom.core.settings import make, member_names, option, takes
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.objective import SoftLabels

if TYPE_CHECKING:
    from typing import Unpack

    from tokengeom.core.numerics import Float, Int
    from tokengeom.core.progress import AbstractProgress, AbstractStage
    from tokengeom.keywords import RivalKeywords
    from tokengeom.models.language_model import AbstractLanguageModel

FOLD_ENTRIES = 60_000
"""Tokens times contexts up to which explanations that need a solver are fitted again in every fold."""
FOLD_TOLERANCE = 5e-3
"""Proven relative gap of predictions at a loss in a fold."""
MOST_HELD_OUT = 500
"""Held-out contexts that are evaluated, about."""
FEWEST_CONTEXTS = 3
NORM_NAMES = {"nuclear": "at loss, nuclear", "gamma2": "at loss, gamma_2"}
LIMIT, PROXY = "L_mm", "S~"

Fitted = dict[str, tuple[ExplanationInfo, AbstractFit]]
"""Prefix of the numbers of an explanation -> what it is, and its fit."""


@dataclass(frozen=True)
class RivalSettings(CompareSettings):
    """Which explanations are compared, and how."""

    held_out: float = option(
        0.2,
        "Share of the contexts to hold out when explanations are fitted, and to evaluate them on; at most 0.5, 0 for "
        "none.",
    )
    explanations: tuple[str, ...] | str | None = option(
        None, "Which explanations, by file name; all by default.", choices=lambda: member_names(EXPLANATIONS)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out != 0:
            check_share(self.held_out)

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
        model in memory, as in ``compare``. A list of runs of the same training with different seeds explains the first
        one; the others give the ceiling.
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
    limit, given = _checked_predictions(prediction, at, stats)
    for one in runs:
        require_same_statistics("statistics", stats.hash, "run", hash_of(one))
    factors = [Factors.of(one) for one in runs]
    for each in factors:
        each.require_sizes(stats.V, stats.m)
    with blas_threads_for(stats.V, stats.m):
        known, limitations = _known(stats, factors[0], runs[0], limit, given, loss_gap, chosen)
        seen, start = seen_tokens(stats.P), _start(runs[0], factors[0])
        table = _Table(
            on_seen_tokens(stats, seen),
            stats,
            seen,
            [one.rows(seen) for one in factors],
            None if start is None else start.rows(seen),
            known,
            chosen,
        )
        found = table.compare(shown)
    named = {name: getattr(chosen, name) for name in ("at_loss", "tolerance", "held_out")}
    named |= {"loss_gap": loss_gap, "explanations": [kind.__module__.rpartition(".")[2] for kind in chosen.classes]}
    return replace(
        found,
        limitations=(*run_limitations(runs[0], known.loss_gap), *limitations, *found.limitations),
        made_from=MadeFrom.of(limit, runs, list(given.values()), stats, named),
    )


def _checked_predictions(
    given: FeaturePrediction | LossPrediction | ProxyPrediction | str | Path | None,
    at: LossPrediction | Iterable[LossPrediction],
    stats: NextTokenStatistics,
) -> tuple[FeaturePrediction | ProxyPrediction | None, dict[str, LossPrediction]]:
    """The prediction in the limit, and those at the loss by their norm."""
    found: object = load(given) if isinstance(given, str | Path) else given
    losses = [at] if isinstance(at, LossPrediction) else list(at)
    if isinstance(found, LossPrediction):
        losses, found = [found, *losses], None
    if found is not None and not isinstance(found, FeaturePrediction | ProxyPrediction):
        raise ProblemError(
            "Rivals explain learned tokens and contexts: the prediction must be of learned features, or left out; got "
            f"{type(found).__name__}. Call predict(stats) without embeddings."
        )
    for one in (found, *losses):
        require_same_statistics("statistics", stats.hash, "prediction", hash_of(one))
    if isinstance(found, FeaturePrediction):
        _require_same_supports(stats, found)
    for one in losses:
        Factors(one.W, one.H).require_sizes(stats.V, stats.m)
    return found, {one.norm: one for one in losses}


def _require_same_supports(stats: NextTokenStatistics, prediction: FeaturePrediction) -> None:
    theirs = prediction.P
    if theirs.shape != stats.P.shape or (theirs.astype(bool) != stats.P.astype(bool)).nnz:
        raise ProblemError(
            f"The prediction must be for these statistics; it has {theirs.shape[0]} tokens, {theirs.shape[1]} contexts "
            f"and {theirs.nnz} pairs, and the statistics {stats.V}, {stats.m} and {stats.table.nnz}. Predict again "
            "from these statistics, or leave the prediction out."
        )


def _start(run: object, factors: Factors) -> Factors | None:
    """The run before training, where it is known."""
    found = getattr(run, "start", None)
    return found if isinstance(found, Factors) and found.W.shape == factors.W.shape else None


def _known(
    stats: NextTokenStatistics,
    factors: Factors,
    run: object,
    limit: FeaturePrediction | ProxyPrediction | None,
    at: Mapping[str, LossPrediction],
    loss_gap: float | None,
    settings: RivalSettings,
) -> tuple[Known, list[str]]:
    """What explanations may use beside the statistics, and what is missing."""
    known = Known(
        prediction=limit if isinstance(limit, FeaturePrediction) else None,
        at=at,
        proxy_only=isinstance(limit, ProxyPrediction),
        tolerance=settings.tolerance,
        dim=factors.W.shape[1],
        optimizer=optimizer_of(run),
    )
    if settings.at_loss is False or known.proxy_only:
        return known, []
    missing = "Explanations at the loss reached are left out: "
    norms = norms_at_loss(stats.P, settings.at_loss)
    if not norms:
        return known, [missing + too_large(stats.P)]
    if loss_gap is None and isinstance(run, ModelStates):
        loss_gap = run.loss_gap
    gap = SoftLabels.from_statistics(stats).loss_gap_of(factors) if loss_gap is None else loss_gap
    largest = float(np.log(stats.V)) - stats.entropy
    if not 0.0 < gap < largest:
        outside = f"the run's loss gap of {gap:.3g} nats is not between 0 and that of a uniform guess, {largest:.3g}."
        return known, [missing + outside]
    return replace(known, loss_gap=float(gap), norms=norms), []


@dataclass(frozen=True, eq=False)
class _Table:
    """What the rows are made from.

    ``stats``
        Statistics with the tokens that occur; ``seen`` are their rows in ``whole``, which has the whole vocabulary.
    ``runs``
        Factors of the run and of the others of the same training; ``start`` is the run before training.
    """

    stats: NextTokenStatistics
    whole: NextTokenStatistics
    seen: Int
    runs: list[Factors]
    start: Factors | None
    known: Known
    settings: RivalSettings

    def compare(self, progress: AbstractProgress) -> Rivals:
        """Fit every explanation to all contexts and without each fold, and compare."""
        stats, settings, classes = self.stats, self.settings, self.settings.classes
        folds = make_folds(stats, settings.held_out, settings.seed, MOST_HELD_OUT) if settings.held_out else []
        again = [kind for kind in classes if kind.quick or stats.V * stats.m <= FOLD_ENTRIES] if folds else []
        kept, notes = self._kept_contexts()
        with progress.stage("Fitting explanations", len(classes) + len(again) * len(folds)) as stage:
            fitted, missing = self._fit(classes, kept, stage)
            reference = self._reference(fitted, kept)
            placed, lost = self._place([kind for kind in again if f"{kind.name}: " in fitted], folds, stage)
            rows = self._rows(self._contexts(fitted, kept), fitted, reference, lambda one: one.H[:, kept])
            rows += self._rows(self._tokens(fitted), fitted, reference, lambda one: one.tokens)
            if placed:
                infos = {prefix: fitted[prefix] for prefix in placed}
                columns = np.concatenate([fold.columns for fold in folds])
                rows += self._rows(self._folded(folds, placed), infos, reference, lambda one: one.H[:, columns])
        held_out = sum(fold.columns.size for fold in folds) if placed else 0
        notes += [*missing, *lost, *_fit_limitations(fitted), *sampling_limitations(self.whole.V, kept, self.seen)]
        if settings.held_out:
            solved = [kind.name for kind in classes if kind not in again and f"{kind.name}: " in fitted]
            notes += held_out_limitations(folds, held_out, stats.m, solved)
        return Rivals(
            tuple(rows),
            held_out,
            tuple(notes),
            permutations=settings.permutations,
            seed=settings.seed,
            prediction=None if reference is None else fitted[reference][0].name,
            runs=len(self.runs),
            loss_gap=self.known.loss_gap,
        )

    def _kept_contexts(self) -> tuple[Int, list[str]]:
        """Contexts whose support is not the whole vocabulary, which have no predicted direction in the limit."""
        stats = self.stats
        everything = np.arange(stats.m, dtype=np.int64)
        partial = everything[stats.support_sizes < self.whole.V]
        full = stats.m - partial.size
        if not full:
            return everything, []
        said = f"{full} of {stats.m} contexts have full support: supports give them no direction"
        if partial.size < FEWEST_CONTEXTS:
            return everything, [f"{said}."]
        return partial, [f"{said}, and they are left out."]

    def _fit(self, classes: Sequence[type[AbstractRival]], kept: Int, stage: AbstractStage) -> tuple[Fitted, list[str]]:
        """Every explanation fitted to all contexts, and why some are not."""
        fitted: Fitted = {}
        notes, absent = [], []
        for kind in classes:
            try:
                best = self._best(kind, kept)
            except (ProblemError, ResourceError) as problem:
                if kind.quick:
                    raise
                notes.append(f"{kind.name} was left out. {problem}")
            else:
                if best is not None:
                    fitted[f"{kind.name}: "] = best
                elif not kind.quick and self.known.proxy_only:
                    absent.append(kind.name)
            stage.advance(1, kind.name)
        if absent:
            notes.append(f"Left out: {', '.join(absent)}. The given prediction is of the proxy alone.")
        if not fitted:
            raise ProblemError(
                f"At least one explanation is needed; explanations={self.settings.explanations!r} leaves none here. "
                f"{' '.join(notes)} Choose among {', '.join(member_names(EXPLANATIONS))}."
            )
        return fitted, notes

    def _best(self, kind: type[AbstractRival], kept: Int) -> tuple[ExplanationInfo, AbstractFit] | None:
        """An explanation fitted to all contexts; a prediction is made for the whole vocabulary."""
        stats = self.whole if kind.ours else self.stats
        best = best_candidate(kind, stats, self.known, self.runs[0], kept, _groups(self.stats))
        if best is None or not kind.ours:
            return best
        info, fit = best
        assert isinstance(fit, AbstractFactorFit)
        return info, replace(fit, factors=fit.factors.rows(self.seen))

    def _reference(self, fitted: Fitted, kept: Int) -> str | None:
        """Prefix of the prediction: at the loss in the norm of the optimizer, else in the limit, else the proxy.

        Where the optimizer is not known, it is the norm in which contexts agree better.
        """
        at = [f"{name}: " for name in NORM_NAMES.values() if f"{name}: " in fitted]
        wanted = NORM_OF_OPTIMIZER.get(self.known.optimizer or "")
        if wanted is not None and f"{NORM_NAMES[wanted]}: " in at:
            return f"{NORM_NAMES[wanted]}: "
        if len(at) > 1 and self.known.optimizer is None:
            targets = [fitted[prefix][1].contexts(kept) for prefix in at]
            values = context_agreements(self.runs[0].H[:, kept], targets, _groups(self.stats)[kept])
            return at[int(np.argmax(np.nan_to_num(values, nan=-2.0)))]
        others = [f"{name}: " for name in (LIMIT, *([PROXY] if self.known.proxy_only else []))]
        return next((prefix for prefix in (*at, *others) if prefix in fitted), None)

    def _place(
        self, classes: Sequence[type[AbstractRival]], folds: Sequence[Fold], stage: AbstractStage
    ) -> tuple[dict[str, list[Float]], list[str]]:
        """Held-out contexts of every fold as each explanation places them; one that fails in a fold is left out."""
        placed: dict[str, list[Float]] = {f"{kind.name}: ": [] for kind in classes}
        notes = []
        for fold in folds:
            run = _part(self.runs[0], fold.kept_tokens, fold.kept_columns)
            known = self._known_without(fold, run)
            everything = np.arange(fold.kept.m, dtype=np.int64)
            for kind in classes:
                prefix = f"{kind.name}: "
                stage.advance(1, f"{kind.name}, without a fold")
                if prefix not in placed:
                    continue
                try:
                    best = best_candidate(kind, fold.kept, known, run, everything, _groups(fold.kept))
                    problem: object = "It does not apply."
                except (ProblemError, ResourceError) as error:
                    best, problem = None, error
                if best is None:
                    del placed[prefix]
                    notes.append(
                        f"{kind.name} is not evaluated on held-out contexts. Without one of the folds: {problem}"
                    )
                else:
                    placed[prefix].append(best[1].place(fold.contexts))
        return placed if folds else {}, notes

    def _known_without(self, fold: Fold, run: Factors) -> Known:
        """What is known without a fold: the run's loss on the kept contexts."""
        gap = None
        if self.known.loss_gap is not None:
            gap = SoftLabels.from_statistics(fold.kept).loss_gap(run.logits)
            gap = gap if 0.0 < gap < np.log(fold.kept.V) - fold.kept.entropy else None
        tolerance = max(self.known.tolerance, FOLD_TOLERANCE)
        return replace(self.known, prediction=None, at={}, loss_gap=gap, tolerance=tolerance)

    def _contexts(self, fitted: Fitted, kept: Int) -> SimilarityNumbers:
        targets = {prefix: fit.contexts(kept) for prefix, (_, fit) in fitted.items()}
        return SimilarityNumbers.of("contexts", self.runs[0].H[:, kept], targets, _groups(self.stats)[kept])

    def _tokens(self, fitted: Fitted) -> SimilarityNumbers:
        everything = np.arange(self.stats.V, dtype=np.int64)
        targets = {prefix: fit.tokens(everything) for prefix, (_, fit) in fitted.items()}
        return SimilarityNumbers.of("tokens", self.runs[0].tokens, targets)

    def _folded(self, folds: Sequence[Fold], placed: Mapping[str, list[Float]]) -> FoldedNumbers:
        H, label = self.runs[0].H, _groups(self.stats)
        ends = np.cumsum([0, *(fold.columns.size for fold in folds)])
        columns = [np.arange(first, last) for first, last in pairwise(ends)]
        parts = [
            SimilarityNumbers.of(
                HELD_OUT,
                H[:, fold.columns],
                {prefix: vectors[place] for prefix, vectors in placed.items()},
                label[fold.columns],
            )
            for place, fold in enumerate(folds)
        ]
        groups = np.unique(label[np.concatenate([fold.columns for fold in folds])], return_inverse=True)[1].reshape(-1)
        return FoldedNumbers(parts, columns, groups)

    def _rows(
        self,
        numbers: SimilarityNumbers | FoldedNumbers,
        fitted: Fitted,
        reference: str | None,
        items_of: Callable[[Factors], Float],
    ) -> list[RivalRow]:
        """Rows of one kind of items with floors and ceiling; ``items_of`` gives the same items of another run."""
        assessed = assess(numbers, **self.settings.draws)
        found = assessed.agreements()
        if self.start is not None:
            found = with_reference(found, "untrained", numbers.of_other_run(items_of(self.start)))
        if len(self.runs) > 1:
            others = [items_of(one) for one in self.runs[1:]]
            found = with_reference(found, "ceiling", numbers.with_other_runs(others))
        infos = {prefix: info for prefix, (info, _) in fitted.items()}
        return rival_rows(assessed, infos, reference if reference in infos else None, found)


def _groups(stats: NextTokenStatistics) -> Int:
    """Support group of each context, m."""
    return np.asarray(stats.groups.label, dtype=np.int64)


def _part(run: Factors, tokens: Int, columns: Int) -> Factors:
    """Some tokens and contexts of a run."""
    return Factors(run.W[tokens], run.H[:, columns], None if run.bias is None else run.bias[tokens])


def _fit_limitations(fitted: Fitted) -> list[str]:
    found = [fit.limitation for _, fit in fitted.values() if fit.limitation]
    truncated = [info.name for info, fit in fitted.values() if fit.is_truncated]
    if truncated:
        found.append(f"Only the leading singular vectors of {', '.join(truncated)} are used: the statistics are large.")
    return found
