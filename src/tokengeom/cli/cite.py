"""``tokengeom cite``: how to cite this software and the papers whose theory it implements."""

from __future__ import annotations

from typing import Annotated

import typer

from tokengeom.cli.app import app, guarded
from tokengeom.cli.options import starting_with
from tokengeom.cli.output import print_result
from tokengeom.core.citation import STYLES, cite


@app.command("cite")
@guarded
def cite_command(
    style: Annotated[
        str,
        typer.Option(
            "--format",
            "--style",
            help=f"Format: {', '.join(STYLES)}.",
            autocompletion=starting_with(lambda: list(STYLES)),
        ),
    ] = "bibtex",
) -> None:
    """Print how to cite this software and the papers whose theory it implements.

    For example:

    * `tokengeom cite >> references.bib`
    * `tokengeom cite --format text`
    """
    citation = cite(style)
    print_result({"format": style, "citation": citation}, lambda console: console.print_lines(citation))
