"""The pipeline of a report: a list of stages, and the object that carries them out.

::

    choice -> statistics -> prediction -> run-MODEL, run-MODEL-2 -> at-loss-MODEL-NORM -> comparison-MODEL, rivals-MODEL

A `Stage` is data: its name, the stages and settings that its result depends on, the function that makes the result, and
how it appears in progress. One piece of code saves every result, finds it again by its key and loads it
(`tokengeom.page.cache.ResultsFolder.keep`). Given statistics need no choice, and a transformer is trained only where it
is wanted and can be. The second run of a model is the same training with another seed, which gives the ceiling of
agreement; predictions at the loss are made for the loss of the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from tokengeom.corpus.documents import exists
from tokengeom.errors import ProblemError
from tokengeom.geometry.compare import compare
from tokengeom.geometry.comparison import NORM_PREFIX, Comparison
from tokengeom.geometry.inputs import predicts_at_loss
from tokengeom.geometry.probes import feature_probes
from tokengeom.geometry.rival_table import Rivals
from tokengeom.geometry.rivals import rivals
from tokengeom.page.cache import ResultsFolder
from tokengeom.page.choice import Choice, choose
from tokengeom.page.settings import MODEL_NAMES, SECONDS_PER_STEP, TRANSFORMER, UFM, ReportSettings
from tokengeom.page.text import Text, content_hashes
from tokengeom.progress import AbstractProgress, AbstractStage
from tokengeom.results import AbstractResult
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.training.run import Run
from tokengeom.training.train import train

CHOICE, STATISTICS, PREDICTION = "choice", "statistics", "prediction"
SNAPSHOT_SECONDS = 10.0
"""Time between two snapshots of a training."""
AT_LOSS_SECONDS = {"nuclear": 1.0, "gamma2": 4.0}
"""Expected duration of a prediction at a loss, by norm."""
AT_LOSS_TOLERANCE = 1e-3
"""Proven relative gap of predictions at a loss."""
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
    """

    name: str
    title: str
    seconds: float
    make: Callable[[Pipeline], AbstractResult | None]
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    settings: Callable[[Pipeline], Mapping[str, Any]] = lambda pipeline: {}
    has_own_bars: bool = False


class Pipeline:
    """The stages of one report, and their results so far.

    ``source``
        A text, or statistics.
    ``models``
        Names of the models that are trained.
    ``results``, ``keys``
        Result and key of every stage that was carried out, by its name.
    """

    def __init__(
        self,
        source: Text | NextTokenStatistics,
        settings: ReportSettings,
        models: Sequence[str],
        folder: ResultsFolder,
        progress: OverallProgress,
    ) -> None:
        self.source, self.settings, self.models = source, settings, tuple(models)
        self.folder, self.progress = folder, progress
        self.results: dict[str, AbstractResult] = {}
        self.keys: dict[str, str] = {}

    def run(self) -> None:
        """Find or make the result of every stage."""
        stages = build_stages(self.source, self.settings, self.models)
        for stage in stages:
            with self.progress.part(stage.seconds, stage.title):
                self._run_stage(stage)

    def _run_stage(self, stage: Stage) -> None:
        if not set(stage.needs) <= set(self.results):
            return
        present = [name for name in (*stage.needs, *stage.uses) if name in self.keys]
        inputs = {"stages": {name: self.keys[name] for name in present}, **stage.settings(self)}
        self.keys[stage.name] = self.folder.key(stage.name, inputs)
        result = self.folder.keep(stage.name, inputs, partial(self._make, stage))
        if result is None:
            del self.keys[stage.name]
        else:
            self.results[stage.name] = result

    def _make(self, stage: Stage) -> AbstractResult | None:
        with nullcontext() if stage.has_own_bars else self.progress.stage(stage.title, None):
            return stage.make(self)

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
    def prediction(self) -> FeaturePrediction:
        """Result of the stage of that name."""
        return self.result(PREDICTION, FeaturePrediction)

    def runs(self, model: str) -> list[Run]:
        """Runs of a model that did not diverge, the first one before others; empty where the first one diverged."""
        names = [run_stage(model, place) for place in range(self.settings.trainings)]
        found = [self.result(name, Run) for name in names if name in self.results]
        return [] if not found or diverged(found[0]) else [run for run in found if not diverged(run)]

    def at_loss(self, model: str) -> list[LossPrediction]:
        """Predictions at the loss of a model's first run."""
        names = [at_loss_stage(model, norm) for norm in NORM_PREFIX]
        return [self.result(name, LossPrediction) for name in names if name in self.results]

    @property
    def missing(self) -> list[str]:
        """A sentence for every run that could not be compared, every missing ceiling and prediction at a loss."""
        found = []
        for model in self.models:
            first, runs, name = self.result(run_stage(model), Run), self.runs(model), MODEL_NAMES[model]
            if not runs:
                found.append(f"The model '{name}' could not be compared: its run {first.status}.")
            elif len(runs) == 1:
                why = "its second run diverged" if self.settings.trainings > 1 else "it was trained once (--seeds 2)"
                found.append(f"There is no ceiling for the model '{name}': {why}.")
            if runs and not self.at_loss(model):
                found.append(f"There is no prediction at the loss of the model '{name}': {self._why_no_loss(first)}.")
        return found

    def _why_no_loss(self, run: Run) -> str:
        prediction = self.prediction
        if prediction.rank == 0:
            return "no direction is predicted"
        if not run.loss_gap < prediction.largest_gap:
            return "it is not below that of a uniform guess"
        return "the statistics are too large, or the solver did not reach it"


