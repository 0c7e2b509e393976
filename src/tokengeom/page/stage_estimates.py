"""Time and memory of a report's stages, measured before they begin."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from tokengeom.comparison.target import norms_at_loss
from tokengeom.core.resources import Estimate
from tokengeom.page.settings import SECONDS_PER_STEP, UFM
from tokengeom.page.training_ahead import half_of_the_threads
from tokengeom.theory.predict import estimate_prediction
from tokengeom.training.train import estimate_training

if TYPE_CHECKING:
    from tokengeom.page.pipeline import Stage
    from tokengeom.page.settings import ReportSettings
    from tokengeom.statistics.next_token import NextTokenStatistics

REHEARSAL = 0.7
"""Seconds of training per model that the estimate of a report is made from."""
LONG_TRAINING = 60.0
"""Seconds from which the training of unconstrained features is rehearsed even beside a second process.

A rehearsal compiles their loop, which takes seconds, and the second process does that meanwhile.
"""
SOME_GAP = 1e-3
"""Loss gap for which predictions at a loss are estimated: that of a run is not known before it."""


def estimate_stages(
    stages: Sequence[Stage], stats: NextTokenStatistics, settings: ReportSettings, tolerance: float
) -> Estimate:
    """The sum over stages: predictions and trainings are measured, the others have their expected duration.

    Trainings that a second process makes take place at the same time as everything else.

    ``tolerance`` is the proven relative gap of predictions at a loss.
    """

    @cache
    def measured(model: str, norm: str) -> Estimate:
        if norm:
            return estimate_prediction(stats, loss_gap=SOME_GAP, norm=norm, tolerance=tolerance)
        if not model:
            return estimate_prediction(stats)
        chosen = settings.training(model)
        usual = chosen.steps * SECONDS_PER_STEP[model]
        if shared and model == UFM and usual < LONG_TRAINING:
            return Estimate("", usual, usual)
        arguments = {field.name: getattr(chosen, field.name) for field in fields(chosen)}
        with half_of_the_threads(chosen.is_network) if shared else nullcontext():
            return estimate_training(stats, **arguments, rehearsal=REHEARSAL)

    shared = any(stage.is_ahead for stage in stages)
    norms = norms_at_loss(stats.P, None)
    own, ahead = list[Estimate](), list[Estimate]()
    for stage in stages:
        if stage.norm and stage.norm not in norms:
            continue
        found = Estimate(stage.title, stage.seconds, stage.seconds)
        if stage.is_measured:
            # Trainings that differ in their seed only take the same time.
            found = measured("" if stage.norm else stage.model, stage.norm)
        what = f"{stage.title}, at the same time" if stage.is_ahead else stage.title
        (ahead if stage.is_ahead else own).append(Estimate(what, found.shortest, found.longest, found.bytes))
    first, second = Estimate.total("The report", own), Estimate.total("", ahead)
    return Estimate(
        first.what,
        max(first.shortest, second.shortest),
        max(first.longest, second.longest),
        first.bytes + second.bytes,
        (*own, *ahead),
    )
