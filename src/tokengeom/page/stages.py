"""The stages of a report as data: what each is made from, its settings, and how it is made.

::

    choice -> statistics -> prediction -> path
                                       -> run-MODEL, run-MODEL-2 -> at-loss-MODEL-NORM -> comparison-MODEL, rivals-MODEL

Given statistics need no choice, and a transformer is trained only where it is wanted and can be. The second run of a
model is the same training with another seed, which gives the ceiling of agreement; predictions at the loss are made for
the loss of the first run. On two cores or more, a second process makes the later trainings of every model meanwhile
(`tokengeom.page.training_ahead`).

Where trained models are given, reading them takes the place of training: ``model-1, model-2, ...`` instead of
``run-...``. The text is counted with the tokenizer of the last one and its whole vocabulary, so there is no choice. The
last model decides whether the BOS token is read, and is read first; rivals are compared for it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from tokengeom.comparison.compare import compare
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.model_states import ModelStates
from tokengeom.comparison.probes import feature_probes
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.comparison.target import AT_LOSS, norms_at_loss
from tokengeom.core.errors import ProblemError
from tokengeom.core.progress import AbstractProgress
from tokengeom.core.resources import Estimate
from tokengeom.corpus.files import exists
from tokengeom.page.choice import Choice, choose
from tokengeom.page.compare_models import count_for_model, predict_or_proxy, require_two_tokens
from tokengeom.page.executor import STATISTICS, Executor, Plan, Stage
from tokengeom.page.formatting import listed
from tokengeom.page.read_model import Models, ReadModel, find_models
from tokengeom.page.settings import MODEL_NAMES, ModelTextSettings, ReportSettings
from tokengeom.page.text import Text, content_hashes
from tokengeom.page.training_ahead import (
    estimate_model,
    expected_seconds,
    half_of_the_threads,
    later_trainings,
    train_model,
)
from tokengeom.results.contract import carry_hash
from tokengeom.statistics.count import count
from tokengeom.statistics.cuts import support_policy
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import estimate_prediction, predict
from tokengeom.theory.predicted_path import PredictedPath
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.run import Run

CHOICE, PREDICTION, PATH = "choice", "prediction", "path"
READ = "model-"
"""Beginning of the names of stages that read a trained model."""
FINISHED_SECONDS, READING_SECONDS, PATH_SECONDS = 1.0, 8.0, 4.0
"""Expected durations: of a training that a second process made, of reading a model, of the path."""
AT_LOSS_SECONDS = {"nuclear": 1.0, "gamma2": 4.0}
"""Expected duration of a prediction at a loss, by norm."""
AT_LOSS_TOLERANCE = 1e-3
"""Proven relative gap of predictions at a loss."""
PATH_SHARES = (0.2, 0.4, 0.65, 0.85, 0.97, 0.07, 0.02, 0.004)
"""Loss gaps of the path, as shares of the gap of a uniform guess, in the order in which they are solved."""
SOME_GAP = 1e-3
"""Loss gap for which predictions at a loss are estimated: that of a run is not known before it."""


def plan_report(source: Text | NextTokenStatistics, settings: ReportSettings) -> Plan:
    """What a report is made of, in the order in which it is carried out."""
    if settings.model_folders:
        models = find_models(settings.model_folders, **settings.model_loading)
        names = {f"{READ}{place}": name for place, name in enumerate(models.names, start=1)}
        return Plan(source, settings, models, names, f"reading {listed(models.names)}", model_stages(source, models))
    names = {model: MODEL_NAMES[model] for model in settings.models_trained}
    times = {1: "once", 2: "twice"}.get(settings.trainings, f"{settings.trainings} times")
    work = f"training ({listed(names.values())}, {times} each)"
    return Plan(source, settings, None, names, work, training_stages(source, settings, list(names)))


def training_stages(source: Text | NextTokenStatistics, settings: ReportSettings, models: Sequence[str]) -> list[Stage]:
    """The stages of a report that trains its models."""
    choice = Stage(CHOICE, "Choosing settings", 3.0, _choice, settings=_choice_settings, has_own_bars=True)
    prediction = Stage(
        PREDICTION, "Predicting", 3.0, _prediction, needs=(STATISTICS,), has_own_bars=True, measure=estimate_prediction
    )
    stages = [*([choice] if isinstance(source, Text) else []), _counting(source, 1.0), prediction, _path_stage()]
    ahead = later_trainings(settings, models)
    places = [(model, place) for model in models for place in range(settings.trainings)]
    # Trainings that differ in their seed only take the same time: they are measured once.
    measures = {model: partial(estimate_model, model, settings, bool(ahead)) for model in models}
    trainings = {one: _training_stage(*one, settings, one in ahead, measures[one[0]]) for one in places}
    # A second process begins with the fastest model. Here the slowest comes first: then the others are compiled.
    slowest_first = list(dict.fromkeys(model for model, _ in reversed(ahead))) or models
    stages += [trainings[model, 0] for model in slowest_first]
    for model in models:
        later = [trainings[model, place] for place in range(1, settings.trainings)]
        others = tuple(stage.name for stage in later)
        stages += [*later, *_comparing_stages(model, MODEL_NAMES[model], others)]
    return stages


def model_stages(source: Text | NextTokenStatistics, models: Models) -> list[Stage]:
    """The stages of a report about trained models."""
    prediction = Stage(
        PREDICTION,
        "Predicting",
        10.0,
        _prediction,
        needs=(STATISTICS,),
        settings=lambda executor: {"proxy": executor.plan.settings.proxy, "device": executor.plan.settings.device},
        has_own_bars=True,
    )
    stages = [_counting(source, 4.0), prediction, _path_stage()]
    stages += [_reading_stage(models, place) for place in (models.last, *range(models.last))]
    for place, name in enumerate(models.names):
        stages += _comparing_stages(f"{READ}{place + 1}", name, with_rivals=place == models.last)
    return stages


def _counting(source: Text | NextTokenStatistics, seconds: float) -> Stage:
    is_text = isinstance(source, Text)
    title = "Counting" if is_text else "Saving the statistics"
    return Stage(STATISTICS, title, seconds, _statistics, settings=_statistics_settings, has_own_bars=is_text)


def _path_stage() -> Stage:
    """The stage of the predictions along the loss, which the page's slider goes through."""
    return Stage(
        PATH,
        "Predicting along the loss",
        PATH_SECONDS,
        _path,
        needs=(PREDICTION,),
        settings=lambda executor: {"shares": list(PATH_SHARES), "tolerance": AT_LOSS_TOLERANCE},
        measure=MEASURES["nuclear"],
    )


