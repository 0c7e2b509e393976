"""The pipeline of a report: a list of stages, and the object that carries them out.

::

    choice -> statistics -> prediction -> path
                                       -> run-MODEL, run-MODEL-2 -> at-loss-MODEL-NORM -> comparison-MODEL, rivals-MODEL

A `Stage` is data: its name, the stages and settings that its result depends on, the function that makes the result, and
how it appears in progress. One piece of code saves every result, finds it again by its key and loads it
(`tokengeom.page.cache.ResultsFolder.keep`). Given statistics need no choice, and a transformer is trained only where it
is wanted and can be. The second run of a model is the same training with another seed, which gives the ceiling of
agreement; predictions at the loss are made for the loss of the first run. Where trained models are given, reading them
takes the place of training (`tokengeom.page.model_stages`). On two cores or more, a second process makes the later
trainings of every model meanwhile (`tokengeom.page.training_ahead`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from tokengeom.comparison.compare import compare
from tokengeom.comparison.comparison import Comparison
from tokengeom.comparison.model_states import ModelStates
from tokengeom.comparison.probes import feature_probes
from tokengeom.comparison.rival_table import Rivals
from tokengeom.comparison.rivals import rivals
from tokengeom.comparison.target import AT_LOSS, norms_at_loss
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import blas_threads_for
from tokengeom.core.resources import Estimate
from tokengeom.corpus.files import exists
from tokengeom.page.cache import ResultsFolder
from tokengeom.page.choice import Choice, choose
from tokengeom.page.formatting import listed
from tokengeom.page.overall_progress import OverallProgress
from tokengeom.page.read_model import ReadModel
from tokengeom.page.settings import MODEL_NAMES, SECONDS_PER_STEP, TRANSFORMER, UFM, ReportSettings
from tokengeom.page.stage_estimates import estimate_stages
from tokengeom.page.text import Text, content_hashes
from tokengeom.page.training_ahead import (
    LaterTraining,
    SecondProcess,
    half_of_the_threads,
    later_trainings,
    train_model,
)
from tokengeom.results.contract import AbstractResult, carry_hash
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.theory.predicted_path import PredictedPath
from tokengeom.theory.proxy import ProxyPrediction
from tokengeom.training.run import Run

CHOICE, STATISTICS, PREDICTION, PATH = "choice", "statistics", "prediction", "path"
READ = "model-"
"""Beginning of the names of stages that read a trained model."""
FINISHED_SECONDS = 1.0
"""Expected duration of a training that a second process made."""
AT_LOSS_SECONDS = {"nuclear": 1.0, "gamma2": 4.0}
"""Expected duration of a prediction at a loss, by norm."""
AT_LOSS_TOLERANCE = 1e-3
"""Proven relative gap of predictions at a loss."""
PATH_SHARES = (0.2, 0.4, 0.65, 0.85, 0.97, 0.07, 0.02, 0.004)
"""Loss gaps of the path, as shares of the gap of a uniform guess, in the order in which they are solved."""
PATH_SECONDS = 4.0
"""Expected duration of the path."""
R = TypeVar("R", bound=AbstractResult)


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline.

    ``name``
        Name of the stage and of the folder of its result.
    ``title``, ``seconds``
        What progress shows, and the expected duration.
    ``make``
        Makes the result, given the pipeline with the results of earlier stages; None where there is nothing to make.
    ``needs``
        Names of the stages that the result is made from. Without all of them, the stage is left out.
    ``uses``
        Names of stages that the result is also made from, where they have a result.
    ``settings``
        Everything else that decides the result, as plain data.
    ``has_own_bars``
        Whether ``make`` opens its own progress bars.
    ``is_measured``, ``model``, ``norm``
        Whether the estimate of the report measures the stage: a prediction in the limit, or the training of a model,
        or a prediction at a loss in a norm. Others take their expected duration.
    ``place``, ``is_ahead``
        Which training of the model it is, from 0, and whether a second process makes it.
    """

    name: str
    title: str
    seconds: float
    make: Callable[[Pipeline], AbstractResult | None]
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    settings: Callable[[Pipeline], Mapping[str, Any]] = lambda pipeline: {}
    has_own_bars: bool = False
    is_measured: bool = False
    model: str = ""
    norm: str = ""
    place: int = 0
    is_ahead: bool = False


