"""The stages of a report as data: what each is made from, its settings, and how it is made.

::

    choice -> statistics -> prediction -> path
                                       -> run-MODEL, run-MODEL-2 -> at-loss-MODEL-NORM -> comparison-MODEL, rivals-MODEL
                                                                 -> ties, ties-simulated -> ties-comparison, ...

    statistics -> unseen-cut -> unseen-counted -> unseen

Given statistics need no choice, and a transformer is trained only where it is wanted and can be. The second run of a
model is the same training with another seed, which shows how much of the geometry is reproducible; predictions at the
loss are made for the loss of the first run.

Where trained models are given, reading them takes the place of training: ``model-1, model-2, ...`` instead of
``run-...``. The text is counted with the tokenizer of the last one and its whole vocabulary, so there is no choice. The
last model decides whether the BOS token is read, and is read first; rivals are compared for it alone. With ties it is
read on more contexts (`tokengeom.page.tied_stages`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tokengeom.comparison.compare import compare
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.model_states import ModelStates
from tokengeom.comparison.monitor import feature_probes
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.comparison.target import AT_LOSS, norms_at_loss
from tokengeom.core.errors import CorpusError, ProblemError, ResourceError
from tokengeom.core.resources import Estimate
from tokengeom.page.chosen_settings import Choice, choose
from tokengeom.page.compare_models import predict_or_proxy, solver_device
from tokengeom.page.executor import (
    AT_LOSS_TOLERANCE,
    PASSES,
    PASSES_OF_RIVALS,
    PASSES_PER_PERMUTATION,
    REHEARSAL,
    STATISTICS,
    Executor,
    Stage,
    measure_at_loss,
    measure_comparison,
    measure_counting,
    measure_limit,
    measure_path,
    measure_reading,
    measure_rivals,
    measure_unseen,
)
from tokengeom.page.read_model import Models, ReadModel
from tokengeom.page.settings import MODEL_NAMES, SECONDS_PER_STEP, TRANSFORMER, ReportSettings
from tokengeom.page.source_text import SourceText
from tokengeom.page.tied_stages import Beside, tied_stages, trained_stages
from tokengeom.page.unseen import (
    COUNTED,
    CUT,
    MOST_CONTEXTS,
    MOST_TOKENS,
    UNSEEN,
    parts,
    sizes,
    training,
    without_drawn,
    without_windows,
)
from tokengeom.results.contract import carry_hash
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import estimate_prediction, predict
from tokengeom.theory.predicted_path import PredictedPath
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.run import Run
from tokengeom.training.simulate import simulated
from tokengeom.training.simulation import Simulation
from tokengeom.training.train import estimate_training, train

Source = SourceText | NextTokenStatistics
CHOICE, PREDICTION, PATH = "choice", "prediction", "path"
READ = "model-"
"""Beginning of the names of stages that read a trained model."""
EVERY_STAGE = ("core", "results", "statistics", "page.executor", "page.stages", "page.settings")
COUNTING = (*EVERY_STAGE, "corpus", "page.source_text", "page.chosen_settings")
PREDICTING = (*EVERY_STAGE, "problems", "solvers", "theory", "page.compare_models")
COMPARING = (*PREDICTING, "comparison", "corpus", "models", "training", "page.read_model")
TRAINING = (*COMPARING, "page.cache")
TYING = (*COUNTING, "comparison", "models", "training", "page.unseen")
"""Code that runs in the stages of each sort, of which the key of a stage has the hash."""
READING_SECONDS, UNSEEN_SECONDS = 5.0, 25.0
PATH_SECONDS, AT_LOSS_SECONDS, COMPARING_SECONDS, RIVALS_SECONDS = 4.0, {"nuclear": 1.0, "gamma2": 4.0}, 3.0, 7.0
"""Expected durations, until they are measured: reading a model, the training with ties, the path, predictions
at a loss, a comparison, rival explanations."""
SNAPSHOT_SECONDS = 10.0
"""Time between two snapshots of a training."""
CUT_COUNTS, HELD_COUNTS = 1.6, 0.9
"""Time of counting the larger cut, and of counting what is held out, in units of that of the statistics."""
PATH_SHARES = (0.2, 0.4, 0.65, 0.85, 0.97, 0.07, 0.02, 0.004)
"""Loss gaps of the path, as shares of the gap of a uniform guess, in the order in which they are solved."""


def training_stages(source: Source, settings: ReportSettings, models: Sequence[str]) -> list[Stage]:
    """The stages of a report that trains its models."""
    stages = [_choice_stage(source, settings)] if isinstance(source, SourceText) else []
    stages += _predicting_stages(source, 1.0, COUNTING, estimate_prediction)
    for model in models:
        # Trainings that differ in their seed only take the same time: they are measured once.
        measure = partial(estimate_training, **vars(settings.training(model)), rehearsal=REHEARSAL)
        trainings = [_training_stage(model, place, settings, measure) for place in range(settings.trainings)]
        stages += [*trainings, *_comparing_stages(model, MODEL_NAMES[model], settings, trainings[1:])]
        # Unconstrained features do not read the tokens of contexts, by which these are tied.
        if model == TRANSFORMER:
            stages += _tied_stages(model, settings, [stage.name for stage in trainings[1:]])
    return [*stages, *(_unseen_stages(source, settings) if settings.unseen else [])]


def model_stages(source: Source, settings: ReportSettings, models: Models) -> list[Stage]:
    """The stages of a report about trained models."""
    stages = _predicting_stages(source, 8.0, COMPARING, partial(measure_limit, settings.proxy))
    # Models are of one size: reading is measured once.
    reading = partial(measure_reading, models)
    stages += [_reading_stage(models, place, reading) for place in (models.last, *range(models.last))]
    for place, name in enumerate(models.names):
        stages += _comparing_stages(f"{READ}{place + 1}", name, settings, with_rivals=place == models.last)
    if settings.ties is None:
        return stages
    return [*stages, *tied_stages(settings, models, f"{READ}{models.last + 1}", _statistics_settings, COMPARING)]


def _choice_stage(text: SourceText, settings: ReportSettings) -> Stage:
    return Stage(
        CHOICE,
        "Choosing settings",
        3.0,
        lambda executor: choose(text, settings, executor.progress),
        COUNTING,
        settings=lambda executor: {**executor.plan.reading, "asked": settings.cuts},
        has_own_bars=True,
    )


def _predicting_stages(
    source: Source, seconds: float, code: tuple[str, ...], measure: Callable[[NextTokenStatistics], Estimate]
) -> list[Stage]:
    """The statistics, the prediction in the limit, and those along the loss, which the page's slider goes through.

    ``seconds``, ``code``  Of counting.
    ``measure``            Of the prediction in the limit.
    """
    counting = "Counting" if isinstance(source, SourceText) else "Saving the statistics"
    statistics = partial(Stage, settings=_statistics_settings, has_own_bars=isinstance(source, SourceText))
    prediction = partial(Stage, settings=lambda executor: executor.plan.settings.model_prediction, has_own_bars=True)
    path = partial(Stage, settings=lambda executor: {"shares": list(PATH_SHARES), "tolerance": AT_LOSS_TOLERANCE})
    return [
        statistics(STATISTICS, counting, seconds, _statistics, code),
        prediction(PREDICTION, "Predicting", 3.0, _prediction, PREDICTING, (STATISTICS,), measure=measure),
        path(PATH, "Predicting along the loss", PATH_SECONDS, _path, COMPARING, (PREDICTION,), measure=measure_path),
    ]


def _training_stage(
    model: str, place: int, settings: ReportSettings, measure: Callable[[NextTokenStatistics], Estimate]
) -> Stage:
    title = f"Training: {MODEL_NAMES[model]}"
    return Stage(
        run_stage(model, place),
        f"{title}, training {place + 1}" if place else title,
        settings.training(model).steps * SECONDS_PER_STEP[model],
        partial(_run, model, place),
        TRAINING,
        needs=(STATISTICS, PREDICTION),
        settings=lambda executor: {"training": settings.training(model, place).to_dict()},
        has_own_bars=True,
        measure=measure,
    )


def _reading_stage(models: Models, place: int, measure: Callable[[NextTokenStatistics], Estimate]) -> Stage:
    folder = models.folders[place]
    read = {"name": folder.name, "files": folder.digest, "device": models.device, "precision": models.precision}

    def bos(executor: Executor) -> bool | None:
        """As requested, or as the last model was read; None where the last one is to choose."""
        if executor.plan.settings.bos is not None or place == models.last:
            return executor.plan.settings.bos
        return executor.result(f"{READ}{models.last + 1}", ReadModel).states.bos

    return Stage(
        f"{READ}{place + 1}",
        f"Reading: {folder.name}",
        READING_SECONDS,
        lambda executor: models.read(place, executor.statistics, bos(executor), executor.progress),
        COMPARING,
        needs=(STATISTICS,),
        settings=lambda executor: {**read, "bos": bos(executor)},
        has_own_bars=True,
        measure=measure,
    )


def _comparing_stages(
    model: str, name: str, settings: ReportSettings, others: Sequence[Stage] = (), *, with_rivals: bool = True
) -> list[Stage]:
    """Stages that compare a model: predictions at its loss, the comparison, and rival explanations.

    ``others``  Stages of the other runs of the same training.
    """
    run, norms = run_stage(model), {norm: f"at-loss-{model}-{norm}" for norm in AT_LOSS}
    like = None if model.startswith(READ) else settings.training(model)
    at_loss = [
        Stage(
            stage,
            f"Predicting at the loss: {name}",
            AT_LOSS_SECONDS[norm],
            partial(_at_loss, model, norm),
            COMPARING,
            needs=(PREDICTION, run),
            measure=MEASURES[norm, model.startswith(READ)],
        )
        for norm, stage in norms.items()
    ]
    judging = partial(
        Stage,
        code=COMPARING,
        needs=(STATISTICS, PREDICTION, run),
        uses=(*(stage.name for stage in others), *norms.values()),
        settings=lambda executor: executor.plan.settings.draws,
        has_own_bars=True,
    )
    passes = (1 + len(others)) * (PASSES + PASSES_PER_PERMUTATION * settings.permutations)
    comparison = judging(
        f"comparison-{model}",
        f"Comparing: {name}",
        COMPARING_SECONDS,
        partial(_comparison, model),
        measure=partial(measure_comparison, passes),
    )
    table = judging(
        f"rivals-{model}",
        f"Rival explanations: {name}",
        RIVALS_SECONDS,
        partial(_rivals, model),
        measure=partial(measure_rivals, (1 + len(others)) * PASSES_OF_RIVALS, like, settings.proxy),
    )
    return [*at_loss, comparison, *([table] if with_rivals else [])]


def _tied_stages(model: str, settings: ReportSettings, others: Sequence[str]) -> list[Stage]:
    """Stages that compare a trained network with predictions in which contexts are tied."""
    untied = {norm: f"at-loss-{model}-{norm}" for norm in AT_LOSS}
    beside = Beside(STATISTICS, run_stage(model), untied, partial(_compared, model), f"comparison-{model}")
    passes = (1 + len(others)) * (PASSES + PASSES_PER_PERMUTATION * settings.permutations)
    return trained_stages(settings, settings.training(model), beside, others, passes, COMPARING)


def _unseen_stages(source: Source, settings: ReportSettings) -> list[Stage]:
    """Stages of the training with ties: a larger cut of the text, its windows that are not held out, the training."""
    given = source if isinstance(source, NextTokenStatistics) else None
    cuts: dict[str, Any] = {"top_contexts": MOST_CONTEXTS, "vocabulary": MOST_TOKENS, "rest": "merge", "support": "raw"}

    def cut_settings(executor: Executor) -> dict[str, Any]:
        return {**(executor.plan.reading if given is None else {"given": given.hash}), "cuts": cuts}

    def how(executor: Executor) -> dict[str, Any]:
        return training(executor.result(COUNTED, NextTokenStatistics), settings.device)

    def cut(executor: Executor) -> NextTokenStatistics | None:
        """A cut of the same pairs that is larger than that of the other stages; None where it cannot be used."""
        if sizes(executor.statistics, given) is None:
            return None
        if given is not None:
            return given.limited(**cuts)
        return executor.plan.count({**executor.result(CHOICE, Choice).settings, **cuts}, executor.progress)

    def trained(executor: Executor) -> Simulation | None:
        counted = executor.result(COUNTED, NextTokenStatistics)
        try:
            return simulated(counted, how(executor), None, 1, executor.progress)
        except ProblemError:
            return None

    measure = partial(measure_unseen, given, settings.device)
    counting = partial(measure_counting, lambda stats: sizes(stats, given) is not None)
    tied = partial(Stage, code=TYING, has_own_bars=True)
    title, more = "Training to place contexts that the text does not have", "Counting more contexts"
    held = partial(tied, measure=counting, counts=HELD_COUNTS)
    return [
        tied(CUT, more, 2.0, cut, needs=(STATISTICS,), settings=cut_settings, measure=counting, counts=CUT_COUNTS),
        held(COUNTED, "Holding documents out", 1.0, _unseen_counted, needs=(CUT,)),
        tied(UNSEEN, title, UNSEEN_SECONDS, trained, needs=(COUNTED,), settings=how, measure=measure),
    ]


def _unseen_counted(executor: Executor) -> NextTokenStatistics | None:
    """The windows that are not held out; None where no context is."""
    cut, source = executor.result(CUT, NextTokenStatistics), executor.plan.source
    if isinstance(source, NextTokenStatistics):
        return without_drawn(cut)
    held, said = parts(source.token_documents(cut.tokenizer), cut)
    whole = {"vocabulary_size": cut.text_vocabulary} if cut.tokenizer is None else {"tokenizer": cut.tokenizer}
    try:
        out = count(held, context=executor.result(CHOICE, Choice).settings["context"], **whole)
    except CorpusError:
        return None
    # Tokens of one text cannot be told apart by their names.
    if len(set(out.vocabulary)) < out.V:
        return without_drawn(cut)
    counted = without_windows(cut, out, said)
    return counted if counted.m < cut.m else None


def run_stage(model: str, place: int = 0) -> str:
    """Name of the stage of a model's first run (place 0) or of another one: run-ufm, run-ufm-2, ...

    The stage that reads a trained model has the name that its other stages end in: model-1, model-2, ...
    """
    if model.startswith(READ):
        return model
    return f"run-{model}-{place + 1}" if place else f"run-{model}"


MEASURES = {(norm, is_read): partial(measure_at_loss, norm, is_read) for norm in AT_LOSS for is_read in (False, True)}


def _statistics_settings(executor: Executor) -> dict[str, Any]:
    """Statistics depend on what was chosen, and not on why."""
    plan = executor.plan
    if isinstance(plan.source, NextTokenStatistics):
        return {"given": plan.source.limited(**plan.settings.limits).hash}
    if plan.models is not None:
        return {**plan.reading, "settings": plan.settings.model_cuts}
    return {**plan.reading, "settings": dict(executor.result(CHOICE, Choice).settings)}


def _statistics(executor: Executor) -> NextTokenStatistics:
    chosen = executor.result(CHOICE, Choice).settings if CHOICE in executor.results else {}
    return executor.plan.count(chosen, executor.progress)


def _prediction(executor: Executor) -> FeaturePrediction | ProxyPrediction:
    if executor.plan.models is None:
        return predict(executor.statistics, progress=executor.progress)
    return predict_or_proxy(executor.statistics, progress=executor.progress, **executor.plan.settings.model_prediction)


def _predicted(executor: Executor) -> FeaturePrediction | ProxyPrediction:
    """The prediction in the limit with its statistics, which a loaded one does not have."""
    prediction = executor.results[PREDICTION]
    assert isinstance(prediction, FeaturePrediction | ProxyPrediction), "the stage makes one of these"
    if prediction.stats is None:
        prediction = carry_hash(replace(prediction, stats=executor.statistics), prediction)
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
    run = train(
        executor.statistics,
        **vars(settings.training(model, place)),
        probes={} if place else feature_probes(executor.result(PREDICTION, FeaturePrediction)),
        progress=executor.progress,
        checkpoint=executor.folder.snapshots(name, executor.keys[name]),
        checkpoint_seconds=SNAPSHOT_SECONDS,
        resume=True,
    )
    # On Ctrl-C, `train` returns the run so far. A report must not be made from it: the next one resumes the training.
    if run.status == "interrupted":
        raise KeyboardInterrupt
    return run


def _compared(model: str, executor: Executor) -> list[Run | ModelStates]:
    """What is compared: a model that was read, or the runs that did not diverge, the first one before others.

    Empty where the first run diverged.
    """
    first = executor.results[run_stage(model)]
    if isinstance(first, ReadModel):
        return [carry_hash(first.states, first)]
    assert isinstance(first, Run), "the stage makes one of these"
    names = [run_stage(model, place) for place in range(1, executor.plan.settings.trainings)]
    others = [executor.result(name, Run) for name in names if name in executor.results]
    return [] if first.diverged else [first, *(run for run in others if not run.diverged)]


def _at_loss(model: str, norm: str, executor: Executor) -> LossPrediction | None:
    """The prediction at the loss of a model; None where there is none, or it would take minutes."""
    compared = _compared(model, executor)
    stats, gap = executor.statistics, compared[0].loss_gap if compared else 0.0
    share = gap / (math.log(stats.V) - stats.entropy)
    if not 0 < share < 1 or norm not in norms_at_loss(stats.P, None, share):
        return None
    device = "cpu" if executor.plan.models is None else solver_device(executor.plan.settings.device)
    try:
        at_loss = predict(stats, loss_gap=gap, norm=norm, tolerance=AT_LOSS_TOLERANCE, device=device)
    except (ProblemError, ResourceError):
        return None
    return at_loss if at_loss.rank > 0 else None


def _judged(model: str, executor: Executor) -> tuple[list[Run | ModelStates], list[LossPrediction], dict[str, Any]]:
    """What is compared, the predictions at its loss, and how floors are drawn."""
    names = [f"at-loss-{model}-{norm}" for norm in AT_LOSS]
    at = [executor.result(name, LossPrediction) for name in names if name in executor.results]
    return _compared(model, executor), at, {"progress": executor.progress, **executor.plan.settings.draws}


def _comparison(model: str, executor: Executor) -> Comparison | None:
    runs, at, draws = _judged(model, executor)
    return compare(_predicted(executor), runs, at=at or None, at_loss=bool(at), **draws) if runs else None


def _rivals(model: str, executor: Executor) -> Rivals | None:
    runs, at, draws = _judged(model, executor)
    return rivals(executor.statistics, runs, _predicted(executor), at=at, **draws) if runs else None
