"""The executor of a report: finds or makes the result of every stage, shows progress, and says how long it takes.

A `Stage` is data: its name, the stages, settings and code that its result depends on, the function that makes the
result, and how it appears in progress. One piece of code saves every result, finds it again by its key and loads it
(`tokengeom.page.cache.ResultsFolder.keep`). `tokengeom.page.stages` lists the stages of a report.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from tokengeom.comparison.explanations.tied import MOST_WORK
from tokengeom.comparison.explanations.ufm import LARGEST_DIM, MOST_STEPS, RATES, SEEDS
from tokengeom.comparison.similarity_numbers import MOST_ITEMS
from tokengeom.comparison.target import norms_at_loss
from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import blas_threads_for, seen_tokens
from tokengeom.core.progress import AbstractProgress, AbstractStage, SilentProgress
from tokengeom.core.resources import LONG, Estimate
from tokengeom.corpus.files import exists
from tokengeom.models.factored import FACTORED
from tokengeom.page import unseen
from tokengeom.page.cache import ResultsFolder, code_hash
from tokengeom.page.compare_models import LIMIT_TOLERANCE, count_for_model, supports_for_model, wants_proxy
from tokengeom.page.read_model import Models
from tokengeom.page.settings import ModelTextSettings, ReportSettings
from tokengeom.page.source_text import SourceText, content_hashes
from tokengeom.problems.backend import Backend
from tokengeom.results.contract import AbstractResult
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.loss_path import FITTED_FROM
from tokengeom.theory.predict import estimate_prediction
from tokengeom.theory.proxy import predict_leading_proxy
from tokengeom.theory.solving_time import measure_speed
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.simulate import estimate_simulation

STATISTICS = "statistics"
"""Name of the stage after which durations can be measured."""
MEASURING = "Measuring how long the rest will take"
AT_LOSS_TOLERANCE = 1e-3
"""Proven relative gap of predictions at a loss."""
PATH_SOLVES = 4
"""Time of the path in predictions at a loss: its points start from each other."""
SOME_GAP, GAP_OF_READ = 1e-3, 0.3
"""Loss gaps for which predictions at a loss are estimated, for a training and for a model that is read."""
REHEARSAL = 0.7
"""Seconds of training per model that the estimate is made from."""
PASSES, PASSES_PER_PERMUTATION, PASSES_OF_RIVALS = 8_000, 40, 20_000
"""Passes over the cosines of tokens and of contexts per run: of a comparison, and of the rivals."""
FITS_OF_RIVALS = 50
"""Time of the rivals of a proxy, which are as large, in units of that of the proxy."""
READ_SHARE, FEWEST_READ = 20, 8
"""One of so many contexts, and at least so many, are read to estimate how long it takes to read them all."""
PROXY_SECONDS, CUT_SECONDS, PAGE_SECONDS = 2.0, 0.5, 1.0
"""Expected durations of what is not measured: a proxy, cutting counted pairs, and writing the page."""
PAGE = "Writing the page"
R = TypeVar("R", bound=AbstractResult)


@dataclass(frozen=True)
class Stage:
    """One stage of a report.

    ``name``                Name of the stage and of the folder of its result.
    ``title``, ``seconds``  What progress shows, and the expected duration.
    ``make``                Makes the result, given the executor with the results of earlier stages; None where there is
                            nothing to make.
    ``code``                Packages and modules, such as "theory" or "page.stages", whose code runs in ``make``.
    ``needs``               Names of the stages that the result is made from. Without all of them, the stage is left
                            out.
    ``uses``                Names of stages that the result is also made from, where they have a result.
    ``settings``            Everything else that decides the result, as plain data.
    ``has_own_bars``        Whether ``make`` opens its own progress bars.
    ``measure``             Measures time and memory for statistics, and gives None where nothing will be made; stages
                            that share it are measured once. Every stage after the statistics has it.
    ``counts``              How often the text is counted again for it, in units of the time of the statistics.
    """

    name: str
    title: str
    seconds: float
    make: Callable[[Executor], AbstractResult | None]
    code: tuple[str, ...]
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    settings: Callable[[Executor], Mapping[str, Any]] = lambda executor: {}
    has_own_bars: bool = False
    measure: Callable[[NextTokenStatistics], Estimate | None] | None = None
    counts: float = 0.0


@dataclass(frozen=True, eq=False)
class Plan:
    """What a report is made of.

    ``source``  A text, or statistics.
    ``models``  Trained models that are read; None where models are trained.
    ``names``   Names on the page of the models that are trained or read, by the name that their stages have.
    ``work``    What is done with the models, in words.
    ``stages``  What is carried out, in this order.
    """

    source: SourceText | NextTokenStatistics
    settings: ReportSettings
    models: Models | None
    names: Mapping[str, str]
    work: str
    stages: Sequence[Stage]

    @property
    def seconds(self) -> float:
        """Expected duration."""
        return sum(stage.seconds for stage in self.stages) + PAGE_SECONDS

    @property
    def reading(self) -> dict[str, Any]:
        """The text, how it is read, and the content of a saved tokenizer, whose file may change under the same name."""
        tokenizer, text = self.settings.tokenizer, self.source
        assert isinstance(text, SourceText), "given statistics are not read"
        saved = list(content_hashes(Path(tokenizer))) if tokenizer is not None and exists(tokenizer) else []
        if self.models is not None:
            saved = [self.models.folders[self.models.last].tokenizer_digest]
        return {"text": text.digest, "reading": asdict(text.reading), "saved_tokenizer": saved}

    def count(self, chosen: Mapping[str, Any], progress: AbstractProgress) -> NextTokenStatistics:
        """Statistics of the text as was chosen, or with the tokenizer of the last model; or the given ones."""
        source, settings, models = self.source, self.settings, self.models
        if isinstance(source, NextTokenStatistics):
            limited = source.limited(**settings.limits)
            return limited if models is None else supports_for_model(limited, ModelTextSettings())
        if models is None:
            return count(source.corpus, progress=progress, **chosen, **asdict(source.reading))
        model, cuts = models.load(models.last, progress), ModelTextSettings(**settings.model_cuts)
        return supports_for_model(count_for_model(source.corpus, model, cuts, source.reading, progress), cuts)

    @property
    def after_counting(self) -> Sequence[Stage]:
        """The stages after that of the statistics."""
        return self.stages[[stage.name for stage in self.stages].index(STATISTICS) + 1 :]


class Executor:
    """Carries out the stages of a plan.

    ``results``, ``keys``  Result and key of every stage that was carried out, by its name.
    """

    def __init__(self, plan: Plan, folder: ResultsFolder, progress: OverallProgress) -> None:
        self.plan, self.folder, self.progress = plan, folder, progress
        self.results: dict[str, AbstractResult] = {}
        self.keys: dict[str, str] = {}
        self._announced = self._introduced = False

    def run(self) -> None:
        """Find or make the result of every stage."""
        for stage in self.plan.stages:
            with self.progress.part(stage.seconds, stage.title):
                self._run_stage(stage)

    def result(self, name: str, kind: type[R]) -> R:
        """The result of an earlier stage."""
        result = self.results[name]
        assert isinstance(result, kind), f"stage {name} must make a {kind.__name__}"
        return result

    @property
    def statistics(self) -> NextTokenStatistics:
        """The result of the stage of that name."""
        return self.result(STATISTICS, NextTokenStatistics)

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
        made_from = {name: self.keys[name] for name in present}
        return {"stages": made_from, "code": code_hash(stage.code)[:16], **stage.settings(self)}

    def _make(self, stage: Stage) -> AbstractResult | None:
        self._announce(self.plan.stages[self.plan.stages.index(stage) :])
        shape = (self.statistics.V, self.statistics.m) if STATISTICS in self.results else (0, 0)
        with blas_threads_for(*shape), nullcontext() if stage.has_own_bars else self.progress.stage(stage.title, None):
            return stage.make(self)

    def _announce(self, left: Sequence[Stage]) -> None:
        """Say what will be made; once there are statistics, how long it takes here."""
        if STATISTICS not in self.results:
            if not self._introduced:
                self._introduced = True
                if sum(stage.seconds for stage in left) >= LONG:
                    said = f"Counting, predicting, {self.plan.work} and comparing."
                    self.progress.shown.say(f"{said} How long it takes is measured when the text is counted.")
        elif not self._announced:
            self._announced = True
            # What cannot be estimated cannot be made either, and its stage says why.
            with suppress(InputError, ProblemError):
                # Trainings begin and are dropped, for which packages are loaded and code is compiled.
                with self.progress.shown.stage(MEASURING, None):
                    expected = estimate_stages(left, self.statistics, self.folder.stages[STATISTICS]["seconds"])
                expected.announce(self.progress.shown)


def estimate_stages(stages: Sequence[Stage], stats: NextTokenStatistics, counting: float) -> Estimate:
    """The sum over stages after the statistics and the page, where these took ``counting`` seconds to count."""

    @cache
    def measured(measure: Callable[[NextTokenStatistics], Estimate | None]) -> Estimate | None:
        return measure(stats)

    parts = list[Estimate]()
    # As many threads as when they are carried out: a rehearsal makes few steps at a time, and starting threads anew for
    # each of them would take longer than the steps.
    with blas_threads_for(stats.V, stats.m):
        for stage in stages:
            assert stage.measure is not None, f"stage {stage.name} comes after the statistics"
            expected, again = measured(stage.measure), stage.counts * counting
            if expected is not None:
                shortest, longest = expected.shortest + again, expected.longest + again
                parts.append(Estimate(stage.title, shortest, longest, expected.bytes))
    return Estimate.total("The report", [*parts, Estimate(PAGE, PAGE_SECONDS, PAGE_SECONDS)])


def measure_limit(proxy: bool | None, stats: NextTokenStatistics) -> Estimate:
    """Time and memory of the prediction in the limit for a model that is read."""
    if wants_proxy(stats, proxy):
        return Estimate("", PROXY_SECONDS, PROXY_SECONDS)
    return estimate_prediction(stats, tolerance=LIMIT_TOLERANCE)


def measure_at_loss(norm: str, is_read: bool, stats: NextTokenStatistics) -> Estimate | None:
    """Time and memory of a prediction at a loss; None where none is made."""
    gap, largest = _typical_gap(is_read, stats), math.log(stats.V) - stats.entropy
    if is_read and norm not in norms_at_loss(stats.P, None):
        # Of so large a problem a prediction is made at a high loss alone.
        gap = FITTED_FROM * largest
    if norm not in norms_at_loss(stats.P, None, gap / largest):
        return None
    return estimate_prediction(stats, loss_gap=gap, norm=norm, tolerance=AT_LOSS_TOLERANCE)


def _typical_gap(is_read: bool, stats: NextTokenStatistics) -> float:
    return max(SOME_GAP, min(GAP_OF_READ, 0.5 * (math.log(stats.V) - stats.entropy))) if is_read else SOME_GAP


def measure_path(stats: NextTokenStatistics) -> Estimate | None:
    """Time and memory of the predictions along the loss."""
    one = measure_at_loss("nuclear", False, stats)
    return one and Estimate(one.what, PATH_SOLVES * one.shortest, PATH_SOLVES * one.longest, one.bytes)


def measure_reading(models: Models, stats: NextTokenStatistics) -> Estimate:
    """Time of reading a model, from reading the last one on a few contexts; the second time, all code is loaded."""
    few, seconds = stats.limited(top_contexts=max(stats.m // READ_SHARE, FEWEST_READ)), 0.0
    for _ in range(2):
        began = time.perf_counter()
        models.read(models.last, few, None, SilentProgress())
        seconds = time.perf_counter() - began
    return Estimate("", seconds, seconds * stats.m / few.m)


def measure_comparison(passes: float, stats: NextTokenStatistics) -> Estimate:
    """Time of passes over the cosines of tokens and of contexts, of which so many at most are compared."""
    tokens, contexts = min(seen_tokens(stats.P).size, MOST_ITEMS), min(stats.m, MOST_ITEMS)
    seconds = passes * (tokens**2 + contexts**2) * measure_speed(Backend.on(), contexts, contexts).entry
    return Estimate("", seconds, seconds)


def measure_rivals(
    passes: float, like: TrainingSettings | None, proxy: bool | None, stats: NextTokenStatistics
) -> Estimate:
    """Time of rival explanations: the trainings among them may reach the loss early.

    ``like``  The training that is explained; None where the model is read.
    """
    compared, steps = measure_comparison(passes, stats), SEEDS * MOST_STEPS
    if like is None and wants_proxy(stats, proxy):
        began = time.perf_counter()
        predict_leading_proxy(stats, SilentProgress())
        fits = FITS_OF_RIVALS * (time.perf_counter() - began)
        return Estimate("", 0.5 * compared.shortest + fits, compared.longest + 1.5 * fits)
    per_product = measure_speed(Backend.on(), stats.V, stats.m).product
    trained = 3.0 * seen_tokens(stats.P).size * stats.m * LARGEST_DIM * steps * per_product
    parts = [compared, Estimate("", trained / 4, trained)]
    if stats.contexts is not None and (like is None or like.model not in FACTORED):
        with suppress(ProblemError):
            parts.append(measure_tied_rival(like, stats))
    return Estimate.total("", parts)


def measure_tied_rival(like: TrainingSettings | None, stats: NextTokenStatistics) -> Estimate:
    """Time of the rival with tied features, which is trained as the model was where that is quick."""
    how: dict[str, Any] = {"optimizer": "adamw", "learning_rate": RATES["adamw"], "dim": LARGEST_DIM}
    gap, steps = _typical_gap(like is None, stats), MOST_STEPS
    if like is not None and like.steps * stats.V * stats.m * (like.dim or LARGEST_DIM) <= MOST_WORK:
        how = {name: getattr(like, name) for name in how}
        steps = 2 * like.steps
    how |= {"last_norm": True, "steps": steps, "replicates": SEEDS, "loss_gap": gap}
    return estimate_simulation(stats, rehearsal=REHEARSAL, **how)


def measure_counting(is_made: Callable[[NextTokenStatistics], bool], stats: NextTokenStatistics) -> Estimate | None:
    """Time of cutting pairs that are counted again (``Stage.counts``); None where it is not done."""
    return Estimate("", CUT_SECONDS, CUT_SECONDS) if is_made(stats) else None


def measure_unseen(given: NextTokenStatistics | None, device: str, stats: NextTokenStatistics) -> Estimate | None:
    """Time of the training with ties, whose own cut is not counted yet; None where none is made."""
    whole = unseen.sizes(stats, given)
    return None if whole is None else unseen.estimate(stats, whole, device)


class OverallProgress(AbstractProgress):
    """One bar for the whole report above the bars of its stages, in expected seconds.

    While a part is open, the bars inside it move the overall bar, at most by the part's expected duration; closing
    the part moves it to that duration.

    ``shown``  Where everything is shown. Sentences of stages are not: the report announces all of them together.
    """

    def __init__(self, shown: AbstractProgress, bar: AbstractStage) -> None:
        self.shown, self._bar = shown, bar
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
        with self.shown.stage(title, total) as own:
            yield _Advancing(own, self, self._share / total if total else 0.0)

    def advance(self, seconds: float) -> None:
        """Move the overall bar within the current part."""
        seconds = min(seconds, self._share - self._moved)
        self._moved += seconds
        self._bar.advance(seconds)


class _Advancing(AbstractStage):
    """A progress bar that moves the overall bar with it."""

    def __init__(self, own: AbstractStage, overall: OverallProgress, per_unit: float) -> None:
        self._own, self._overall, self._per_unit = own, overall, per_unit

    def advance(self, amount: float, note: str = "") -> None:
        self._own.advance(amount, note)
        self._overall.advance(amount * self._per_unit)


@contextmanager
def overall_progress(shown: AbstractProgress, title: str, seconds: float) -> Iterator[OverallProgress]:
    """Open the bar of the whole."""
    with shown.stage(title, seconds) as bar:
        yield OverallProgress(shown, bar)
