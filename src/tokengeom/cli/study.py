"""``tokengeom study``: named experiments."""

from __future__ import annotations

import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokengeom.cli.app import EXIT_CHECK_FAILED, EstimateOnly, Json, Quiet, app, guarded
from tokengeom.cli.options import starting_with
from tokengeom.cli.output import TerminalConsole, print_estimate, print_result, progress_shown
from tokengeom.errors import InputError, ProblemError
from tokengeom.progress import WithoutSentences
from tokengeom.studies.base import study_names

if TYPE_CHECKING:
    from tokengeom.progress import AbstractProgress
    from tokengeom.studies.base import AbstractStudy, Findings, Recipe


@app.command("study")
@guarded
def study_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help=f"Which study: {', '.join(study_names())}.",
            show_default=False,
            autocompletion=starting_with(study_names),
        ),
    ] = None,
    *,
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
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for figures, data and findings.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List all studies with their questions.")] = False,
    estimate: EstimateOnly = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the papers, or of their open questions, and check what it found.

    Exit code 1 means that a check failed.

    For example:

    * `tokengeom study --list`
    * `tokengeom study linear-overparameterised --out results/linear`
    * `tokengeom study networks-simplified-stories --size paper --estimate`
    * `tokengeom study ufm-synthetic --set steps=3000 --json`
    """
    from tokengeom.studies.base import Findings, all_studies, find_study

    if listed or name is None:
        questions = {study.name: study.question for study in all_studies().values()}
        print_result(
            {"studies": questions}, lambda console: _print_list(console, questions), as_json=as_json, quiet=quiet
        )
        return
    study = find_study(name)
    recipe = study.recipe(size, **dict(_setting(text) for text in changes or ()))
    if estimate:
        expected = study.estimate(recipe)
        if expected is None:
            raise InputError(f"The study '{name}' trains no models, and only trainings are estimated.")
        print_estimate(expected, as_json=as_json, quiet=quiet)
        return
    if out is not None:
        Findings.require_target(out)
    began = time.monotonic()
    with progress_shown(quiet) as progress:
        announced = not quiet and _announce(study, recipe, progress)
        findings = study.run(recipe, WithoutSentences(progress) if announced else progress)
        if out is not None:
            findings.save(out)
    seconds = time.monotonic() - began
    data = {**findings.to_dict(), "seconds": seconds, "out": None if out is None else str(out)}
    print_result(data, lambda console: _print_findings(console, findings, seconds, out), as_json=as_json, quiet=quiet)
    if not findings.passed:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _announce(study: AbstractStudy, recipe: Recipe, progress: AbstractProgress) -> bool:
    """Show what the study is expected to take, where it is known; returns whether it is."""
    # A recipe that the study cannot run with is refused by the study itself.
    with suppress(InputError, ProblemError):
        expected = study.estimate(recipe)
        if expected is not None:
            expected.announce(progress)
            return True
    return False


def _print_list(console: TerminalConsole, questions: dict[str, str]) -> None:
    for name, question in questions.items():
        console.print(f"{name:<28} ", style="bold", end="")
        console.print(question)


def _print_findings(console: TerminalConsole, findings: Findings, seconds: float, out: Path | None) -> None:
    console.print(findings.study, style="bold", end="")
    console.print(f": {findings.question}")
    for check in findings.numbers:
        console.print("  pass" if check.passed else "  FAIL", style="green" if check.passed else "red", end="")
        console.print(f"  {check.name}: {check.value:.6g}  {_range(check.low, check.high)}")
    console.print_lines(findings.sentence)
    where = "Figures not saved; give --out FOLDER to save them." if out is None else f"Figures and data are in {out}."
    console.print(f"{'Passed' if findings.passed else 'FAILED'} in {seconds:.1f} s. {where}")


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    return f"(must lie in {'-inf' if low is None else f'{low:g}'} .. {'inf' if high is None else f'{high:g}'})"


def _setting(text: str) -> tuple[str, Any]:
    """``key=value`` with the value read as TOML, so that numbers, lists and strings mean what they do in a recipe."""
    key, _, value = text.partition("=")
    if not key.strip():
        raise InputError(f"A setting of the recipe is changed by KEY=VALUE; got {text!r}.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value
