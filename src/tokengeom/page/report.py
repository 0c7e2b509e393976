"""The verb `report`: from a text, or from statistics, to one page, with every result behind it kept beside it."""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.corpus.documents import exists
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.errors import InputError, TokengeomError, missing_extra
from tokengeom.folders import MANIFEST, as_json, atomic_folder, file_hash, manifest_head, read_kind, replace_file
from tokengeom.geometry.compare import compare
from tokengeom.geometry.comparison import NORM_PREFIX, Comparison
from tokengeom.page.cache import (
    FORMAT_VERSION,
    KIND,
    UNFINISHED,
    ResultsFolder,
    code_hash,
    key_of,
    only_writer,
    read_record,
    require_apart,
    require_place,
    results_folder,
    sealed,
)
from tokengeom.page.contents import Contents, title_of
from tokengeom.page.pipeline import (
    PREDICTION,
    STATISTICS,
    Pipeline,
    build_stages,
    diverged,
    models_of,
    overall_progress,
    why_no_transformer,
)
from tokengeom.page.settings import TRANSFORMER, ReportSettings
from tokengeom.page.text import Text, find_text
from tokengeom.progress import AbstractProgress, SilentProgress
from tokengeom.results import AbstractResult, Verification, close, load, verify
from tokengeom.settings import share, takes
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.training.objective import SoftLabels
from tokengeom.training.run import Run