def build_stages(source: Text | NextTokenStatistics, settings: ReportSettings, models: Sequence[str]) -> list[Stage]:
    """The stages of a report, in the order in which they are carried out."""
    if isinstance(source, Text):
        stages = [
            Stage(CHOICE, "Choosing settings", 6.0, _choice, settings=_choice_settings, has_own_bars=True),
            Stage(STATISTICS, "Counting", 4.0, _counted, settings=_count_settings, has_own_bars=True),
        ]
    else:
        stages = [Stage(STATISTICS, "Saving the statistics", 1.0, _given, settings=_given_settings)]
    stages.append(Stage(PREDICTION, "Predicting", 3.0, _prediction, needs=(STATISTICS,), has_own_bars=True))
    for model in models:
        stages += _training_stages(model, settings)
    for model in models:
        stages += _comparing_stages(model, settings)
    return stages


def run_stage(model: str, place: int = 0) -> str:
    """Name of the stage of a model's first run (place 0) or of another one: run-ufm, run-ufm-2, ..."""
    return f"run-{model}-{place + 1}" if place else f"run-{model}"


def at_loss_stage(model: str, norm: str) -> str:
    """Name of the stage of the prediction at a model's loss."""
    return f"at-loss-{model}-{norm}"


def _training_stages(model: str, settings: ReportSettings) -> list[Stage]:
    title = f"Training: {MODEL_NAMES[model]}"
    return [
        Stage(
            run_stage(model, place),
            f"{title}, training {place + 1}" if place else title,
            settings.training(model).steps * SECONDS_PER_STEP[model],
            partial(_run, model, place),
            needs=(STATISTICS, PREDICTION),
            settings=partial(_training_settings, model, place),
            has_own_bars=True,
        )
        for place in range(settings.trainings)
    ]


