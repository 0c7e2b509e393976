"""``tokengeom verify``: check a saved result again, without solving or training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tokengeom.cli.app import EXIT_CHECK_FAILED, Json, Quiet, app, guarded
from tokengeom.cli.output import print_result


@app.command("verify")
@guarded
def verify_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A saved result, or the results of a report.")],
    *,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare every file of a saved result with its hash, and check its certificates again.

    For example:

    * `tokengeom verify prediction`
    * `tokengeom verify report-results`
    """
    from tokengeom.results import verify

    found = verify(folder)

    def print_text(console: Console) -> None:
        for sentence in found.checked:
            mark = "[red]failed[/]" if sentence in found.failed else "[green]passed[/]"
            console.print(mark, end=" ")
            console.print(sentence, markup=False)
        total = len(found.checked)
        console.print(f"{total} check{'' if total == 1 else 's'}, {len(found.failed)} failed")

    data = {"ok": found.ok, "checked": found.checked, "failed": found.failed}
    print_result(data, print_text, as_json=as_json, quiet=quiet)
    if not found.ok:
        raise typer.Exit(EXIT_CHECK_FAILED)
