"""``tokengeom rivals``: which explanation fits the geometry of a run best."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import Json, Quiet, app, guarded
from tokengeom.cli.options import keywords
from tokengeom.cli.output import print_summary, progress_shown, require_figure_path, save_figure
from tokengeom.geometry.rivals import RivalSettings


@app.command("rivals")
@guarded
def rivals_command(
    statistics: Annotated[Path, typer.Argument(metavar="STATS", help="Folder that `tokengeom count --out` wrote.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `tokengeom train --out` wrote.")],
    *,
    prediction: Annotated[
        Path | None,
        typer.Option(
            help="Folder that `tokengeom predict --out` wrote; computed again by default.", show_default=False
        ),
    ] = None,
    settings: RivalSettings,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the table: .png, .svg, .pdf or .html.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to save the table in.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare rival explanations of a run's geometry, with intervals, a permutation test and held-out contexts.

    For example:

    * `tokengeom rivals stats run --prediction prediction --out rivals`
    * `tokengeom rivals stats run --explanations pmi --explanations proxy --figure rivals.png`
    """
    from tokengeom.geometry.rival_table import Rivals
    from tokengeom.geometry.rivals import rivals

    began = time.monotonic()
    require_figure_path(figure)
    if out is not None:
        Rivals.require_target(out)
    with progress_shown(quiet) as progress:
        table = rivals(statistics, run, prediction, progress=progress, **keywords(settings))
        if out is not None:
            table.save(out)
    print_summary(table, began=began, out=out, as_json=as_json, quiet=quiet)
    if figure is not None:
        from tokengeom.figures.comparisons import rival_bars

        save_figure(rival_bars(table), figure)
