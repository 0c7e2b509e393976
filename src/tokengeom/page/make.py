"""The verb `report`: from a text, or from statistics, to one page, with every result behind it kept beside it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengeom.corpus.locate import ReadingOptions
from tokengeom.errors import missing_extra
from tokengeom.folders import manifest_head, replace_file
from tokengeom.geometry.comparison import Comparison
from tokengeom.page.cache import (
    FORMAT_VERSION,
    Results,
    code_hash,
    only_writer,
    require_apart,
    require_place,
    results_folder,
)
from tokengeom.page.choice import Wishes
from tokengeom.page.contents import Choice, Contents
from tokengeom.page.given import choice_of, contents_of, digest_of, given_statistics, title_of
from tokengeom.page.overall import Overall, overall
from tokengeom.page.recipe import NAMES, SECONDS_A_STEP, TRANSFORMER, UFM, Recipe
from tokengeom.page.stages import Stages, why_no_transformer
from tokengeom.page.text import Text, find_text
from tokengeom.progress import AbstractProgress, SilentProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.concepts import Concepts

if TYPE_CHECKING:
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.training.run import Run

PAGE_PACKAGES = {"jinja2": "jinja2", "plotly": "plotly"}
READING_SECONDS, PREDICTING_SECONDS, COMPARING_SECONDS, PAGE_SECONDS = 12.0, 3.0, 8.0, 6.0
"""What the other stages are expected to take, for the estimate of the time left."""


@dataclass(frozen=True, eq=False)
class Report:
    """A finished report.

    ``page``
        The self-contained page.
    ``results``
        The folder of everything behind it, which `tokengeom verify` checks again; None for a page on a comparison.
    ``contents``
        The same as data.
    ``made``
        Names of the stages that were carried out; the others were found as they had been made before.
    """

    page: Path
    results: Path | None
    contents: Contents
    made: tuple[str, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Paths, seconds, and the numbers of statistics, prediction, runs and comparisons as plain data."""
        stats, found = self.contents.stats, self.contents.comparisons
        first = next(iter(found.values()), None)
        similar = ("context_similarity", "token_similarity")
        return {
            "page": str(self.page),
            "results": None if self.results is None else str(self.results),
            "seconds": self.seconds,
            "made": list(self.made),
            "chosen": dict(self.contents.choice.settings),
            "windows": stats.n if stats.has_counts else None,
            "contexts": stats.m,
            "vocabulary": stats.V,
            "entropy_nats": stats.entropy,
            "distinct_supports": stats.groups.count,
            "one_hot_share": stats.one_hot_share,
            **{name: value for name, value in self.contents.prediction.to_dict().items() if name != "warnings"},
            "loss_gap": {name: run.loss_gap for name, run in self.contents.runs.items()},
            **({name: first[name].to_dict() for name in similar} if first is not None else {}),
            "rivals": {name: table.to_dict()["best"] for name, table in self.contents.rivals.items()},
            "comparisons": {name: comparison.to_dict() for name, comparison in found.items()},
            "missing": list(self.contents.missing),
        }

    def summary(self) -> str:
        """Where the page is, and the answer in a few lines."""
        size = self.page.stat().st_size / 1e6
        lines = [*self.contents.choice.reasons, *self.contents.missing]
        for name, comparison in self.contents.comparisons.items():
            contexts, tokens = comparison.context_similarity, comparison.token_similarity
            lines.append(f"{name}: similarity with the prediction {contexts} for contexts, {tokens} for tokens.")
        behind = f"; the results behind it are in {self.results}" if self.results else ""
        lines.append(f"The page is {self.page} ({size:.1f} MB){behind}.")
        return "\n".join(lines)


def report(
    source: str | Path | Sequence[str | Path] | Iterable[str] | NextTokenStatistics | Comparison | None = None,
    out: str | Path = "report.html",
    *,
    tokenizer: str | None = None,
    context: int | None = None,
    top_contexts: int | None = None,
    vocabulary: int | None = None,
    reading: ReadingOptions | None = None,
    progress: AbstractProgress | None = None,
    **recipe: Any,
) -> Report:
    """Count, predict, train, compare, and write one page.

    Parameters
    ----------
    source
        A text (a path, several, or a list of documents), statistics, a folder of saved statistics, or a comparison;
        None is the built-in stories.
    out
        The page. What is behind it goes into a folder beside it: ``report-results`` for ``report.html``.
    tokenizer, context, top_contexts, vocabulary
        How to cut the text; what is left out is chosen, and the page says why.
    **recipe
        Fields of `tokengeom.page.recipe.Recipe`: ``preset``, ``steps``, ``dim``, ``seed``, ``transformer``, ...
    """
    began = time.monotonic()
    asked, page = Recipe(**recipe), Path(out)
    _require_page_packages()
    if isinstance(source, Comparison):
        return _page_alone(contents_of(source), page, began)
    require_place(page)
    given = given_statistics(source)
    text = find_text(source, reading or ReadingOptions()) if given is None else None  # type: ignore[arg-type]
    require_apart(page, text.files if text is not None else ())
    wishes = Wishes(tokenizer, context, top_contexts, vocabulary)
    without = why_no_transformer(asked)
    models = [UFM] if without else [UFM, TRANSFORMER]
    with (
        only_writer(results_folder(page)),
        overall(progress or SilentProgress(), "Report", _expected(asked, models)) as whole,
    ):
        results = Results(results_folder(page), f"{_version('tokengeom')} {code_hash()[:16]}")
        work = _Work(Stages(results, asked, whole), whole, models)
        contents = work.contents(text, given, wishes, [without] if without else [])
        work.page(page, contents)
    return Report(page, results.folder, contents, tuple(results.made), time.monotonic() - began)