def _training_stage(
    model: str, place: int, settings: ReportSettings, is_ahead: bool, measure: Callable[[NextTokenStatistics], Estimate]
) -> Stage:
    title = f"Training: {MODEL_NAMES[model]}"
    return Stage(
        run_stage(model, place),
        f"{title}, training {place + 1}" if place else title,
        FINISHED_SECONDS if is_ahead else expected_seconds(settings, model),
        partial(_run, model, place),
        needs=(STATISTICS, PREDICTION),
        settings=lambda executor: {"training": settings.training(model, place).to_dict()},
        has_own_bars=True,
        measure=measure,
        ahead=(model, place) if is_ahead else None,
    )


def _reading_stage(models: Models, place: int) -> Stage:
    folder = models.folders[place]

    def bos(executor: Executor) -> bool | None:
        """As requested, or as the last model was read; None where the last one is to choose."""
        if executor.plan.settings.bos is not None or place == models.last:
            return executor.plan.settings.bos
        return executor.result(f"{READ}{len(models)}", ReadModel).states.bos

    return Stage(
        f"{READ}{place + 1}",
        f"Reading: {folder.name}",
        READING_SECONDS,
        lambda executor: models.read(place, _stats(executor), bos(executor), executor.progress),
        needs=(STATISTICS,),
        settings=lambda executor: {
            "name": folder.name,
            "files": folder.digest,
            "bos": bos(executor),
            "device": models.device,
            "precision": models.precision,
        },
        has_own_bars=True,
    )


def _comparing_stages(model: str, name: str, others: tuple[str, ...] = (), *, with_rivals: bool = True) -> list[Stage]:
    """Stages that compare a model: predictions at its loss, the comparison, and rival explanations.

    ``others``
        Stages of the other runs of the same training.
    """
    run, norms = run_stage(model), {norm: f"at-loss-{model}-{norm}" for norm in AT_LOSS}
    at_loss = [
        Stage(
            stage,
            f"Predicting at the loss: {name}",
            AT_LOSS_SECONDS[norm],
            partial(_at_loss, model, norm),
            needs=(PREDICTION, run),
            measure=MEASURES[norm],
        )
        for norm, stage in norms.items()
    ]
    judging = partial(
        Stage,
        needs=(STATISTICS, PREDICTION, run),
        uses=(*others, *norms.values()),
        settings=_draws,
        has_own_bars=True,
    )
    comparison = judging(f"comparison-{model}", f"Comparing: {name}", 3.0, partial(_comparison, model))
    table = judging(f"rivals-{model}", f"Rival explanations: {name}", 5.0, partial(_rivals, model))
    return [*at_loss, comparison, *([table] if with_rivals else [])]


