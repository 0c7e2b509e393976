"""The verb `report`: from a text, or from statistics, to one page, with every result behind it kept beside it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from numpy.typing import ArrayLike

from tokengeom.comparison.comparison import Comparison
from tokengeom.core.errors import InputError, missing_extra
from tokengeom.core.factors import HasFactors
from tokengeom.core.progress import AbstractProgress, SilentProgress
from tokengeom.core.resources import Estimate, left_to_this_process, require_memory
from tokengeom.core.settings import did_you_mean, share, takes
from tokengeom.corpus.files import exists
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page import tied_stages
from tokengeom.page.cache import (
    FORMAT_VERSION,
    KIND,
    ResultsFolder,
    code_hash,
    page_bytes,
    read_finished,
    require_apart,
    require_place,
    results_folder,
)
from tokengeom.page.chosen_settings import choose
from tokengeom.page.executor import PAGE, PAGE_SECONDS, Executor, Plan, estimate_stages, overall_progress
from tokengeom.page.formatting import listed
from tokengeom.page.read_model import find_models
from tokengeom.page.report_contents import ReportContents, missing_sentences, title_of
from tokengeom.page.settings import MODEL_NAMES, NOT_WITH_MODEL, OF_MODEL, TRANSFORMER, ReportSettings
from tokengeom.page.source_text import SourceText, find_text, joined_names
from tokengeom.page.stages import READ, model_stages, training_stages
from tokengeom.page.unseen import CUT, why_not_made
from tokengeom.results.contract import AbstractResult, data_frame
from tokengeom.results.folders import atomic_folder, only_writer, replace_file
from tokengeom.results.manifests import MANIFEST, manifest_head, package_version, read_kind
from tokengeom.results.registry import load
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import estimate_prediction
from tokengeom.training.simulate import estimate_simulation
from tokengeom.training.train import estimate_training

if TYPE_CHECKING:
    from pandas import DataFrame

    from tokengeom.keywords import PredictKeywords, ReportKeywords, SimulateKeywords, TrainKeywords
    from tokengeom.training.loop import Probe
    from tokengeom.training.run import Run

PAGE_PACKAGES = ("jinja2", "plotly")
LEAST_BYTES = 320 << 20
"""Address space that a report takes beyond what is imported when it begins."""
HEADLINE = (
    "verdict", "reasons", "efficiency", "support_agreement", "context_agreement", "token_agreement", "in_limit",
    "context_similarity", "token_similarity",
)  # fmt: skip
"""Numbers of the main comparison in `Report.to_dict`."""


@dataclass(frozen=True, eq=False, repr=False)
class Report(AbstractResult):
    """A finished report.

    ``page``
        The self-contained page.
    ``results``
        The folder of the results behind it, which `tokengeom.verify` checks; None for a page about a comparison.
    ``contents``
        What the page shows, as data.
    ``made``
        Names of the stages that were carried out; the others were found as they had been made before.
    ``seconds``
        Duration of making the report; of a loaded one, of all of its stages.
    """

    kind = KIND
    title = "Report"
    format_version = FORMAT_VERSION

    page: Path
    results: Path | None
    contents: ReportContents
    made: tuple[str, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Paths, seconds, and the numbers of statistics, prediction, runs and comparisons as plain data."""
        stats, comparisons, main = self.contents.stats, self.contents.comparisons, self.contents.main_comparison
        judged = {} if main is None else comparisons[main].to_dict()
        return {
            "page": str(self.page),
            "results": None if self.results is None else str(self.results),
            "seconds": self.seconds,
            "made": list(self.made),
            "model": main,
            **{name: judged[name] for name in HEADLINE if name in judged},
            "chosen": dict(self.contents.choice.settings),
            "windows": stats.n if stats.has_counts else None,
            "contexts": stats.m,
            "vocabulary": stats.V,
            "entropy_nats": stats.entropy,
            "distinct_supports": stats.groups.count,
            "one_hot_share": stats.one_hot_share,
            **{name: value for name, value in self.contents.prediction.to_dict().items() if name != "warnings"},
            "loss_gap": {name: run.loss_gap for name, run in {**self.contents.runs, **self.contents.models}.items()},
            "rivals": {name: table.to_dict()["best"] for name, table in self.contents.rivals.items()},
            "comparisons": {name: comparison.to_dict() for name, comparison in comparisons.items()},
            "unseen": None if self.contents.unseen is None else self.contents.unseen.to_dict(),
            "ties": None if self.contents.ties is None else self.contents.ties.to_dict(),
            "missing": list(self.contents.missing),
        }

    def to_frame(self) -> DataFrame:
        """Data frame with one row per model and number: value, interval, floors, explained share, and meaning."""
        rows = [
            {"model": model, **row}
            for model, comparison in self.contents.comparisons.items()
            for row in comparison.to_frame().reset_index().to_dict("records")
        ]
        return data_frame(rows, columns=None if rows else ["model", "number"]).set_index(["model", "number"])

    def summary(self) -> str:
        """The verdict on each model, how the text was cut, and where the page is."""
        contents = self.contents
        lines = [
            f"{name}: loss gap {model.loss_gap:.4f}; {contents.comparisons[name].verdict}."
            for name, model in contents.models.items()
            if name not in contents.runs and name in contents.comparisons
        ]
        lines += [f"{name}: {contents.reasons(name)[0]}" for name in contents.compared_models]
        lines += [*contents.choice.reasons, *contents.missing]
        size = f" ({self.page.stat().st_size / 1e6:.1f} MB)" if self.page.is_file() else ""
        behind = f"; the results behind it are in {self.results}" if self.results else ""
        return "\n".join([*lines, f"The page is {self.page}{size}{behind}."])

    def _facts(self) -> list[tuple[str, str]]:
        stats = self.contents.stats
        facts = [("page", str(self.page)), ("contexts", f"{stats.m:,}"), ("vocabulary", f"{stats.V:,}")]
        if self.contents.main_comparison is not None:
            facts.append(("verdict", self.contents.comparisons[self.contents.main_comparison].verdict))
        return [*facts, ("models", ", ".join(self.contents.runs) or "none"), ("seconds", f"{self.seconds:.1f}")]

    @takes()
    def save(self, folder: str | Path) -> Path:
        """Copy the results to a new folder, and the page beside it."""
        target = Path(folder)
        if self.results is None:
            raise InputError(
                "A page about a comparison in memory has no results beside it. Save the comparison itself: "
                "comparison.save(folder)."
            )
        if target.exists() and target.samefile(self.results):
            return target
        page = target.parent / self.page.name
        require_place(page)
        with atomic_folder(target, self.kind) as work:
            self._write(work)
        replace_file(page, self.page.read_bytes())
        return target

    def _write(self, folder: Path) -> dict[str, Any]:
        assert self.results is not None, "checked by save"
        shutil.copytree(self.results, folder, dirs_exist_ok=True)
        return {}

    @classmethod
    def load(cls, folder: str | Path) -> Report:
        """Read a finished report from the folder of its results."""
        path = Path(folder)
        return cls._read(path, read_finished(path))

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Report:
        page, stages = manifest["page"], manifest["stages"]
        shown = page["inputs"]
        results = {name: load(folder / name) for name in shown["stages"]}
        try:
            contents = ReportContents.from_stages(results, shown["title"], shown["missing"], page["provenance"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{folder} is damaged: {error!r}. Make the report again.") from error
        seconds = sum(stages[name]["seconds"] for name in shown["stages"]) + page["seconds"]
        return Report(folder.parent / page["name"], folder, contents, (), seconds)


@takes(ReportSettings, ReadingSettings)
def report(
    source: str | Path | Sequence[str | Path] | Iterable[str] | NextTokenStatistics | Comparison | None = None,
    out: str | Path = "report.html",
    *,
    progress: AbstractProgress | None = None,
    **settings: Unpack[ReportKeywords],
) -> Report:
    """Count, predict, train and compare, and write one page about it; with ``model``, about a trained model.

    The results are kept in a folder beside the page: making the report again with one setting changed repeats only what
    depends on that setting, and an interrupted report continues where it was interrupted.

    Parameters
    ----------
    source
        A text (a path, several paths, or a list of documents), statistics, a folder of saved statistics, or a
        comparison that was made in this session; None is the built-in stories.
    out
        The page, a file that ends in .html or .htm. The folder of results is named after it: ``report-results`` for
        ``report.html``.
    progress
        Shows how far the work is; by default nothing is shown.
    """
    began = time.monotonic()
    asked, reading = share(settings, ReportSettings, ReadingSettings, verb="report")
    page = Path(out)
    _require_page_packages()
    if isinstance(source, Comparison):
        return _page_about(source, page, began)
    require_place(page)
    text = given_statistics(source) or find_text(source, reading)
    require_apart(page, text.files if isinstance(text, SourceText) else ())
    plan = plan_report(text, asked)
    # With less, the libraries that draw and compile end the process without an error.
    if (left := left_to_this_process()) is not None:
        require_memory(
            LEAST_BYTES, "A report", "Allow this process more (ulimit -v), or count and predict alone.", left
        )
    with (
        only_writer(results_folder(page)),
        overall_progress(progress or SilentProgress(), "Report", plan.seconds) as shown,
    ):
        folder = ResultsFolder(results_folder(page), package_version("tokengeom"))
        executor = Executor(plan, folder, shown)
        executor.run()
        contents = _contents(executor)
        inputs = {
            "stages": dict(executor.keys),
            "title": contents.title,
            "missing": list(contents.missing),
            "code": code_hash(),
            "packages": {name: package_version(name) for name in PAGE_PACKAGES},
        }
        with shown.part(PAGE_SECONDS, PAGE):
            folder.keep_page(page, inputs, lambda: render_page(contents, shown), contents.provenance)
    return Report(page, folder.folder, contents, tuple(folder.made), time.monotonic() - began)


def plan_report(source: SourceText | NextTokenStatistics, settings: ReportSettings) -> Plan:
    """What a report is made of, in the order in which it is carried out."""
    if settings.model_folders:
        loading = {name: getattr(settings, name) for name in ("device", "precision", "allow_pickle")}
        models = find_models(settings.model_folders, **loading)
        names = {f"{READ}{place}": name for place, name in enumerate(models.names, start=1)}
        stages = model_stages(source, settings, models)
        return Plan(source, settings, models, names, f"reading {listed(models.names)}", stages)
    names = {model: MODEL_NAMES[model] for model in settings.models_trained}
    times = {1: "once", 2: "twice"}.get(settings.trainings, f"{settings.trainings} times")
    work = f"training ({listed(names.values())}, {times} each)"
    return Plan(source, settings, None, names, work, training_stages(source, settings, list(names)))


@overload
def estimate(
    verb: Literal["predict"],
    stats: NextTokenStatistics | str | Path,
    *,
    loss_gap: float | None = None,
    **settings: Unpack[PredictKeywords],
) -> Estimate: ...


@overload
def estimate(
    verb: Literal["train"],
    stats: NextTokenStatistics | str | Path,
    model: str = "ufm",
    *,
    embeddings: ArrayLike | None = None,
    start: HasFactors | str | Path | None = None,
    probes: Mapping[str, Probe] | None = None,
    **settings: Unpack[TrainKeywords],
) -> Estimate: ...


@overload
def estimate(
    verb: Literal["simulate"],
    stats: NextTokenStatistics | str | Path,
    like: Run | str | Path | None = None,
    **settings: Unpack[SimulateKeywords],
) -> Estimate: ...


@overload
def estimate(
    verb: Literal["report"],
    source: Any = None,
    *,
    progress: AbstractProgress | None = None,
    **settings: Unpack[ReportKeywords],
) -> Estimate: ...


def estimate(verb: str, *arguments: Any, **settings: Any) -> Estimate:
    """The time and memory that a verb is expected to take with the same arguments on this machine.

    It takes a few seconds itself. A study has its own: ``find_study(name).estimate(recipe)``.

    Parameters
    ----------
    verb
        "predict" (learned features), "train", "simulate" or "report".
    arguments, settings
        Those of the verb. The text of a report is counted first.
    """
    verbs: dict[str, Callable[..., Estimate]] = {
        "predict": estimate_prediction,
        "train": estimate_training,
        "simulate": estimate_simulation,
        "report": estimate_report,
    }
    if (name := " ".join(str(verb).split())) not in verbs:
        raise InputError(f"'{name}' cannot be estimated. {did_you_mean(name, verbs)}")
    return verbs[name](*arguments, **settings)


def estimate_report(
    source: Any = None, *, progress: AbstractProgress | None = None, **settings: Unpack[ReportKeywords]
) -> Estimate:
    """The time and memory that `tokengeom.report` is expected to take after counting, with the same arguments."""
    asked, reading = share(settings, ReportSettings, ReadingSettings, verb="estimate")
    shown, text = progress or SilentProgress(), given_statistics(source) or find_text(source, reading)
    plan = plan_report(text, asked)
    chosen = choose(text, asked, shown).settings if isinstance(text, SourceText) and plan.models is None else {}
    began = time.monotonic()
    stats = plan.count(chosen, shown)
    return estimate_stages(plan.after_counting, stats, time.monotonic() - began)


def given_statistics(source: object) -> NextTokenStatistics | None:
    """Statistics, or those in a saved folder; None where a text was given."""
    if isinstance(source, NextTokenStatistics):
        return source
    named = source[0] if isinstance(source, list | tuple) and len(source) == 1 else source
    if not isinstance(named, str | Path) or not exists(Path(named) / MANIFEST):
        return None
    return NextTokenStatistics.load(named) if read_kind(Path(named)) == NextTokenStatistics.kind else None


def _page_about(comparison: Comparison, page: Path, began: float) -> Report:
    """A page about a comparison in memory, without a folder of results."""
    contents = ReportContents.from_comparison(comparison)
    require_place(page)
    replace_file(page, page_bytes(render_page(contents, SilentProgress())))
    return Report(page, None, contents, ("page",), time.monotonic() - began)


def _contents(executor: Executor) -> ReportContents:
    plan = executor.plan
    title = plan.source.title if isinstance(plan.source, SourceText) else title_of(plan.source)
    if plan.models is not None:
        title = f"{joined_names(plan.models.names)} on {title}"
    contents = ReportContents.from_stages(executor.results, title, (), _provenance(executor))
    missing = missing_sentences(contents, plan.settings.trainings)
    without = None if plan.models is not None else plan.settings.why_no_transformer
    tied = None if contents.ties is None else contents.ties.tied
    if tied is None and tied_stages.TIED in [stage.name for stage in plan.stages]:
        missing = (*missing, tied_stages.why_not_tied(contents.stats, plan.models is not None))
    if plan.models is None and plan.settings.unseen and contents.unseen is None:
        missing = (*missing, why_not_made(CUT in executor.results))
    return replace(contents, missing=(without, *missing) if without else missing)


def _provenance(executor: Executor) -> dict[str, Any]:
    """Versions, machine, seeds, settings, hashes and seconds, as the page's section on methods lists them."""
    plan, stages = executor.plan, executor.folder.stages
    networks = ("torch", "transformers") if plan.models is not None or TRANSFORMER in plan.names else ()
    packages = ("tokengeom", "numpy", "scipy", "duckdb", "numba", *networks)
    text = {"text": plan.source.digest} if isinstance(plan.source, SourceText) else {}
    files = {} if plan.models is None else {f"files of {folder.name}": folder.digest for folder in plan.models.folders}
    return {
        "versions": {name: package_version(name) for name in packages},
        "machine": manifest_head("", FORMAT_VERSION)["machine"],
        **_settings(plan),
        "hashes": {**text, **files, **executor.keys},
        "seconds": {name: stages[name]["seconds"] for name in executor.keys},
    }


def _settings(plan: Plan) -> dict[str, Any]:
    """Seeds and settings, without those that have no meaning here, and without the folders of models."""
    settings = plan.settings
    idle = (*OF_MODEL, "model") if plan.models is None else NOT_WITH_MODEL
    known = {name: value for name, value in asdict(settings).items() if name not in idle}
    if plan.models is not None:
        return {"seeds": {"seed": settings.seed}, "settings": {**known, "model": plan.models.names}}
    training = {model: settings.training(model).to_dict() for model in plan.names}
    seeds = {"seed": settings.seed, "trainings": settings.trainings}
    return {"seeds": seeds, "settings": {**known, "training": training}}


def render_page(contents: ReportContents, progress: AbstractProgress) -> str:
    """The page as html."""
    from tokengeom.page.render import render

    with progress.stage(PAGE, None):
        return render(contents)


def _require_page_packages() -> None:
    """Refuse before minutes of training, not after, where the page cannot be written."""
    for package in PAGE_PACKAGES:
        if find_spec(package) is None:
            missing_extra(package, "report", "The page of a report")