def _page_alone(contents: Contents, page: Path, began: float) -> Report:
    """A page on what is in memory: nothing is kept beside it."""
    require_place(page)
    replace_file(page, _render(contents, SilentProgress()).encode("utf-8", "backslashreplace"))
    return Report(page, None, contents, ("page",), time.monotonic() - began)


@dataclass(frozen=True)
class _Work:
    """The stages in their order."""

    stages: Stages
    whole: Overall
    models: list[str]

    def contents(
        self, text: Text | None, given: NextTokenStatistics | None, wishes: Wishes, missing: list[str]
    ) -> Contents:
        """Everything that the page says."""
        with self.whole.part(READING_SECONDS, "reading"):
            title, choice, stats = self._counted(text, given, wishes)
        with self.whole.part(PREDICTING_SECONDS, "predicting"):
            prediction = self.stages.prediction(stats)
        runs = {model: self._trained(model, stats, prediction) for model in self.models}
        missing += [f"The {NAMES[m]} could not be compared: it {r.status}." for m, r in runs.items() if _diverged(r)]
        comparisons, rivals = {}, {}
        for model in (model for model, run in runs.items() if not _diverged(run)):
            with self.whole.part(COMPARING_SECONDS, f"comparing the {NAMES[model]}"):
                comparisons[NAMES[model]] = self.stages.comparison(model, prediction, runs[model])
                rivals[NAMES[model]] = self.stages.rivals(model, stats, prediction, runs[model])
        return Contents(
            title=title,
            stats=stats,
            choice=choice,
            prediction=prediction,
            concepts=Concepts.of(prediction.L_mm),
            runs={NAMES[model]: run for model, run in runs.items()},
            comparisons=comparisons,
            rivals=rivals,
            missing=tuple(missing),
            provenance=self._provenance(text),
        )

    def _counted(
        self, text: Text | None, given: NextTokenStatistics | None, wishes: Wishes
    ) -> tuple[str, Choice, NextTokenStatistics]:
        if text is not None:
            choice = self.stages.choice(text, wishes)
            return text.title, choice, self.stages.statistics(text, choice)
        assert given is not None, "there is a text or there are statistics"
        cut = given.limited(contexts=wishes.top_contexts, vocabulary=wishes.vocabulary)
        stats = self.stages.given_statistics(cut, digest_of(cut))
        return title_of(stats), choice_of(stats), stats

    def _trained(self, model: str, stats: NextTokenStatistics, prediction: FeaturePrediction) -> Run:
        steps = self.stages.recipe.training(model)["steps"]
        with self.whole.part(steps * SECONDS_A_STEP[model], f"training the {NAMES[model]}"):
            return self.stages.run(model, stats, prediction)

    def page(self, target: Path, contents: Contents) -> None:
        """Write the page, unless it is there."""
        said = {"title": contents.title, "missing": list(contents.missing), "written_by": code_hash(showing=True)}
        inputs = {"stages": dict(self.stages.used), **said}
        with self.whole.part(PAGE_SECONDS, "writing the page"):
            self.stages.results.keep_page(target, inputs, lambda: _render(contents, self.whole))

    def _provenance(self, text: Text | None) -> Mapping[str, Any]:
        used, stages = self.stages.used, self.stages.results.stages
        recipe = self.stages.recipe
        packages = ("numpy", "scipy", "duckdb", "numba", *(("torch", "transformers") if len(self.models) > 1 else ()))
        return {
            "versions": {name: _version(name) for name in ("tokengeom", *packages)},
            "machine": manifest_head("", FORMAT_VERSION)["machine"],
            "seeds": {"seed": recipe.seed},
            "settings": {**asdict(recipe), "training": {model: recipe.training(model) for model in self.models}},
            "hashes": {**({"text": text.digest} if text else {}), **used},
            "seconds": {name: stages[name]["seconds"] for name in used},
        }


def _render(contents: Contents, progress: AbstractProgress) -> str:
    from tokengeom.page.render import render

    with progress.stage("Writing the page", None):
        return str(render(contents))


def _diverged(run: Run) -> bool:
    return run.status.startswith("diverged")


def _expected(recipe: Recipe, models: Sequence[str]) -> float:
    training = sum(float(recipe.training(model)["steps"]) * SECONDS_A_STEP[model] for model in models)
    return READING_SECONDS + PREDICTING_SECONDS + training + COMPARING_SECONDS * len(models) + PAGE_SECONDS


def _require_page_packages() -> None:
    """Before minutes of training, not after."""
    for module, package in PAGE_PACKAGES.items():
        if find_spec(module) is None:
            missing_extra(package, "report", "A report's page")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