def run_stage(model: str, place: int = 0) -> str:
    """Name of the stage of a model's first run (place 0) or of another one: run-ufm, run-ufm-2, ...

    The stage that reads a trained model has the name that its other stages end in: model-1, model-2, ...
    """
    if model.startswith(READ):
        return model
    return f"run-{model}-{place + 1}" if place else f"run-{model}"


def _measure_at_loss(norm: str, stats: NextTokenStatistics) -> Estimate | None:
    """Time and memory of a prediction at a loss; None where none is made."""
    if norm not in norms_at_loss(stats.P, None):
        return None
    return estimate_prediction(stats, loss_gap=SOME_GAP, norm=norm, tolerance=AT_LOSS_TOLERANCE)


MEASURES = {norm: partial(_measure_at_loss, norm) for norm in AT_LOSS}


def _choice_settings(executor: Executor) -> dict[str, Any]:
    return {**_reading(executor), "asked": executor.plan.settings.cuts}


def _choice(executor: Executor) -> Choice:
    return choose(_text(executor), executor.plan.settings, executor.progress)


def _text(executor: Executor) -> Text:
    assert isinstance(executor.plan.source, Text), "stages that read a text are built for a text only"
    return executor.plan.source


def _reading(executor: Executor) -> dict[str, Any]:
    """The text, how it is read, and the content of a saved tokenizer, whose file may change under the same name."""
    tokenizer, text, models = executor.plan.settings.tokenizer, _text(executor), executor.plan.models
    saved = list(content_hashes(Path(tokenizer))) if tokenizer is not None and exists(tokenizer) else []
    if models is not None:
        saved = [models.folders[models.last].tokenizer_digest]
    return {"text": text.digest, "reading": asdict(text.reading), "saved_tokenizer": saved}


def _statistics_settings(executor: Executor) -> dict[str, Any]:
    """Statistics depend on what was chosen, and not on why."""
    plan = executor.plan
    if isinstance(plan.source, NextTokenStatistics):
        return {"given": plan.source.limited(**plan.settings.limits).hash}
    if plan.models is not None:
        return {**_reading(executor), "settings": {**plan.settings.model_cuts, "support": plan.settings.support}}
    return {**_reading(executor), "settings": dict(executor.result(CHOICE, Choice).settings)}


def _statistics(executor: Executor) -> NextTokenStatistics:
    plan = executor.plan
    chosen = executor.result(CHOICE, Choice).settings if CHOICE in executor.results else {}
    return counted(plan, chosen, executor.progress)


def counted(plan: Plan, chosen: Mapping[str, Any], progress: AbstractProgress) -> NextTokenStatistics:
    """Statistics of the text with the chosen settings, or with the tokenizer of the last model; or the given ones."""
    source, settings, models = plan.source, plan.settings, plan.models
    if isinstance(source, NextTokenStatistics):
        stats = source.limited(**settings.limits)
    elif models is None:
        return count(source.corpus, progress=progress, **chosen, **asdict(source.reading))
    else:
        policy, cuts = support_policy(settings.support), ModelTextSettings(**settings.model_cuts)
        stats = count_for_model(source.corpus, models.load(models.last, progress), cuts, source.reading, progress)
        stats = stats if policy is None else stats.cut(policy)
    if models is not None:
        require_two_tokens(stats)
    return stats


def _stats(executor: Executor) -> NextTokenStatistics:
    return executor.result(STATISTICS, NextTokenStatistics)


def _prediction(executor: Executor) -> FeaturePrediction | ProxyPrediction:
    settings = executor.plan.settings
    if executor.plan.models is None:
        return predict(_stats(executor), progress=executor.progress)
    return predict_or_proxy(_stats(executor), settings.proxy, executor.progress, settings.device)


def _predicted(executor: Executor) -> FeaturePrediction | ProxyPrediction:
    """The prediction in the limit with its statistics, which a loaded one does not have."""
    prediction = executor.results[PREDICTION]
    assert isinstance(prediction, FeaturePrediction | ProxyPrediction), "the stage makes one of these"
    if prediction.stats is None:
        prediction = carry_hash(replace(prediction, stats=_stats(executor)), prediction)
        executor.results[PREDICTION] = prediction
    return prediction