class Pipeline:
    """The stages of one report, and their results so far.

    ``source``
        A text, or statistics.
    ``stages``
        What is carried out, in this order.
    ``models``
        Names on the page of the models that are trained or read, by the name that their stages have.
    ``results``, ``keys``
        Result and key of every stage that was carried out, by its name.
    """

    def __init__(
        self,
        source: Text | NextTokenStatistics,
        settings: ReportSettings,
        stages: Sequence[Stage],
        models: Mapping[str, str],
        folder: ResultsFolder,
        progress: OverallProgress,
    ) -> None:
        self.source, self.settings, self.models = source, settings, dict(models)
        self.folder, self.progress = folder, progress
        self.results: dict[str, AbstractResult] = {}
        self.keys: dict[str, str] = {}
        self._stages = list(stages)
        self._announced = self._introduced = False
        self._second: SecondProcess | None = None

    def run(self) -> None:
        """Find or make the result of every stage."""
        try:
            for stage in self._stages:
                with self.progress.part(stage.seconds, stage.title):
                    self._run_stage(stage)
        finally:
            if self._second is not None:
                self._second.stop()

    def _run_stage(self, stage: Stage) -> None:
        if not set(stage.needs) <= set(self.results):
            return
        inputs = self._inputs(stage)
        self.keys[stage.name] = self.folder.key(stage.name, inputs)
        result = self.folder.keep(stage.name, inputs, partial(self._make, stage))
        if result is None:
            del self.keys[stage.name]
        else:
            self.results[stage.name] = result

    def _inputs(self, stage: Stage) -> dict[str, Any]:
        """Everything that decides the result of a stage, as plain data."""
        present = [name for name in (*stage.needs, *stage.uses) if name in self.keys]
        return {"stages": {name: self.keys[name] for name in present}, **stage.settings(self)}

    def _make(self, stage: Stage) -> AbstractResult | None:
        self._announce(stage)
        shape = (self.statistics.V, self.statistics.m) if STATISTICS in self.results else (0, 0)
        with blas_threads_for(*shape), nullcontext() if stage.has_own_bars else self.progress.stage(stage.title, None):
            return stage.make(self)

    def _announce(self, stage: Stage) -> None:
        """Say what will be made and how long it usually takes; once there are statistics, how long it takes here."""
        left = self._stages[self._stages.index(stage) :]
        if STATISTICS not in self.results:
            if not self._introduced:
                self._introduced = True
                self._introduce(sum(one.seconds for one in left))
        elif not self._announced:
            self._announced = True
            self._train_ahead(left)
            # What cannot be estimated cannot be made either, and its stage says why.
            with suppress(InputError, ProblemError):
                estimate_stages(left, self.statistics, self.settings, AT_LOSS_TOLERANCE).announce(self.progress.shown)

    def _introduce(self, seconds: float) -> None:
        names = listed(list(self.models.values()))
        work = f"reading {names}"
        if not all(model.startswith(READ) for model in self.models):
            times = {1: "once", 2: "twice"}.get(self.settings.trainings, f"{self.settings.trainings} times")
            work = f"training ({names}, {times} each)"
        usual = Estimate(f"Counting, predicting, {work} and comparing", seconds, seconds)
        if usual.is_long:
            self.progress.shown.say(f"{usual.what}: usually {usual.time} on two cores. A measured estimate follows.")

    def _train_ahead(self, left: Sequence[Stage]) -> None:
        """Start the process that makes the later trainings which are still missing."""
        trainings = []
        for stage in left:
            if stage.is_ahead and set(stage.needs) <= set(self.keys):
                key = self.folder.key(stage.name, self._inputs(stage))
                if not self.folder.is_current(stage.name, key):
                    snapshots = self.folder.snapshots(stage.name, key).absolute()
                    trainings.append(LaterTraining(stage.model, stage.place, str(snapshots)))
        if trainings:
            order = later_trainings(self.settings, list(self.models))
            trainings.sort(key=lambda one: order.index((one.model, one.place)))
            self._second = SecondProcess.start(self.folder.folder / STATISTICS, self.settings, trainings)

    @property
    def shares_cores(self) -> bool:
        """Whether trainings leave half of the cores to a second process."""
        return any(stage.is_ahead for stage in self._stages)

    def wait_for_training(self, model: str, place: int) -> None:
        """Wait for the second process, where it makes this training."""
        waited = [stage for stage in self._stages if stage.is_ahead and (stage.model, stage.place) == (model, place)]
        if self._second is not None and waited:
            with self.progress.stage(waited[0].title, None):
                self._second.wait_for(model, place)

    def result(self, name: str, kind: type[R]) -> R:
        """The result of an earlier stage."""
        found = self.results[name]
        assert isinstance(found, kind), f"stage {name} must make a {kind.__name__}"
        return found

    @property
    def text(self) -> Text:
        """The source, where it is a text."""
        assert isinstance(self.source, Text), "stages that read a text are built for a text only"
        return self.source

    @property
    def statistics(self) -> NextTokenStatistics:
        """Result of the stage of that name."""
        return self.result(STATISTICS, NextTokenStatistics)

    @property
    def prediction(self) -> FeaturePrediction | ProxyPrediction:
        """Result of the stage of that name, with its statistics, which a loaded one does not have."""
        found = self.results[PREDICTION]
        assert isinstance(found, FeaturePrediction | ProxyPrediction), "the stage makes one of these"
        if found.stats is None:
            found = self.results[PREDICTION] = carry_hash(replace(found, stats=self.statistics), found)
        return found

    def measured(self, model: str) -> Run | ReadModel:
        """The first run of a model, or the model that was read."""
        found = self.results[run_stage(model)]
        assert isinstance(found, Run | ReadModel), "the stage makes one of these"
        return found

    def observed(self, model: str) -> list[Run | ModelStates]:
        """What is compared: a model that was read, or the runs that did not diverge, the first one before others.

        Empty where the first run diverged.
        """
        first = self.measured(model)
        if isinstance(first, ReadModel):
            return [carry_hash(first.states, first)]
        names = [run_stage(model, place) for place in range(1, self.settings.trainings)]
        others = [self.result(name, Run) for name in names if name in self.results]
        return [] if diverged(first) else [first, *(run for run in others if not diverged(run))]

    def at_loss(self, model: str) -> list[LossPrediction]:
        """Predictions at the loss of a model."""
        names = [at_loss_stage(model, norm) for norm in AT_LOSS]
        return [self.result(name, LossPrediction) for name in names if name in self.results]

    @property
    def missing(self) -> list[str]:
        """A sentence for every run that could not be compared, every missing ceiling and prediction at a loss."""
        found, without = list[str](), dict[str, list[str]]()
        for model, name in self.models.items():
            first, compared = self.measured(model), self.observed(model)
            if isinstance(first, Run):
                found += self._missing_runs(first, len(compared), name)
            if compared and not self.at_loss(model):
                without.setdefault(self._why_no_loss(first), []).append(f"'{name}'")
        for why, names in without.items():
            which = f"model {names[0]}" if len(names) == 1 else f"models {listed(names)}"
            found.append(f"No prediction was made at the loss of the {which}: {why}.")
        return found

    def _missing_runs(self, first: Run, compared: int, name: str) -> list[str]:
        if not compared:
            return [f"The model '{name}' could not be compared: its run {first.status}."]
        if compared > 1:
            return []
        why = "its second run diverged" if self.settings.trainings > 1 else "it was trained once (--seeds 2)"
        return [f"The model '{name}' has no ceiling: {why}."]

    def _why_no_loss(self, measured: Run | ReadModel) -> str:
        prediction = self.prediction
        if isinstance(prediction, ProxyPrediction):
            return "the prediction is the proxy, which is the same at every loss"
        if prediction.rank == 0:
            return "no direction is predicted"
        if not measured.loss_gap < prediction.largest_gap:
            return "it is not below that of a uniform guess"
        return "the statistics are too large, or the solver did not reach it"


