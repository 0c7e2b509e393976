"""Time and memory of a report's stages, measured before they begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from tokengeom.estimates import Estimate
from tokengeom.geometry.norms import norms_at_loss
from tokengeom.theory.predict import estimate_prediction
from tokengeom.training.train import estimate_training

if TYPE_CHECKING:
    from tokengeom.page.pipeline import Stage
    from tokengeom.page.settings import ReportSettings
    from tokengeom.statistics.next_token import NextTokenStatistics

REHEARSAL = 0.7
"""Seconds of training per model that the estimate of a report is made from."""
SOME_GAP = 1e-3
"""Loss gap for which predictions at a loss are estimated: that of a run is not known before it."""


def estimate_stages(
    stages: Sequence[Stage], stats: NextTokenStatistics, settings: ReportSettings, tolerance: float
) -> Estimate:
    """The sum over stages: predictions and trainings are measured, the others have their expected duration.

    ``tolerance`` is the proven relative gap of predictions at a loss.
    """

    @cache
    def measured(model: str, norm: str) -> Estimate:
        if norm:
            return estimate_prediction(stats, loss_gap=SOME_GAP, norm=norm, tolerance=tolerance)
        if not model:
            return estimate_prediction(stats)
        chosen = settings.training(model)
        arguments = {field.name: getattr(chosen, field.name) for field in fields(chosen)}
        return estimate_training(stats, **arguments, rehearsal=REHEARSAL)

    norms = norms_at_loss(stats.P, None)
    parts = []
    for stage in stages:
        if stage.norm and stage.norm not in norms:
            continue
        found = Estimate(stage.title, stage.seconds, stage.seconds)
        if stage.is_measured:
            # Trainings that differ in their seed only take the same time.
            found = measured("" if stage.norm else stage.model, stage.norm)
        parts.append(Estimate(stage.title, found.shortest, found.longest, found.bytes))
    return Estimate.total("The report", parts)
