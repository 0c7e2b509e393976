"""``tokengeom study``: named experiments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tokengeom.cli.app import EXIT_NO, Json, Quiet, app, guarded
from tokengeom.cli.options import starting_with
from tokengeom.cli.output import give, progress_shown


def _study_names() -> list[str]:
    from tokengeom.studies.base import all_studies

    return list(all_studies())


@app.command("study")
@guarded
def study_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Which study.", show_default=False, autocompletion=starting_with(_study_names)
        ),
    ] = None,
    size: Annotated[
        str,
        typer.Option(help="Which recipe: small, or paper.", autocompletion=starting_with(lambda: ["small", "paper"])),
    ] = "small",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one setting of the recipe; can be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for figures, data and findings.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List all studies with their questions.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the papers, or of their open questions; it ends in a sentence and pass or fail.

    Exit code 1 means that a check failed.

    For example:

    * `tokengeom study --list`
    * `tokengeom study linear-overparameterised --out results/linear`
    * `tokengeom study ufm-synthetic --set steps=3000 --json`
    """
    from tokengeom.errors import InputError
    from tokengeom.studies.base import all_studies, find_study, save_findings

    if listed or name is None:
        questions = {study.name: study.question for study in all_studies().values()}
        give({"studies": questions}, lambda console: _show_list(console, questions), as_json, quiet)
        return
    study = find_study(name)
    changes = dict(_setting(text) for text in settings or ())
    if any(key == "" for key in changes):
        raise InputError("A setting is changed by KEY=VALUE.")
    recipe = study.recipe(size, **changes)
    began = time.monotonic()
    with progress_shown(quiet) as progress:
        findings = study.run(recipe, progress)
        if out is not None:
            save_findings(study, recipe, findings, out)
    seconds = time.monotonic() - began

    def person(console: Console) -> None:
        console.print(f"[bold]{study.name}[/]: {study.question}")
        for check in findings.checks:
            mark = "[green]pass[/]" if check.passed else "[red]FAIL[/]"
            console.print(f"  {mark}  {check.name}: {check.value:.6g}  {_range(check.low, check.high)}")
        console.print(findings.sentence, markup=False)
        where = "figures not saved (give --out FOLDER)" if out is None else f"figures and data in {out}"
        console.print(f"{'passed' if findings.passed else 'FAILED'} in {seconds:.1f} s; {where}")

    data = {
        "study": study.name,
        "passed": findings.passed,
        "sentence": findings.sentence,
        "checks": [{**vars(check), "passed": check.passed} for check in findings.checks],
        "recipe": recipe,
        "seconds": seconds,
        "out": None if out is None else str(out),
    }
    give(data, person, as_json, quiet)
    if not findings.passed:
        raise typer.Exit(EXIT_NO)


def _show_list(console: Console, questions: dict[str, str]) -> None:
    for name, question in questions.items():
        console.print(f"[bold]{name:<28}[/] {question}")


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    return f"(must lie in {'-inf' if low is None else f'{low:g}'} .. {'inf' if high is None else f'{high:g}'})"


def _setting(text: str) -> tuple[str, Any]:
    """``key=value`` with the value read as TOML, so that numbers, lists and strings mean what they do in a recipe."""
    import tomllib

    key, _, value = text.partition("=")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value