def build_stages(source: Text | NextTokenStatistics, settings: ReportSettings, models: Sequence[str]) -> list[Stage]:
    """The stages of a report, in the order in which they are carried out."""
    if isinstance(source, Text):
        stages = [
            Stage(CHOICE, "Choosing settings", 3.0, _choice, settings=_choice_settings, has_own_bars=True),
            Stage(STATISTICS, "Counting", 1.0, _counted, settings=_count_settings, has_own_bars=True),
        ]
    else:
        stages = [Stage(STATISTICS, "Saving the statistics", 1.0, _given, settings=_given_settings)]
    stages += [
        Stage(PREDICTION, "Predicting", 3.0, _prediction, needs=(STATISTICS,), has_own_bars=True, is_measured=True),
        path_stage(),
    ]
    ahead = later_trainings(settings, models)
    # A second process begins with the fastest model. Here the slowest comes first: then the others are compiled.
    slowest_first = list(dict.fromkeys(model for model, _ in reversed(ahead))) or models
    stages += [_training_stage(model, 0, settings) for model in slowest_first]
    for model in models:
        places = range(1, settings.trainings)
        stages += [_training_stage(model, place, settings, is_ahead=(model, place) in ahead) for place in places]
        others = tuple(run_stage(model, place) for place in range(1, settings.trainings))
        stages += comparing_stages(model, MODEL_NAMES[model], others)
    return stages


