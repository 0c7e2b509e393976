"""``tokengeom verify``: check a saved result again, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import EXIT_CHECK_FAILED, app, guarded
from tokengeom.cli.options import optional
from tokengeom.cli.output import TerminalConsole, print_result


@app.command("verify")
@guarded
def verify_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A saved result, or a folder that holds several.")],
    *,
    expect: Annotated[str | None, optional("Hash that was printed when the result was made.", metavar="HASH")] = None,
    beside: Annotated[
        list[Path] | None,
        optional(
            "A saved result to compare with, such as the statistics of a prediction; may be given several times. "
            "Results in the same folder as FOLDER are found without it.",
            "--with",
            "--beside",
            metavar="FOLDER",
        ),
    ] = None,
) -> None:
    """Compare every file of a saved result with its hash, and compute again what it claims.

    What can be computed again from the result and from the results beside it is: certificates, losses, agreements with
    their intervals, rows of tables, the page. The rest is listed as not checked, with the reason.

    Where the folder is not a result itself, every result in it is checked, at any depth; links are not followed.

    Whoever changes a result can also write new hashes into it. To know that a result is the one that was made, keep the
    hash that is printed then, and give it with --expect.

    For example:

    * `tokengeom verify prediction`
    * `tokengeom verify report-results --expect 9f86d081884c7d65...`
    * `tokengeom verify prediction --with elsewhere/stats`
    """
    from tokengeom.verification.verify import verify

    verification = verify(folder, expect=expect, beside=beside or [])

    def print_text(console: TerminalConsole) -> None:
        for sentence in verification.checked:
            failed = sentence in verification.failed
            console.print("failed" if failed else "passed", style="red" if failed else "green", end=" ")
            console.print(sentence)
        for sentence in verification.not_checked:
            console.print("not checked", style="yellow", end=" ")
            console.print(sentence)
        console.print(verification.summary())

    data = {
        "ok": verification.ok,
        "checked": verification.checked,
        "failed": verification.failed,
        "not_checked": verification.not_checked,
        "hash": verification.hash,
    }
    print_result(data, print_text)
    if not verification.ok:
        raise typer.Exit(EXIT_CHECK_FAILED)