PAGE_PACKAGES = {"jinja2": "jinja2", "plotly": "plotly"}
PAGE_SECONDS = 6.0
"""Expected duration of writing the page, for the estimate of the time left."""
HEADLINE = (
    "verdict", "reasons", "efficiency", "context_agreement", "token_agreement", "in_limit", "context_similarity",
    "token_similarity",
)  # fmt: skip
"""Numbers of the main comparison in `Report.to_dict`."""
RECOMPUTED = 1e-6
"""Relative difference within which agreement numbers are recomputed: sums in another order, on another machine."""


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
    contents: Contents
    made: tuple[str, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Paths, seconds, and the numbers of statistics, prediction, runs and comparisons as plain data."""
        stats, found, main = self.contents.stats, self.contents.comparisons, self.contents.main_comparison
        judged = {} if main is None else found[main].to_dict()
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
            "loss_gap": {name: run.loss_gap for name, run in self.contents.runs.items()},
            "rivals": {name: table.to_dict()["best"] for name, table in self.contents.rivals.items()},
            "comparisons": {name: comparison.to_dict() for name, comparison in found.items()},
            "missing": list(self.contents.missing),
        }

    def summary(self) -> str:
        """The verdict on each model, how the text was cut, and where the page is."""
        contents = self.contents
        lines = [f"{name}: {contents.comparisons[name].reasons[0]}" for name in contents.compared_models]
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
        return cls._read(path, read_record(path))

    @classmethod
    def _read(cls, folder: Path, manifest: dict[str, Any]) -> Report:
        page, stages = manifest["page"], manifest["stages"]
        if not page:
            raise InputError(
                f"The report in {folder} is not finished. Run the same command again; finished stages are reused."
            )
        try:
            names = [name for name in page["inputs"]["stages"] if stages[name]["key"] == page["inputs"]["stages"][name]]
            results = {name: load(folder / name) for name in names}
            contents = Contents.from_stages(
                results, page["inputs"]["title"], page["inputs"]["missing"], page["provenance"]
            )
            seconds = sum(float(stages[name]["seconds"]) for name in names) + float(page["seconds"])
            return Report(folder.parent / page["name"], folder, contents, (), seconds)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{folder} is damaged: {error!r}. Make the report again.") from error

    @classmethod
    def verify(cls, folder: str | Path) -> Verification:
        """Check everything behind a report, and its page.

        Every file is compared with its hash and every certificate is checked again; each stage must have been made from
        the results beside it; the predictions must be about these statistics; losses, every number of a comparison
        and its verdict are recomputed from the saved predictions and runs, without solving or training.
        """
        path = Path(folder)
        record = read_record(path)
        stages = record["stages"]
        checks = {
            "the report's manifest is the one that was written": _is_as_written(path, record),
            "the report is finished": bool(record["page"]) and not (path / UNFINISHED).exists(),
            "nothing was added to the folder": not _unknown_files(path, stages),
        }
        for name, entry in stages.items():
            checks |= _check_stage(path / name, entry).under(name) | _check_origin(name, entry, stages)
        checks |= _check_page(path, record["page"], stages)
        try:
            checks |= _check_across(path, stages)
        except TokengeomError as error:
            checks[f"the results can be compared with each other ({error})"] = False
        return Verification.of(checks)


@takes(ReportSettings, ReadingSettings)
def report(
    source: str | Path | Sequence[str | Path] | Iterable[str] | NextTokenStatistics | Comparison | None = None,
    out: str | Path = "report.html",
    *,
    progress: AbstractProgress | None = None,
    **settings: object,
) -> Report:
    """Count, predict, train and compare, and write one page about it.

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
    found = _given_statistics(source) or find_text(source, reading)
    require_apart(page, found.files if isinstance(found, Text) else ())
    models = models_of(asked)
    expected = sum(stage.seconds for stage in build_stages(found, asked, models)) + PAGE_SECONDS
    with (
        only_writer(results_folder(page)),
        overall_progress(progress or SilentProgress(), "Report", expected) as shown,
    ):
        folder = ResultsFolder(results_folder(page), f"{_version('tokengeom')} {code_hash()[:16]}")
        pipeline = Pipeline(found, asked, models, folder, shown)
        pipeline.run()
        contents = _contents(pipeline)
        inputs = {
            "stages": dict(pipeline.keys),
            "title": contents.title,
            "missing": list(contents.missing),
            "code": code_hash(everything=True),
        }
        with shown.part(PAGE_SECONDS, "Writing the page"):
            folder.keep_page(page, inputs, lambda: _render(contents, shown), contents.provenance)
    return Report(page, folder.folder, contents, tuple(folder.made), time.monotonic() - began)


def _given_statistics(source: object) -> NextTokenStatistics | None:
    """Statistics, or those in a saved folder; None where a text was given."""
    if isinstance(source, NextTokenStatistics):
        return source
    named = source[0] if isinstance(source, list | tuple) and len(source) == 1 else source
    if not isinstance(named, str | Path) or not exists(Path(named) / MANIFEST):
        return None
    return NextTokenStatistics.load(named) if read_kind(Path(named)) == NextTokenStatistics.kind else None


def _page_about(comparison: Comparison, page: Path, began: float) -> Report:
    """A page about a comparison in memory, without a folder of results."""
    contents = Contents.from_comparison(comparison)
    require_place(page)
    replace_file(page, _render(contents, SilentProgress()).encode("utf-8", "backslashreplace"))
    return Report(page, None, contents, ("page",), time.monotonic() - began)


def _contents(pipeline: Pipeline) -> Contents:
    source, without = pipeline.source, why_no_transformer(pipeline.settings)
    title = source.title if isinstance(source, Text) else title_of(pipeline.statistics)
    missing = [*([without] if without else []), *pipeline.missing]
    return Contents.from_stages(pipeline.results, title, missing, _provenance(pipeline))


def _provenance(pipeline: Pipeline) -> dict[str, Any]:
    """Versions, machine, seeds, settings, hashes and seconds, as the page's section on methods lists them."""
    settings, stages = pipeline.settings, pipeline.folder.stages
    networks = ("torch", "transformers") if TRANSFORMER in pipeline.models else ()
    packages = ("tokengeom", "numpy", "scipy", "duckdb", "numba", *networks)
    training = {model: settings.training(model).to_dict() for model in pipeline.models}
    seeds = {"seed": settings.seed, "trainings": settings.trainings}
    text = {"text": pipeline.source.digest} if isinstance(pipeline.source, Text) else {}
    return {
        "versions": {name: _version(name) for name in packages},
        "machine": manifest_head("", FORMAT_VERSION)["machine"],
        "seeds": seeds,
        "settings": {**asdict(settings), "training": training},
        "hashes": {**text, **pipeline.keys},
        "seconds": {name: stages[name]["seconds"] for name in pipeline.keys},
    }


def _render(contents: Contents, progress: AbstractProgress) -> str:
    from tokengeom.page.render import render

    with progress.stage("Writing the page", None):
        return render(contents)


def _require_page_packages() -> None:
    """Refuse before minutes of training, not after, where the page cannot be written."""
    for module, package in PAGE_PACKAGES.items():
        if find_spec(module) is None:
            missing_extra(package, "report", "The page of a report")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _is_as_written(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether the manifest is, byte for byte, what its content and seal give."""
    return (folder / MANIFEST).read_bytes() == as_json(sealed(record))


def _unknown_files(folder: Path, stages: Mapping[str, Any]) -> list[Path]:
    """Files that belong to no stage; files added inside a stage are found by its own manifest."""
    known = {MANIFEST, UNFINISHED, *stages}
    return [path for path in folder.iterdir() if path.name not in known]


def _check_stage(folder: Path, entry: Mapping[str, Any]) -> Verification:
    if not (folder / MANIFEST).is_file():
        return Verification.of({"the result is there": False})
    same = {"the manifest is the one that was written": file_hash(folder / MANIFEST) == entry["manifest"]}
    try:
        found = verify(folder)
    except (TokengeomError, KeyError, TypeError, ValueError) as error:
        return Verification.of({**same, f"the result can be read ({error})": False})
    return Verification.of({**same, **{sentence: sentence not in found.failed for sentence in found.checked}})


def _check_origin(name: str, entry: Mapping[str, Any], stages: Mapping[str, Any]) -> dict[str, bool]:
    """A stage's key is that of its inputs, and the stages that it was made from are the ones beside it."""
    made_from = entry["inputs"].get("stages", {})
    present = all(one in stages and stages[one]["key"] == key for one, key in made_from.items())
    return {
        f"{name}: its key is that of its inputs": entry["key"] == key_of(name, entry["inputs"]),
        f"{name}: it was made from the results beside it": present,
    }


def _check_page(folder: Path, page: Mapping[str, Any], stages: Mapping[str, Any]) -> dict[str, bool]:
    if not page:
        return {}
    named = str(page.get("name"))
    path = folder.parent / named
    # Only a plain file name is followed, so that a forged manifest cannot make this read files elsewhere.
    plain = re.fullmatch(r"[^/\\]+", named) is not None
    return {
        "page: it is the one that was written": plain and path.is_file() and file_hash(path) == page.get("sha256"),
        **_check_origin("page", page, stages),
    }


def _check_across(folder: Path, stages: Mapping[str, Any]) -> dict[str, bool]:
    """Numbers that connect one stage to another, recomputed."""
    checks: dict[str, bool] = {}
    if not {STATISTICS, PREDICTION} <= set(stages):
        return checks
    stats, prediction = NextTokenStatistics.load(folder / STATISTICS), FeaturePrediction.load(folder / PREDICTION)
    about = prediction.P.shape == stats.P.shape and abs(prediction.P - stats.P).max() <= 1e-12
    checks["prediction: it is about these statistics"] = bool(about)
    labels = SoftLabels.from_statistics(stats)
    runs = {name: Run.load(folder / name) for name in stages if name.startswith("run-")}
    at = {name: LossPrediction.load(folder / name) for name in stages if name.startswith("at-loss-")}
    for name, one in at.items():
        checks[f"{name}: it is about these statistics"] = one.statistics_hash == stats.hash
    for name, run in runs.items():
        fits = run.W.shape[0] == stats.V and run.H.shape[1] == stats.m
        checks[f"{name}: its loss is the one claimed"] = fits and _same_loss(labels, run)
    for name in (name for name in stages if name.startswith("comparison-")):
        made_from = sorted(stages[name]["inputs"]["stages"])
        claimed = Comparison.load(folder / name)
        again = compare(
            prediction,
            [runs[one] for one in made_from if one in runs and not diverged(runs[one])],
            at=[at[one] for norm in NORM_PREFIX for one in made_from if one in at and at[one].norm == norm] or None,
            at_loss=False,
            permutations=claimed.permutations,
            seed=claimed.seed,
        )
        checks[f"{name}: its numbers are the ones claimed"] = _same_numbers(claimed, again)
        judged = (claimed.verdict, claimed.reasons, claimed.better_explanation)
        checks[f"{name}: its verdict is the one claimed"] = judged == (
            again.verdict,
            again.reasons,
            again.better_explanation,
        )
    return checks


def _same_numbers(claimed: Comparison, again: Comparison) -> bool:
    """Whether values, intervals, floors, ceilings, efficiency and split are equal within rounding."""
    mine, theirs = (_numbers(one) for one in (claimed, again))
    return set(mine) == set(theirs) and all(_same(mine[name], theirs[name]) for name in mine)


def _numbers(comparison: Comparison) -> dict[str, float]:
    """All numbers of a comparison by a dotted name."""
    content = comparison.to_json()
    parts = {name: content[name] for name in ("agreements", "rows", "disagreement", "loss_gap")}
    return {name: math.nan if value is None else value for name, value in _leaves(parts) if not isinstance(value, str)}


def _leaves(content: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers and strings of nested plain data, by a dotted name."""
    if isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in items:
            yield from _leaves(value, f"{path}.{key}")
    else:
        yield path, content


def _same_loss(labels: SoftLabels, run: Run) -> bool:
    if not np.isfinite(run.logits).all():
        return not math.isfinite(run.loss_gap)
    return close(labels.loss_gap(run.logits), run.loss_gap)


def _same(a: float, b: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.isfinite(a) == math.isfinite(b)
    return abs(a - b) <= RECOMPUTED * max(abs(a), abs(b), 1.0)
