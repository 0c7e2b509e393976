"""``tokengeom study``: named experiments, one or several in turn."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokengeom import TokengeomError
from tokengeom.extending import (
    EXIT_CHECK_FAILED,
    MANIFEST,
    InputError,
    TerminalConsole,
    app,
    guarded,
    hash_of_saved,
    interruption_ends_all,
    is_quiet,
    missing_extra,
    only_writer,
    print_result,
    progress_shown,
    starting_with,
)
from tokengeom_studies.base import study_names

if TYPE_CHECKING:
    from tokengeom_studies.base import AbstractStudy, Findings, Recipe
    from tokengeom_studies.common.measured import AbstractMeasuredStudy

FOLDER = Path("results", "studies")
"""Where findings are saved by default, in a folder per study."""
_DRAWN_WITH = ("matplotlib", "plotly")


@app.command("study")
@guarded
def study_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help=f"Which studies: {', '.join(study_names())}.",
            show_default=False,
            autocompletion=starting_with(study_names),
        ),
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Run every study in turn.")] = False,
    size: Annotated[
        str,
        typer.Option(
            help="Size of the recipe: small or paper.", autocompletion=starting_with(lambda: ["small", "paper"])
        ),
    ] = "small",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one setting of the recipe; can be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for figures, data and findings; with several studies, one folder per study is made inside it. "
            f"By default {FOLDER}/NAME.",
            show_default=False,
        ),
    ] = None,
    no_save: Annotated[bool, typer.Option("--no-save", help="Save neither figures nor data.")] = False,
    kept: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Folder of kept rows (*.jsonl): make tables and figures from them, without measuring."
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            "--rows", help="File of rows: only measure, adding what it does not have; nothing is drawn. See --from."
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time after which --rows stops measuring; the same command continues.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List all studies with their questions.")] = False,
    estimate: Annotated[bool, typer.Option("--estimate", hidden=True)] = False,
) -> None:
    """Run experiments of the papers, or of their open questions, and check what they found.

    Exit code 1 means that a check failed. Of several studies, those that an earlier run has finished and saved in the
    same folder, with the same recipe and version, are not run again.

    For example:

    * `tokengeom study --list`
    * `tokengeom study linear-overparameterised --out results/linear`
    * `tokengeom study linear-2d ufm-symmetric`
    * `tokengeom study --all --out results/small`
    * `tokengeom study networks-simplified-stories --size paper`
    * `tokengeom study ufm-synthetic --set steps=3000 --json`
    * `tokengeom study optimizer-norms --from results/optimizer_norms`
    * `tokengeom study optimizer-norms --size paper --rows rows.jsonl --minutes 9`
    """
    from tokengeom_studies.base import all_studies, find_study

    if every and names:
        raise InputError("--all runs every study: leave the names out.")
    if listed or not (names or every):
        questions = {study.name: study.question for study in all_studies().values()}
        print_result({"studies": questions}, lambda console: _print_list(console, questions))
        return
    studies = [find_study(name) for name in dict.fromkeys(study_names() if every else names or ())]
    changed = dict(_setting(text) for text in changes or ())
    recipes = {study.name: study.recipe(size, **changed) for study in studies}
    if estimate:
        raise InputError(
            "The time of a study is not estimated: --size small takes minutes. For one training of the paper size: "
            "tokengeom train --estimate"
        )
    if minutes is not None and rows is None:
        raise InputError("--minutes limits the measuring of --rows: give both.")
    if rows is not None:
        _measure(_measured(studies, "--rows"), changed, size, rows, minutes)
        return
    if kept is not None:
        _measured(studies, "--from")
        if changed or size != "small":
            raise InputError("--from uses the recipe that the rows were measured with: leave out --size and --set.")
    several = every or len(studies) > 1
    places = _places(studies, out, several=several, no_save=no_save)
    if several:
        runs = _run_several(studies, recipes, places)
        data = {"passed": all(run.passed for run in runs), "studies": [run.to_dict() for run in runs]}
        print_result(data, lambda console: _print_table(console, runs))
    else:
        runs = [_run(studies[0], recipes[studies[0].name], places[studies[0].name], kept)]
        print_result(runs[0].to_dict(), lambda console: _print_findings(console, runs[0]))
    if not all(run.passed for run in runs):
        raise typer.Exit(EXIT_CHECK_FAILED)


@dataclass(frozen=True)
class _StudyRun:
    """What became of a study.

    ``findings``, ``error``
        What it found; or None, and why it could not run.
    ``seconds``, ``out``
        How long it took, None where it had been run before; and where it is saved, None where it is not.
    """

    name: str
    findings: Findings | None
    seconds: float | None
    out: Path | None
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether it ran and every check passed."""
        return self.findings is not None and self.findings.passed

    @property
    def outcome(self) -> str:
        """Outcome as a word."""
        return "error" if self.findings is None else "passed" if self.passed else "FAILED"

    @property
    def duration(self) -> str:
        """Seconds, or that it was run before."""
        return "run before" if self.seconds is None else f"{self.seconds:.1f} s"

    def to_dict(self) -> dict[str, Any]:
        """Findings as plain data, seconds, and where they are saved."""
        about: Mapping[str, Any] = {"study": self.name, "passed": False, "error": self.error}
        if self.findings is not None:
            about = self.findings.to_dict()
        return {**about, "seconds": self.seconds, "out": None if self.out is None else str(self.out)}