def _path(executor: Executor) -> PredictedPath | None:
    """Predictions along the loss; None where there are none, or they would take minutes."""
    prediction = _predicted(executor)
    if (
        isinstance(prediction, ProxyPrediction)
        or not prediction.rank
        or "nuclear" not in norms_at_loss(prediction.P, None)
    ):
        return None
    gaps = [share * prediction.largest_gap for share in PATH_SHARES]
    try:
        points = prediction.path(gaps, tolerance=AT_LOSS_TOLERANCE)
    except ProblemError:
        return None
    directed = [point for point in points if point.rank > 0]
    return PredictedPath.of(directed) if directed else None


def _run(model: str, place: int, executor: Executor) -> Run:
    """One trained model; the first run of a model is compared with the prediction during training."""
    name, settings = run_stage(model, place), executor.plan.settings
    if executor.second is not None and place:
        with executor.progress.stage(f"Training: {MODEL_NAMES[model]}, training {place + 1}", None):
            executor.second.wait_for(model, place)
    is_network = settings.training(model).is_network
    with half_of_the_threads(is_network) if executor.plan.shares_cores else nullcontext():
        run = train_model(
            _stats(executor),
            settings,
            model,
            place,
            executor.folder.snapshots(name, executor.keys[name]),
            probes={} if place else feature_probes(executor.result(PREDICTION, FeaturePrediction)),
            progress=executor.progress,
        )
    # On Ctrl-C, `train` returns the run so far. A report must not be made from it: the next one resumes the training.
    if run.status == "interrupted":
        raise KeyboardInterrupt
    return run


def _measured(model: str, executor: Executor) -> Run | ReadModel:
    """The first run of a model, or the model that was read."""
    result = executor.results[run_stage(model)]
    assert isinstance(result, Run | ReadModel), "the stage makes one of these"
    return result


def _compared(model: str, executor: Executor) -> list[Run | ModelStates]:
    """What is compared: a model that was read, or the runs that did not diverge, the first one before others.

    Empty where the first run diverged.
    """
    first = _measured(model, executor)
    if isinstance(first, ReadModel):
        return [carry_hash(first.states, first)]
    names = [run_stage(model, place) for place in range(1, executor.plan.settings.trainings)]
    others = [executor.result(name, Run) for name in names if name in executor.results]
    return [] if first.diverged else [first, *(run for run in others if not run.diverged)]


def _at_loss(model: str, norm: str, executor: Executor) -> LossPrediction | None:
    """The prediction at the loss of a model; None where there is none, or it would take minutes."""
    prediction, measured = _predicted(executor), _measured(model, executor)
    if not _compared(model, executor) or isinstance(prediction, ProxyPrediction):
        return None
    gap, device = measured.loss_gap, executor.plan.settings.device
    if not 0 < gap < prediction.largest_gap or norm not in norms_at_loss(prediction.P, None):
        return None
    on_gpu = {"device": "cuda"} if isinstance(measured, ReadModel) and device.startswith("cuda") else {}
    try:
        at_loss = prediction.at(gap, norm=norm, tolerance=AT_LOSS_TOLERANCE, **on_gpu)
    except ProblemError:
        return None
    return at_loss if at_loss.rank > 0 else None


def _predicted_at_loss(model: str, executor: Executor) -> list[LossPrediction]:
    names = [f"at-loss-{model}-{norm}" for norm in AT_LOSS]
    return [executor.result(name, LossPrediction) for name in names if name in executor.results]


def _draws(executor: Executor) -> dict[str, Any]:
    return {"permutations": executor.plan.settings.permutations, "seed": executor.plan.settings.seed}


def _comparison(model: str, executor: Executor) -> Comparison | None:
    runs, at = _compared(model, executor), _predicted_at_loss(model, executor)
    if not runs:
        return None
    limit, progress = _predicted(executor), executor.progress
    return compare(limit, list(runs), at=at or None, at_loss=bool(at), progress=progress, **_draws(executor))


def _rivals(model: str, executor: Executor) -> Rivals | None:
    runs, at = _compared(model, executor), _predicted_at_loss(model, executor)
    if not runs:
        return None
    limit, progress = _predicted(executor), executor.progress
    return rivals(_stats(executor), list(runs), limit, at=at, progress=progress, **_draws(executor))