def path_stage() -> Stage:
    """The stage of the predictions along the loss, which the page's slider goes through."""
    return Stage(
        PATH,
        "Predicting along the loss",
        PATH_SECONDS,
        _path,
        needs=(PREDICTION,),
        settings=lambda pipeline: {"shares": list(PATH_SHARES), "tolerance": AT_LOSS_TOLERANCE},
        is_measured=True,
        norm="nuclear",
    )


def run_stage(model: str, place: int = 0) -> str:
    """Name of the stage of a model's first run (place 0) or of another one: run-ufm, run-ufm-2, ...

    The stage that reads a trained model has the name that its other stages end in: model-1, model-2, ...
    """
    if model.startswith(READ):
        return model
    return f"run-{model}-{place + 1}" if place else f"run-{model}"


def at_loss_stage(model: str, norm: str) -> str:
    """Name of the stage of the prediction at a model's loss."""
    return f"at-loss-{model}-{norm}"


def _training_stage(model: str, place: int, settings: ReportSettings, *, is_ahead: bool = False) -> Stage:
    title = f"Training: {MODEL_NAMES[model]}"
    return Stage(
        run_stage(model, place),
        f"{title}, training {place + 1}" if place else title,
        FINISHED_SECONDS if is_ahead else settings.training(model).steps * SECONDS_PER_STEP[model],
        partial(_run, model, place),
        needs=(STATISTICS, PREDICTION),
        settings=partial(_training_settings, model, place),
        has_own_bars=True,
        is_measured=True,
        model=model,
        place=place,
        is_ahead=is_ahead,
    )


def comparing_stages(model: str, name: str, others: tuple[str, ...] = (), *, with_rivals: bool = True) -> list[Stage]:
    """Stages that compare a model: predictions at its loss, the comparison, and rival explanations.

    ``others``
        Stages of the other runs of the same training.
    """
    run, norms = run_stage(model), {norm: at_loss_stage(model, norm) for norm in AT_LOSS}
    stages = [
        *(
            Stage(
                stage,
                f"Predicting at the loss: {name}",
                AT_LOSS_SECONDS[norm],
                partial(_at_loss, model, norm),
                needs=(PREDICTION, run),
                is_measured=True,
                model=model,
                norm=norm,
            )
            for norm, stage in norms.items()
        ),
        Stage(
            f"comparison-{model}",
            f"Comparing: {name}",
            3.0,
            partial(_comparison, model),
            needs=(PREDICTION, run),
            uses=(*others, *norms.values()),
            settings=_draw_settings,
            has_own_bars=True,
        ),
        Stage(
            f"rivals-{model}",
            f"Rival explanations: {name}",
            5.0,
            partial(_rivals, model),
            needs=(STATISTICS, PREDICTION, run),
            uses=(*others, *norms.values()),
            settings=_draw_settings,
            has_own_bars=True,
        ),
    ]
    return stages if with_rivals else stages[:-1]


def _choice_settings(pipeline: Pipeline) -> dict[str, Any]:
    return {**_reading(pipeline), "asked": pipeline.settings.cuts}


def _choice(pipeline: Pipeline) -> Choice:
    return choose(pipeline.text, pipeline.settings, pipeline.progress)


def _reading(pipeline: Pipeline) -> dict[str, Any]:
    """The text, how it is read, and the content of a saved tokenizer, whose file may change under the same name."""
    tokenizer = pipeline.settings.tokenizer
    saved = list(content_hashes(Path(tokenizer))) if tokenizer is not None and exists(tokenizer) else []
    return {"text": pipeline.text.digest, "reading": asdict(pipeline.text.reading), "saved_tokenizer": saved}


def _count_settings(pipeline: Pipeline) -> dict[str, Any]:
    """Statistics depend on what was chosen, and not on why."""
    return {**_reading(pipeline), "settings": dict(pipeline.result(CHOICE, Choice).settings)}


def _counted(pipeline: Pipeline) -> NextTokenStatistics:
    chosen, text = pipeline.result(CHOICE, Choice).settings, pipeline.text
    return count(text.corpus, progress=pipeline.progress, **chosen, **asdict(text.reading))