def _places(
    studies: Sequence[AbstractStudy], out: Path | None, *, several: bool, no_save: bool
) -> dict[str, Path | None]:
    """Where each study is saved; a place that belongs to something else is refused before the work."""
    from tokengeom_studies.base import Findings

    if no_save and out is not None:
        raise InputError("--no-save leaves nothing for --out: give only one of them.")
    missing = next((name for name in _DRAWN_WITH if find_spec(name) is None), None)
    if missing is not None and out is not None:
        missing_extra(missing, "figures", "Saving the figures of a study")
    if no_save or missing is not None:
        return dict.fromkeys((study.name for study in studies), None)
    places: dict[str, Path | None] = {}
    for study in studies:
        place = FOLDER / study.name if out is None else out / study.name if several else out
        Findings.require_target(place)
        places[study.name] = place
    return places


def _measured(studies: Sequence[AbstractStudy], option: str) -> AbstractMeasuredStudy:
    """The one study of the command, which must have rows to keep."""
    from tokengeom_studies.common.measured import AbstractMeasuredStudy

    if len(studies) != 1:
        raise InputError(f"{option} is for one study at a time; got {len(studies)}.")
    if not isinstance(studies[0], AbstractMeasuredStudy):
        raise InputError(f"The study '{studies[0].name}' keeps no rows; run it without {option}.")
    return studies[0]


def _measure(
    study: AbstractMeasuredStudy,
    changed: Mapping[str, Any],
    size: str,
    path: Path,
    minutes: float | None,
) -> None:
    """Add rows to a file, and say how many it has."""
    with progress_shown() as progress, interruption_ends_all():
        measured = study.measure_into(study.recipe(size, **changed), path, minutes, progress)
    if not is_quiet():
        state = "Complete" if measured.in_time else "Out of time; the same command continues"
        TerminalConsole(stderr=True).print(f"{state}: {len(measured.rows)} rows in {path}.")


def _run(study: AbstractStudy, recipe: Recipe, out: Path | None, kept: Path | None = None) -> _StudyRun:
    """Run a study, or read its kept rows, and save what it found."""
    began = time.monotonic()
    with progress_shown() as progress, interruption_ends_all(), nullcontext() if out is None else only_writer(out):
        findings = study.run(recipe, progress) if kept is None else _measured([study], "--from").from_kept(kept)
        if out is not None:
            findings.save(out)
    return _StudyRun(study.name, findings, time.monotonic() - began, out)