def _comparing_stages(model: str, settings: ReportSettings) -> list[Stage]:
    name, run = MODEL_NAMES[model], run_stage(model)
    others = tuple(run_stage(model, place) for place in range(1, settings.trainings))
    norms = {norm: at_loss_stage(model, norm) for norm in NORM_PREFIX}
    return [
        *(
            Stage(
                stage,
                f"Predicting at the loss: {name}",
                AT_LOSS_SECONDS[norm],
                partial(_at_loss, model, norm),
                needs=(PREDICTION, run),
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
            12.0,
            partial(_rivals, model),
            needs=(STATISTICS, PREDICTION, run),
            uses=(*others, *norms.values()),
            settings=_draw_settings,
            has_own_bars=True,
        ),
    ]


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


def _training_settings(model: str, place: int, pipeline: Pipeline) -> dict[str, Any]:
    return {"training": pipeline.settings.training(model, place).to_dict()}


def _run(model: str, place: int, pipeline: Pipeline) -> Run:
    """One trained model; the first run of a model is compared with the prediction during training."""
    name, settings = run_stage(model, place), pipeline.settings.training(model, place)
    run = train(
        pipeline.statistics,
        **{field.name: getattr(settings, field.name) for field in fields(settings)},
        probes={} if place else feature_probes(pipeline.prediction),
        progress=pipeline.progress,
        checkpoint=pipeline.folder.snapshots(name, pipeline.keys[name]),
        checkpoint_seconds=SNAPSHOT_SECONDS,
        resume=True,
    )
    # On Ctrl-C, `train` returns the run so far. A report must not be made from it: the next one resumes the training.
    if run.status == "interrupted":
        raise KeyboardInterrupt
    return run


def _at_loss(model: str, norm: str, pipeline: Pipeline) -> LossPrediction | None:
    """The prediction at the loss of the first run; None where there is none, or it would take minutes."""
    run, prediction = pipeline.result(run_stage(model), Run), pipeline.prediction
    if diverged(run) or not 0 < run.loss_gap < prediction.largest_gap or not predicts_at_loss(prediction.P, None):
        return None
    try:
        found = prediction.at(run.loss_gap, norm=norm, tolerance=AT_LOSS_TOLERANCE)
    except ProblemError:
        return None
    return found if found.rank > 0 else None


def _draw_settings(pipeline: Pipeline) -> dict[str, Any]:
    return {"permutations": pipeline.settings.permutations, "seed": pipeline.settings.seed}


def _comparison(model: str, pipeline: Pipeline) -> Comparison | None:
    runs, at = pipeline.runs(model), pipeline.at_loss(model)
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
    runs = pipeline.runs(model)
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


class _Advancing(AbstractStage):
    """A progress bar that moves the overall bar with it."""

    def __init__(self, own: AbstractStage, overall: OverallProgress, per_unit: float) -> None:
        self._own, self._overall, self._per_unit = own, overall, per_unit

    def advance(self, amount: float, note: str = "") -> None:
        self._own.advance(amount, note)
        self._overall.advance(amount * self._per_unit)


class OverallProgress(AbstractProgress):
    """One bar for the whole report above the bars of its stages, in expected seconds.

    While a part is open, the bars inside it move the overall bar, at most by the part's expected duration; closing
    the part moves it to that duration.
    """

    def __init__(self, shown: AbstractProgress, bar: AbstractStage) -> None:
        self._shown, self._bar = shown, bar
        self._share = self._moved = 0.0

    @contextmanager
    def part(self, seconds: float, title: str) -> Iterator[None]:
        """A part of the whole with its expected duration."""
        self._share, self._moved = seconds, 0.0
        self._bar.advance(0.0, title)
        yield
        self._bar.advance(self._share - self._moved)
        self._share = self._moved = 0.0

    @contextmanager
    def stage(self, title: str, total: float | None) -> Iterator[AbstractStage]:
        """Open a bar inside the current part."""
        with self._shown.stage(title, total) as own:
            yield _Advancing(own, self, self._share / total if total else 0.0)

    def advance(self, seconds: float) -> None:
        """Move the overall bar within the current part."""
        seconds = min(seconds, self._share - self._moved)
        self._moved += seconds
        self._bar.advance(seconds)


@contextmanager
def overall_progress(shown: AbstractProgress, title: str, seconds: float) -> Iterator[OverallProgress]:
    """Open the bar of the whole."""
    with shown.stage(title, seconds) as bar:
        yield OverallProgress(shown, bar)
