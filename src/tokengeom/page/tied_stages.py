"""Stages of a report that compare a network with a prediction in which contexts are tied by the tokens that they share.

For a trained model that is read::

    ties-counted -> ties-model -> ties -> ties-untied -> ties-comparison

with a cut of the text of their own, which has rare contexts in it. The prediction without ties at the same loss stands
beside the one with them. For a network that is trained for the report::

    statistics, run-MODEL, comparison-MODEL -> ties, at-loss-MODEL-NORM -> ties-comparison
    statistics, run-MODEL                   -> ties-simulated           -> ties-simulated-comparison

with the contexts of the other stages, in the norm of the comparison without ties, and with tied features trained as the
network was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tokengeom.comparison.compare import compare
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.explanations.base import FitInputs
from tokengeom.comparison.explanations.tied import TiedFeatures
from tokengeom.comparison.similarity_numbers import MOST_ITEMS
from tokengeom.comparison.target import optimizer_of
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import seen_tokens
from tokengeom.core.resources import Estimate
from tokengeom.models.networks.tied import TIES
from tokengeom.page.compare_models import (
    contexts_for_ties,
    count_for_model,
    expected_with_ties,
    solver_device,
    supports_for_model,
    work_of_step,
)
from tokengeom.page.executor import (
    AT_LOSS_TOLERANCE,
    GAP_OF_READ,
    PASSES,
    PASSES_PER_PERMUTATION,
    SOME_GAP,
    Executor,
    Stage,
    measure_comparison,
    measure_counting,
    measure_reading,
    measure_tied_rival,
)
from tokengeom.page.read_model import Models, ReadModel
from tokengeom.page.settings import ModelTextSettings, ReportSettings
from tokengeom.results.contract import carry_hash
from tokengeom.statistics.context_features import ContextFeatures
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.predict import estimate_prediction, predict
from tokengeom.theory.tied import TiedPrediction
from tokengeom.training.run import Run
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.simulation import Simulation

COUNTED, MODEL, TIED, UNTIED, COMPARISON = "ties-counted", "ties-model", "ties", "ties-untied", "ties-comparison"
SIMULATED, SIMULATED_COMPARISON = "ties-simulated", "ties-simulated-comparison"
SECONDS = {COUNTED: 8.0, MODEL: 10.0, TIED: 120.0, UNTIED: 60.0, COMPARISON: 20.0}
"""Expected durations, until they are measured on the few contexts of the other stages."""
TRAINED_SECONDS = {TIED: 6.0, SIMULATED: 6.0, COMPARISON: 4.0}
"""The same where the network is trained, and the contexts are those of the other stages."""
MOST_TRAINED_WORK = 4e6
"""Entries that one step of the solver touches, at most, where nobody asked for ties: the solve takes seconds."""
FEWEST_ITERATIONS, MOST_ITERATIONS = 1.5, 3.0
"""Iterations at the loss that a training reaches, in units of the fewest and the most that are expected of any loss."""
COUNTS = 1.5
"""Time of counting all contexts of the text, in units of that of counting few."""
FEWER, MORE = 0.5, 2.0
"""Solving times are scaled from a few contexts to many, and may be wrong by these factors."""


@dataclass(frozen=True, eq=False)
class TiedContexts:
    """A network compared with the predictions with and without ties, on contexts that are frequent and rare.

    ``tied``, ``comparison``
        The prediction with ties and the comparison with it; None where it does not reach the loss of the network.
    ``simulated``
        The same network compared with tied features that were trained as it was; None where it was not trained here.
    """

    counted: NextTokenStatistics
    tied: TiedPrediction | None
    comparison: Comparison | None
    simulated: Comparison | None = None

    @property
    def compared(self) -> list[Comparison]:
        """The comparisons that there are, one at least."""
        return [one for one in (self.comparison, self.simulated) if one is not None]

    def to_dict(self) -> dict[str, Any]:
        """What was compared, and the numbers, as plain data."""
        made = {} if self.tied is None else self.tied.to_dict()
        return {"contexts": self.counted.m, "coverage": self.counted.coverage, **made} | {
            "numbers": {name: number.to_dict() for one in self.compared for name, number in one.agreements.items()},
            "reasons": list(self.compared[0].reasons),
        }


@dataclass(frozen=True)
class Beside:
    """The stages whose results the prediction with ties is made from and compared with.

    ``stats``, ``run``
        The statistics, and the network that is compared: a run, or a model that was read.
    ``untied``
        The predictions without ties at the same loss, by their norm.
    ``runs``
        All trainings of the network that are compared, the first one first.
    ``comparison``
        The comparison without ties, whose verdict is about the norm in which contexts are tied; None for the nuclear
        norm.
    """

    stats: str
    run: str
    untied: Mapping[str, str]
    runs: Callable[[Executor], list[Any]]
    comparison: str | None = None

    def norm(self, executor: Executor) -> str:
        """The norm of the predictions with and without ties."""
        known = None if self.comparison is None else executor.results.get(self.comparison)
        return (known.norm if isinstance(known, Comparison) else None) or "nuclear"


def tied_stages(
    settings: ReportSettings,
    models: Models,
    last: str,
    given: Callable[[Executor], dict[str, Any]],
    code: Sequence[str],
) -> list[Stage]:
    """The stages.

    ``last``
        Stage that reads the last model on the few contexts of the other stages.
    ``given``
        What decides how a text is counted for it.
    ``code``
        As in `Stage`.
    """
    stage = partial(Stage, code=(*code, "page.tied_stages"), has_own_bars=True)
    ties = {"ties": settings.ties, "tied_contexts": settings.tied_contexts}
    beside = Beside(COUNTED, MODEL, {"nuclear": UNTIED}, _read_model)
    return [
        stage(
            COUNTED,
            "Counting more contexts",
            SECONDS[COUNTED],
            _counted,
            settings=lambda executor: {**given(executor), **ties, "device": settings.device},
            measure=partial(measure_counting, lambda stats: True),
            counts=COUNTS,
        ),
        stage(
            MODEL,
            "Reading the model on them",
            SECONDS[MODEL],
            partial(_model, last),
            needs=(COUNTED, last),
            measure=partial(_measure_reading, settings, models),
        ),
        stage(
            TIED,
            "Predicting with tied contexts",
            SECONDS[TIED],
            partial(_tied, beside),
            needs=(COUNTED, MODEL),
            settings=lambda executor: ties,
            measure=partial(_measure_solving, settings, settings.ties),
        ),
        stage(
            UNTIED,
            "Predicting without ties",
            SECONDS[UNTIED],
            _untied,
            needs=(COUNTED, TIED),
            measure=partial(_measure_solving, settings, None),
        ),
        stage(
            COMPARISON,
            "Comparing tied contexts",
            SECONDS[COMPARISON],
            partial(_comparison, beside),
            needs=(COUNTED, MODEL, TIED),
            uses=(UNTIED,),
            settings=lambda executor: settings.draws,
            measure=partial(_measure_comparison, settings),
        ),
    ]


def trained_stages(
    settings: ReportSettings,
    like: TrainingSettings,
    beside: Beside,
    others: Sequence[str],
    passes: float,
    code: Sequence[str],
) -> list[Stage]:
    """The stages for a network that is trained.

    ``like``
        How it is trained.
    ``others``
        Stages of its other trainings.
    ``passes``
        Those of a comparison.
    ``code``
        As in `Stage`.
    """
    stage = partial(Stage, code=(*code, "page.tied_stages"), has_own_bars=True)
    needs = (beside.stats, beside.run)
    compared = partial(measure_where_tied, partial(measure_comparison, passes))
    judging = partial(
        stage, seconds=TRAINED_SECONDS[COMPARISON], settings=lambda executor: settings.draws, measure=compared
    )
    return [
        stage(
            TIED,
            "Predicting with tied contexts",
            TRAINED_SECONDS[TIED],
            partial(_tied, beside),
            needs=needs,
            uses=() if beside.comparison is None else (beside.comparison,),
            settings=lambda executor: {"ties": TIES},
            measure=partial(measure_where_tied, _measure_tied),
        ),
        stage(
            SIMULATED,
            "Training tied features alike",
            TRAINED_SECONDS[SIMULATED],
            partial(_simulated, beside),
            needs=needs,
            settings=partial(_how_simulated, beside),
            measure=partial(measure_where_tied, partial(_measure_alike, like)),
        ),
        judging(
            COMPARISON,
            "Comparing tied contexts",
            make=partial(_comparison, beside),
            needs=(*needs, TIED),
            uses=(*others, *beside.untied.values()),
        ),
        judging(
            SIMULATED_COMPARISON,
            "Comparing tied features trained alike",
            make=partial(_simulated_comparison, beside),
            needs=(*needs, SIMULATED),
            uses=(*others, *beside.untied.values()),
        ),
    ]


def can_be_tied(stats: NextTokenStatistics) -> bool:
    """Whether contexts have tokens to share, and few enough of them that nobody has to ask for the prediction."""
    if stats.contexts is None or stats.contexts.shape[1] < 2:
        return False
    features = ContextFeatures.of_contexts(stats.contexts, TIES).F
    return work_of_step(seen_tokens(stats.P).size, features, stats.m) <= MOST_TRAINED_WORK


def why_not_tied(stats: NextTokenStatistics, was_asked: bool) -> str:
    """Why there is no prediction with ties, in a sentence; ``was_asked`` where these contexts are not all there are."""
    why = "on these contexts the solver did not reach the loss of the model"
    if not was_asked and not can_be_tied(stats):
        why = "contexts have no tokens that they could share"
        if stats.contexts is not None and stats.contexts.shape[1] > 1:
            why = "there are too many contexts to solve for in seconds; tokengeom predict --ties does it in minutes"
    return f"No prediction with ties was made: {why}."


def measure_where_tied(
    measure: Callable[[NextTokenStatistics], Estimate], stats: NextTokenStatistics
) -> Estimate | None:
    """What is measured, or None where no prediction with ties is made."""
    return measure(stats) if can_be_tied(stats) else None


def _measure_tied(stats: NextTokenStatistics) -> Estimate:
    """At the loss of a trained network, and in the gamma_2 norm, it takes several times the usual iterations."""
    one = estimate_prediction(stats, loss_gap=SOME_GAP, ties=TIES)
    return Estimate(one.what, FEWEST_ITERATIONS * one.shortest, MOST_ITERATIONS * one.longest, one.bytes)


def _measure_alike(like: TrainingSettings, stats: NextTokenStatistics) -> Estimate:
    """To the loss of a trained network, which may be lower than the one that the rehearsal expects."""
    one = measure_tied_rival(like, stats)
    return Estimate(one.what, MORE * one.shortest, MORE * one.longest, one.bytes)


def _measure_solving(settings: ReportSettings, ties: str | None, stats: NextTokenStatistics) -> Estimate:
    """Time and memory of the prediction with or without ties, scaled to the contexts that will be used."""
    gap = min(GAP_OF_READ, 0.5 * (math.log(stats.V) - stats.entropy))
    tolerance = AT_LOSS_TOLERANCE if ties is None else None
    one = estimate_prediction(stats, loss_gap=gap, ties=ties, tolerance=tolerance)
    contexts, times = expected_with_ties(stats, settings.tying, settings.device)
    times = contexts / stats.m if ties is None else times
    return Estimate(one.what, FEWER * times * one.shortest, MORE * times * one.longest, round(times * one.bytes))


def _measure_reading(settings: ReportSettings, models: Models, stats: NextTokenStatistics) -> Estimate:
    one, (contexts, _) = measure_reading(models, stats), expected_with_ties(stats, settings.tying, settings.device)
    return Estimate("", one.shortest * contexts / stats.m, one.longest * contexts / stats.m)


def _measure_comparison(settings: ReportSettings, stats: NextTokenStatistics) -> Estimate:
    """Time of the comparison: frequent and rare contexts are two more kinds of items."""
    contexts, _ = expected_with_ties(stats, settings.tying, settings.device)
    passes = PASSES + PASSES_PER_PERMUTATION * settings.permutations
    one, times = measure_comparison(passes, stats), (min(contexts, MOST_ITEMS) / min(stats.m, MOST_ITEMS)) ** 2
    return Estimate("", times * one.shortest, 2 * times * one.longest)


def _counted(executor: Executor) -> NextTokenStatistics:
    plan = executor.plan
    source, settings, models, progress = plan.source, plan.settings, plan.models, executor.progress
    assert models is not None, "the stages are those of models"
    cuts = ModelTextSettings(**settings.model_cuts, device=settings.device)
    if isinstance(source, NextTokenStatistics):
        return supports_for_model(contexts_for_ties(source, settings.tying, settings.device, progress), cuts)
    model = models.load(models.last, progress)
    counted = count_for_model(source.corpus, model, cuts, source.reading, progress, settings.tying)
    return supports_for_model(counted, cuts)


def _model(last: str, executor: Executor) -> ReadModel:
    models, bos = executor.plan.models, executor.result(last, ReadModel).states.bos
    assert models is not None, "the stages are those of models"
    return models.read(models.last, executor.result(COUNTED, NextTokenStatistics), bos, executor.progress)


def _tied(beside: Beside, executor: Executor) -> TiedPrediction | None:
    """The prediction with ties at the loss of the network; None where it is not made or not reached."""
    stats, gap = executor.result(beside.stats, NextTokenStatistics), _network(beside, executor).loss_gap
    settings = executor.plan.settings
    if settings.ties is None and not can_be_tied(stats):
        return None
    where = "cpu" if executor.plan.models is None else solver_device(settings.device)
    how: dict[str, Any] = {"norm": beside.norm(executor), "device": where, "progress": executor.progress}
    try:
        # Near the floor of the loss, factors of a small gamma_2 norm are not always found.
        return predict(stats, loss_gap=gap, ties=settings.ties or TIES, **how)
    except ProblemError:
        return None


def _network(beside: Beside, executor: Executor) -> Run | ReadModel:
    found = executor.results[beside.run]
    assert isinstance(found, Run | ReadModel), "the stage makes one of these"
    return found


def _read_model(executor: Executor) -> list[Any]:
    read = executor.result(MODEL, ReadModel)
    return [carry_hash(read.states, read)]


def _untied(executor: Executor) -> LossPrediction | None:
    stats, gap = executor.result(COUNTED, NextTokenStatistics), executor.result(TIED, TiedPrediction).loss_gap
    where = solver_device(executor.plan.settings.device)
    try:
        return predict(stats, loss_gap=gap, tolerance=AT_LOSS_TOLERANCE, device=where, progress=executor.progress)
    except ProblemError:
        return None


def _comparison(beside: Beside, executor: Executor) -> Comparison | None:
    return _compared(beside, executor.result(TIED, TiedPrediction), executor)


def _simulated_comparison(beside: Beside, executor: Executor) -> Comparison | None:
    return _compared(beside, executor.result(SIMULATED, Simulation), executor)


def _compared(beside: Beside, prediction: TiedPrediction | Simulation, executor: Executor) -> Comparison | None:
    """The comparison of all trainings, also with the prediction without ties; None where the first one diverged."""
    untied = executor.results.get(beside.untied[beside.norm(executor)])
    at = [untied] if isinstance(untied, LossPrediction) else []
    stats, runs = executor.result(beside.stats, NextTokenStatistics), beside.runs(executor)
    if not runs:
        return None
    # A prediction that was loaded has no statistics.
    known = carry_hash(replace(prediction, stats=stats), prediction)
    draws = executor.plan.settings.draws
    return compare(known, runs, at=at or None, at_loss=bool(at), progress=executor.progress, **draws)


def _rival(beside: Beside, executor: Executor) -> TiedFeatures:
    """Tied features that are trained as the network was."""
    run = executor.result(beside.run, Run)
    return TiedFeatures(FitInputs(loss_gap=run.loss_gap, dim=run.W.shape[1], optimizer=optimizer_of(run), run=run))


def _how_simulated(beside: Beside, executor: Executor) -> dict[str, Any]:
    """How tied features are trained, as plain data."""
    how = _rival(beside, executor).training(executor.result(beside.stats, NextTokenStatistics))
    return {"training": TrainingSettings(**how).to_dict()}


def _simulated(beside: Beside, executor: Executor) -> Simulation | None:
    """Tied features trained as the network was; None where they are not made or do not reach its loss."""
    stats, run = executor.result(beside.stats, NextTokenStatistics), executor.result(beside.run, Run)
    if not can_be_tied(stats) or run.diverged:
        return None
    try:
        return _rival(beside, executor).simulation(stats, executor.progress)
    except ProblemError:
        return None