def _run_several(
    studies: Sequence[AbstractStudy], recipes: Mapping[str, Recipe], places: Mapping[str, Path | None]
) -> list[_StudyRun]:
    """Run studies in turn, with one line about each; an interruption says what is kept."""
    console, runs = TerminalConsole(stderr=True), list[_StudyRun]()
    try:
        for place, study in enumerate(studies, start=1):
            runs.append(_run_or_load(study, recipes[study.name], places[study.name]))
            if not is_quiet():
                console.print(f"{place} of {len(studies)}, {study.name}: {runs[-1].outcome}, {runs[-1].duration}.")
    except BaseException:
        kept = sum(run.out is not None for run in runs)
        if kept:
            console.print(f"{kept} of {len(studies)} studies are saved: the same command continues with the others.")
        raise
    return runs


def _run_or_load(study: AbstractStudy, recipe: Recipe, out: Path | None) -> _StudyRun:
    """Run a study unless it is saved already; an error of one study does not stop the next."""
    from tokengeom_studies.base import Findings

    began = time.monotonic()
    kept = None if out is None else Findings.made_before(out, study.name, recipe)
    if kept is not None:
        return _StudyRun(study.name, kept, None, out)
    try:
        return _run(study, recipe, out)
    except TokengeomError as error:
        return _StudyRun(study.name, None, time.monotonic() - began, None, " ".join(str(error).split()))


def _print_list(console: TerminalConsole, questions: dict[str, str]) -> None:
    for name, question in questions.items():
        console.print(f"{name:<28} ", style="bold", end="")
        console.print(question)


def _print_findings(console: TerminalConsole, run: _StudyRun) -> None:
    findings = run.findings
    assert findings is not None, "a single study that could not run has raised its error"
    console.print(findings.study, style="bold", end="")
    console.print(f": {findings.question}")
    for check in findings.numbers:
        console.print("  pass" if check.passed else "  FAIL", style="green" if check.passed else "red", end="")
        console.print(f"  {check.name}: {check.value:.6g}  (must be {check.allowed})")
    console.print_lines(findings.sentence)
    console.print(f"{'Passed' if run.passed else 'FAILED'} in {run.duration}. {_where(run.out)}")


def _print_table(console: TerminalConsole, runs: Sequence[_StudyRun]) -> None:
    """One row per study: name, outcome, seconds, answer."""
    width = max(len(run.name) for run in runs)
    console.print(f"{'study':<{width}}  {'outcome':<7}  {'time':>10}  answer", style="bold")
    for run in runs:
        answer = run.error if run.findings is None else " ".join(run.findings.sentence.split())
        console.print(f"{run.name:<{width}}  ", end="")
        console.print(f"{run.outcome:<7}", style="green" if run.passed else "red", end="")
        console.print(f"  {run.duration:>10}  {answer}")
    passed = sum(run.passed for run in runs)
    folders = dict.fromkeys(run.out.parent for run in runs if run.out is not None)
    console.print(f"{passed} of {len(runs)} studies passed. {_where(next(iter(folders), None))}")


def _where(out: Path | None) -> str:
    if out is not None:
        seal = f", hash {hash_of_saved(out)}" if (out / MANIFEST).is_file() else ""
        return f"Figures and data are in {out}{seal}."
    missing = next((name for name in _DRAWN_WITH if find_spec(name) is None), None)
    if missing is None:
        return "Figures and data were not saved."
    return f"Figures were not saved: they need {missing} (pip install 'tokengeom[figures]')."


def _setting(text: str) -> tuple[str, Any]:
    """``key=value`` with the value read as TOML, so that numbers, lists and strings mean what they do in a recipe."""
    key, _, value = text.partition("=")
    if not key.strip():
        raise InputError(f"A setting of the recipe is changed by KEY=VALUE; got {text!r}.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value
