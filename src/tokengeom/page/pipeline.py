"""The pipeline of a report: a list of stages, and the object that carries them out.

::

    choice -> statistics -> prediction -> run-MODEL -> comparison-MODEL, rivals-MODEL

A `Stage` is data: its name, the stages and settings that its result depends on, the function that makes the result, and
how it appears in progress. One piece of code saves every result, finds it again by its key and loads it
(`tokengeom.page.cache.ResultsFolder.keep`). Given statistics need no choice, and a transformer is trained only where it
is wanted and can be.
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
from tokengeom.geometry.compare import compare
from tokengeom.geometry.comparison import Comparison
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
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict
from tokengeom.training.run import Run
from tokengeom.training.train import train

CHOICE, STATISTICS, PREDICTION = "choice", "statistics", "prediction"
SNAPSHOT_SECONDS = 10.0
"""Time between two snapshots of a training."""
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
        inputs = {"stages": {name: self.keys[name] for name in stage.needs}, **stage.settings(self)}
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

    @property
    def missing(self) -> list[str]:
        """A sentence for every run that could not be compared."""
        runs = {model: self.result(f"run-{model}", Run) for model in self.models}
        return [
            f"The model '{MODEL_NAMES[model]}' could not be compared: its run {run.status}."
            for model, run in runs.items()
            if _diverged(run)
        ]


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
    stages += [
        Stage(
            f"run-{model}",
            f"Training: {MODEL_NAMES[model]}",
            settings.training(model).steps * SECONDS_PER_STEP[model],
            partial(_run, model),
            needs=(STATISTICS, PREDICTION),
            settings=partial(_training_settings, model),
            has_own_bars=True,
        )
        for model in models
    ]
    for model in models:
        title, run = MODEL_NAMES[model], f"run-{model}"
        stages += [
            Stage(
                f"comparison-{model}",
                f"Comparing: {title}",
                2.0,
                partial(_comparison, model),
                needs=(PREDICTION, run),
                settings=_draw_settings,
            ),
            Stage(
                f"rivals-{model}",
                f"Rival explanations: {title}",
                6.0,
                partial(_rivals, model),
                needs=(STATISTICS, PREDICTION, run),
                settings=_draw_settings,
                has_own_bars=True,
            ),
        ]
    return stages


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
    return pipeline.source.limited(top_contexts=pipeline.settings.top_contexts, vocabulary=pipeline.settings.vocabulary)


def _given_settings(pipeline: Pipeline) -> dict[str, Any]:
    return {"given": _limited(pipeline).hash}


def _given(pipeline: Pipeline) -> NextTokenStatistics:
    return _limited(pipeline)


def _prediction(pipeline: Pipeline) -> FeaturePrediction:
    return predict(pipeline.statistics, progress=pipeline.progress)


def _training_settings(model: str, pipeline: Pipeline) -> dict[str, Any]:
    return {"training": pipeline.settings.training(model).to_dict()}


def _run(model: str, pipeline: Pipeline) -> Run:
    """One trained model, with its distance from the prediction recorded during training."""
    name, settings = f"run-{model}", pipeline.settings.training(model)
    run = train(
        pipeline.statistics,
        **{field.name: getattr(settings, field.name) for field in fields(settings)},
        probes=feature_probes(pipeline.prediction),
        progress=pipeline.progress,
        checkpoint=pipeline.folder.snapshots(name, pipeline.keys[name]),
        checkpoint_seconds=SNAPSHOT_SECONDS,
        resume=True,
    )
    # On Ctrl-C, `train` returns the run so far. A report must not be made from it: the next one resumes the training.
    if run.status == "interrupted":
        raise KeyboardInterrupt
    return run


def _draw_settings(pipeline: Pipeline) -> dict[str, Any]:
    return {"draws": pipeline.settings.draws, "seed": pipeline.settings.seed}


def _comparison(model: str, pipeline: Pipeline) -> Comparison | None:
    run, draws = pipeline.result(f"run-{model}", Run), pipeline.settings.draws
    if _diverged(run):
        return None
    return compare(pipeline.prediction, run, resamples=draws, permutations=draws, seed=pipeline.settings.seed)


def _rivals(model: str, pipeline: Pipeline) -> Rivals | None:
    run, draws = pipeline.result(f"run-{model}", Run), pipeline.settings.draws
    if _diverged(run):
        return None
    return rivals(
        pipeline.statistics,
        run,
        pipeline.prediction,
        progress=pipeline.progress,
        resamples=draws,
        permutations=draws,
        seed=pipeline.settings.seed,
    )


def _diverged(run: Run) -> bool:
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
