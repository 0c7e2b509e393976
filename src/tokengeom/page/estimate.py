"""`estimate`: the time and memory that a verb will take, before it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tokengeom.core.errors import InputError
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.resources import Estimate
from tokengeom.core.settings import did_you_mean, share
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page.choice import choose
from tokengeom.page.model_stages import build_model_stages, count_for_models
from tokengeom.page.pipeline import AT_LOSS_TOLERANCE, STATISTICS, build_stages, models_of
from tokengeom.page.read_model import find_models
from tokengeom.page.report import given_statistics
from tokengeom.page.settings import ReportSettings
from tokengeom.page.stage_estimates import estimate_stages
from tokengeom.page.text import Text, find_text
from tokengeom.statistics.count import count
from tokengeom.theory.predict import estimate_prediction
from tokengeom.training.train import estimate_training


def estimate(verb: str, *arguments: Any, **settings: Any) -> Estimate:
    """The time and memory that a verb is expected to take with the same arguments on this machine.

    It takes a few seconds itself. A study has its own: ``find_study(name).estimate(recipe)``.

    Parameters
    ----------
    verb
        "predict" (learned features), "train" or "report".
    arguments, settings
        Those of the verb. The text of a report is counted first.
    """
    verbs: dict[str, Callable[..., Estimate]] = {
        "predict": estimate_prediction,
        "train": estimate_training,
        "report": estimate_report,
    }
    if verb not in verbs:
        raise InputError(f"'{verb}' cannot be estimated. {did_you_mean(str(verb), verbs)}")
    return verbs[verb](*arguments, **settings)


def estimate_report(source: Any = None, *, progress: AbstractProgress | None = None, **settings: object) -> Estimate:
    """The time and memory that `tokengeom.report` is expected to take after counting, with the same arguments."""
    asked, reading = share(settings, ReportSettings, ReadingSettings, verb="estimate")
    given, shown = given_statistics(source), progress or SilentProgress()
    if asked.model_folders:
        read = find_models(asked.model_folders, **asked.model_loading)
        found = given or find_text(source, reading)
        stages = build_model_stages(found, read)
        stats = (
            count_for_models(found, asked, read, shown) if isinstance(found, Text) else found.limited(**asked.limits)
        )
        after = [stage.name for stage in stages].index(STATISTICS) + 1
        return estimate_stages(stages[after:], stats, asked, AT_LOSS_TOLERANCE)
    models = models_of(asked)
    if given is None:
        text = find_text(source, reading)
        chosen = choose(text, asked, shown).settings
        stats = count(text.corpus, progress=progress, **chosen, **asdict(text.reading))
        stages = build_stages(text, asked, models)
    else:
        stats = given.limited(**asked.limits)
        stages = build_stages(stats, asked, models)
    after = [stage.name for stage in stages].index(STATISTICS) + 1
    return estimate_stages(stages[after:], stats, asked, AT_LOSS_TOLERANCE)
