"""``tokengeom rivals``: which explanation fits the geometry of a run best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import Json, Quiet, app, guarded
from tokengeom.cli.output import give, progress_shown, require_picture, save_picture


@app.command("rivals")
@guarded
def rivals_command(
    statistics: Annotated[Path, typer.Argument(metavar="STATS", help="Folder that `tokengeom count --out` wrote.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `tokengeom train --out` wrote.")],
    prediction: Annotated[
        Path | None, typer.Option(help="Folder that `tokengeom predict --out` wrote; else it is solved for.")
    ] = None,
    held_out: Annotated[
        float, typer.Option(help="Share of contexts that explanations are made without and judged on; 0 for none.")
    ] = 0.2,
    shift: Annotated[float, typer.Option(help="k of shifted PMI, whose shift is log k.")] = 1.0,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the table: .png, .svg, .pdf, or .html.", show_default=False)
    ] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples of contexts and of words.")] = 200,
    permutations: Annotated[int, typer.Option(help="Permutations of the null.")] = 200,
    seed: Annotated[int, typer.Option(help="Of both, and of the contexts held out.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which of six explanations fits a run's geometry best, with intervals, a null and held-out contexts.

    For example: `tokengeom rivals stats run --prediction prediction`
    """
    from tokengeom.geometry.rivals import rivals
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.theory.predict import load_prediction
    from tokengeom.training import Run

    require_picture(figure)
    with progress_shown(quiet) as progress, progress.stage("Holding rivals against the run", None):
        table = rivals(
            NextTokenStatistics.load(statistics),
            Run.load(run),
            load_prediction(prediction) if prediction is not None else None,  # type: ignore[arg-type]
            held_out=held_out,
            k=shift,
            resamples=resamples,
            permutations=permutations,
            seed=seed,
        )
    give(table.to_dict(), lambda console: console.print(table.summary(), markup=False), as_json, quiet)
    if figure is not None:
        from tokengeom.figures.comparisons import rival_bars

        save_picture(rival_bars(table), figure)
