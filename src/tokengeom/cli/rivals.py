"""``tokengeom rivals``: which explanation fits the geometry of a run or of a trained model best."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import app, guarded
from tokengeom.cli.options import MODEL, ModelText, Runs, corpus_of, keywords
from tokengeom.cli.output import print_summary, progress_shown, require_figure_path, save_figure
from tokengeom.comparison.rivals import RivalSettings
from tokengeom.core.errors import InputError
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page.settings import SeveralModelsSettings


@app.command("rivals")
@guarded
def rivals_command(
    statistics: Annotated[
        Path | None,
        typer.Argument(metavar="STATS", help="Folder that `tokengeom count --out` wrote.", show_default=False),
    ] = None,
    run: Runs = None,
    *,
    prediction: Annotated[
        Path | None,
        typer.Option(
            help="Folder that `tokengeom predict --out` wrote; computed again by default.", show_default=False
        ),
    ] = None,
    settings: RivalSettings,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="Instead of STATS and RUN: folder of a Hugging Face causal language model. May be repeated with "
            "--separate-trainings; of checkpoints, the last is explained.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None,
    text: ModelText = None,
    trained: SeveralModelsSettings,
    reading: ReadingSettings,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the table: .png, .svg, .pdf or .html.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to save the table in.")] = None,
) -> None:
    """Compare rival explanations of a model's geometry: intervals, floors and explained shares.

    For example:

    * `tokengeom rivals stats run --prediction prediction --out rivals`
    * `tokengeom rivals stats run run-of-another-seed --json`
    * `tokengeom rivals stats run --explanations pmi --explanations proxy --figure rivals.png`
    * `tokengeom rivals --model stories260K --text stories.txt`
    """
    from tokengeom.comparison.rival_table import Rivals

    began = time.monotonic()
    require_figure_path(figure)
    _require_one_source(statistics, run, prediction, model, text)
    if out is not None:
        Rivals.require_target(out)
    with progress_shown() as progress:
        if model:
            from tokengeom.page.compare_models import model_rivals

            how = keywords(trained, reading, settings)
            table = model_rivals(model, corpus_of(text or []), progress=progress, **how)
        else:
            from tokengeom.comparison.rivals import rivals

            assert statistics is not None, "checked above"
            table = rivals(statistics, list(run or []), prediction, progress=progress, **keywords(settings))
        if out is not None:
            table.save(out)
    print_summary(table, began=began, out=out)
    # The numbers are printed by now: a figure that cannot be drawn does not lose them.
    if figure is not None:
        from tokengeom.figures.comparisons import rival_bars

        save_figure(rival_bars(table), figure)


def _require_one_source(
    statistics: Path | None,
    run: list[Path] | None,
    prediction: Path | None,
    model: list[Path] | None,
    text: list[str] | None,
) -> None:
    """Refuse anything but statistics with a run, or a model with a text."""
    if not model:
        if text:
            raise InputError("--text needs --model PATH: name the model's folder, or leave it out.")
        if statistics is None or not run:
            raise InputError(
                "Rivals needs STATS and RUN, or --model PATH and --text FILE. For example: tokengeom rivals stats run"
            )
    elif statistics is not None or run or prediction is not None:
        raise InputError("--model makes its own statistics from --text: leave out STATS, RUN and --prediction.")
    elif not text:
        raise InputError("--model needs --text FILE, which the contexts and the explanations come from.")
