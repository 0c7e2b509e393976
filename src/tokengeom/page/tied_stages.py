"""Stages of a report about trained models that compare the last one with a prediction in which contexts are tied.

::

    ties-counted -> ties-model -> ties -> ties-untied -> ties-comparison

They have their own cut of the text, with rare contexts in it. The prediction without ties at the same loss stands
beside the one with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tokengeom.comparison.compare import compare
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.similarity_numbers import MOST_ITEMS
from tokengeom.core.errors import ProblemError
from tokengeom.core.resources import Estimate
from tokengeom.page.compare_models import (
    contexts_for_ties,
    count_for_model,
    expected_with_ties,
    solver_device,
    supports_for_model,
)
from tokengeom.page.executor import (
    AT_LOSS_TOLERANCE,
    GAP_OF_READ,
    PASSES,
    PASSES_PER_PERMUTATION,
    Executor,
    Stage,
    measure_comparison,
    measure_counting,
    measure_reading,
)
from tokengeom.page.read_model import Models, ReadModel
from tokengeom.page.settings import ModelTextSettings, ReportSettings
from tokengeom.results.contract import carry_hash
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.predict import estimate_prediction, predict
from tokengeom.theory.tied import TiedPrediction

COUNTED, MODEL, TIED, UNTIED, COMPARISON = "ties-counted", "ties-model", "ties", "ties-untied", "ties-comparison"
SECONDS = {COUNTED: 8.0, MODEL: 10.0, TIED: 120.0, UNTIED: 60.0, COMPARISON: 20.0}
"""Expected durations, until they are measured on the few contexts of the other stages."""
COUNTS = 1.5
"""Time of counting all contexts of the text, in units of that of counting few."""
FEWER, MORE = 0.5, 2.0
"""Solving times are scaled from a few contexts to many, and may be wrong by these factors."""


@dataclass(frozen=True, eq=False)
class TiedContexts:
    """The last model compared with the predictions with and without ties, on contexts that are frequent and rare."""

    counted: NextTokenStatistics
    tied: TiedPrediction
    comparison: Comparison

    def to_dict(self) -> dict[str, Any]:
        """What was compared, and the numbers, as plain data."""
        return {"contexts": self.counted.m, "coverage": self.counted.coverage, **self.tied.to_dict()} | {
            "numbers": {name: number.to_dict() for name, number in self.comparison.agreements.items()},
            "reasons": list(self.comparison.reasons),
        }


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
            _tied,
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
            _comparison,
            needs=(COUNTED, MODEL, TIED),
            uses=(UNTIED,),
            settings=lambda executor: settings.draws,
            measure=partial(_measure_comparison, settings),
        ),
    ]


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


def _tied(executor: Executor) -> TiedPrediction | None:
    """The prediction with ties at the loss of the model; None where it is not reached."""
    stats, gap = executor.result(COUNTED, NextTokenStatistics), executor.result(MODEL, ReadModel).loss_gap
    settings = executor.plan.settings
    where = solver_device(settings.device)
    assert settings.ties is not None, "there are ties"
    try:
        return predict(stats, loss_gap=gap, ties=settings.ties, device=where, progress=executor.progress)
    except ProblemError:
        return None


def _untied(executor: Executor) -> LossPrediction | None:
    stats, gap = executor.result(COUNTED, NextTokenStatistics), executor.result(TIED, TiedPrediction).loss_gap
    where = solver_device(executor.plan.settings.device)
    try:
        return predict(stats, loss_gap=gap, tolerance=AT_LOSS_TOLERANCE, device=where, progress=executor.progress)
    except ProblemError:
        return None


def _comparison(executor: Executor) -> Comparison:
    read, stats = executor.result(MODEL, ReadModel), executor.result(COUNTED, NextTokenStatistics)
    tied = executor.result(TIED, TiedPrediction)
    at = [executor.result(UNTIED, LossPrediction)] if UNTIED in executor.results else []
    draws = executor.plan.settings.draws
    return compare(
        carry_hash(replace(tied, stats=stats), tied),
        carry_hash(read.states, read),
        at=at or None,
        at_loss=bool(at),
        progress=executor.progress,
        **draws,
    )
