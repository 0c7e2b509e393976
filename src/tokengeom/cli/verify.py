"""``tokengeom verify``: check a saved result again, without solving."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tokengeom.cli.app import EXIT_NO, Json, Quiet, app, guarded
from tokengeom.cli.output import give


@app.command("verify")
@guarded
def verify_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A saved result, or the results behind a report.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prove a saved result again from its certificate, and compare every file with its hash.

    Exit code 1 means that something does not hold. For example:

    * `tokengeom verify prediction`
    * `tokengeom verify report-results`
    """
    from tokengeom.page.verify import verify

    found = verify(folder)

    def person(console: Console) -> None:
        for sentence in found.checked:
            mark = "[red]no [/]" if sentence in found.failed else "[green]yes[/]"
            console.print(mark, end=" ")
            console.print(sentence, markup=False)
        console.print(f"{len(found.checked)} checks, {len(found.failed)} failed")

    give({"ok": found.ok, "checked": found.checked, "failed": found.failed}, person, as_json, quiet)
    if not found.ok:
        raise typer.Exit(EXIT_NO)