def _limited(pipeline: Pipeline) -> NextTokenStatistics:
    assert isinstance(pipeline.source, NextTokenStatistics), "only given statistics are taken as they are"
    return pipeline.source.limited(**pipeline.settings.limits)


def _given_settings(pipeline: Pipeline) -> dict[str, Any]:
    return {"given": _limited(pipeline).hash}


def _given(pipeline: Pipeline) -> NextTokenStatistics:
    return _limited(pipeline)


def _prediction(pipeline: Pipeline) -> FeaturePrediction:
    return predict(pipeline.statistics, progress=pipeline.progress)


def _path(pipeline: Pipeline) -> PredictedPath | None:
    """Predictions along the loss; None where there are none, or they would take minutes."""
    prediction = pipeline.prediction
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
    known = [one for one in points if one.rank > 0]
    return PredictedPath.of(known) if known else None


def _training_settings(model: str, place: int, pipeline: Pipeline) -> dict[str, Any]:
    return {"training": pipeline.settings.training(model, place).to_dict()}


def _run(model: str, place: int, pipeline: Pipeline) -> Run:
    """One trained model; the first run of a model is compared with the prediction during training."""
    name, settings = run_stage(model, place), pipeline.settings
    pipeline.wait_for_training(model, place)
    shared = half_of_the_threads(settings.training(model).is_network) if pipeline.shares_cores else nullcontext()
    with shared:
        run = train_model(
            pipeline.statistics,
            settings,
            model,
            place,
            pipeline.folder.snapshots(name, pipeline.keys[name]),
            probes={} if place else feature_probes(pipeline.result(PREDICTION, FeaturePrediction)),
            progress=pipeline.progress,
        )
    # On Ctrl-C, `train` returns the run so far. A report must not be made from it: the next one resumes the training.
    if run.status == "interrupted":
        raise KeyboardInterrupt
    return run


def _at_loss(model: str, norm: str, pipeline: Pipeline) -> LossPrediction | None:
    """The prediction at the loss of a model; None where there is none, or it would take minutes."""
    compared, prediction = pipeline.observed(model), pipeline.prediction
    if not compared or isinstance(prediction, ProxyPrediction):
        return None
    measured = pipeline.measured(model)
    gap, on_gpu = measured.loss_gap, isinstance(measured, ReadModel) and pipeline.settings.device.startswith("cuda")
    if not 0 < gap < prediction.largest_gap or norm not in norms_at_loss(prediction.P, None):
        return None
    try:
        device = {"device": "cuda"} if on_gpu else {}
        found = prediction.at(gap, norm=norm, tolerance=AT_LOSS_TOLERANCE, **device)
    except ProblemError:
        return None
    return found if found.rank > 0 else None


def _draw_settings(pipeline: Pipeline) -> dict[str, Any]:
    return {"permutations": pipeline.settings.permutations, "seed": pipeline.settings.seed}


def _comparison(model: str, pipeline: Pipeline) -> Comparison | None:
    runs, at = pipeline.observed(model), pipeline.at_loss(model)
    if not runs:
        return None
    return compare(
        pipeline.prediction,
        list(runs),
        at=at or None,
        at_loss=bool(at),
        progress=pipeline.progress,
        **_draw_settings(pipeline),
    )


def _rivals(model: str, pipeline: Pipeline) -> Rivals | None:
    runs = pipeline.observed(model)
    if not runs:
        return None
    return rivals(
        pipeline.statistics,
        list(runs),
        pipeline.prediction,
        at=pipeline.at_loss(model),
        progress=pipeline.progress,
        **_draw_settings(pipeline),
    )


def diverged(run: Run) -> bool:
    """Whether a run ended with numbers that are not finite."""
    return run.status.startswith("diverged")


def why_no_transformer(settings: ReportSettings) -> str | None:
    """Why no transformer is trained, in a sentence; None where one is."""
    if not settings.transformer:
        return "No transformer was trained, as requested."
    absent = [package for package in ("torch", "transformers") if find_spec(package) is None]
    if absent:
        return (
            f"No transformer was trained: it needs {' and '.join(absent)}, which are not installed here. Install them "
            "with: pip install 'tokengeom[networks]', and make the report again; finished stages are kept."
        )
    return None


def models_of(settings: ReportSettings) -> list[str]:
    """Models that a report trains."""
    return [UFM] if why_no_transformer(settings) else [UFM, TRANSFORMER]
