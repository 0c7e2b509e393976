"""``tokengeom rivals``: which explanation fits the geometry of a run or of a trained model best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import app, guarded
from tokengeom.cli.options import MODEL, ModelText, Out, Runs, corpus_of, keywords, optional, require_one_source
from tokengeom.cli.output import make_and_print, require_figure_path, save_figure
from tokengeom.comparison.rivals import RivalSettings
from tokengeom.core.errors import InputError
from tokengeom.core.progress import AbstractProgress
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
        Path | None, optional("Folder that `tokengeom predict --out` wrote; computed again by default.")
    ] = None,
    settings: RivalSettings,
    model: Annotated[
        list[Path] | None,
        optional(
            "Instead of STATS and RUN: folder of a Hugging Face causal language model. May be repeated with "
            "--separate-trainings; of checkpoints, the last is explained.",
            panel=MODEL,
        ),
    ] = None,
    text: ModelText = None,
    trained: SeveralModelsSettings,
    reading: ReadingSettings,
    figure: Annotated[Path | None, optional("Draw the table: .png, .svg, .pdf or .html.")] = None,
    out: Out = None,
) -> None:
    """Compare rival explanations of a model's geometry: intervals, floors and explained shares.

    For example:

    * `tokengeom rivals stats run --prediction prediction --out rivals`
    * `tokengeom rivals stats run run-of-another-seed --json`
    * `tokengeom rivals stats run --explanations pmi --explanations proxy --figure rivals.png`
    * `tokengeom rivals --model stories260K --text stories.txt`
    """
    from tokengeom.comparison.rival_table import Rivals
    from tokengeom.comparison.rivals import rivals
    from tokengeom.page.compare_models import model_rivals

    require_figure_path(figure)
    require_one_source(model, text, {"STATS": statistics, "RUN": run, "--prediction": prediction})

    def compared(progress: AbstractProgress) -> Rivals:
        if model:
            how = keywords(trained, reading, settings)
            return model_rivals(model, corpus_of(text or []), progress=progress, **how)
        if statistics is None or not run:
            raise InputError(
                "Rivals needs STATS and RUN, or --model PATH and --text FILE. For example: tokengeom rivals stats run"
            )
        return rivals(statistics, list(run), prediction, progress=progress, **keywords(settings))

    table = make_and_print(Rivals, compared, out)
    # The numbers are printed by now: a figure that cannot be drawn does not lose them.
    if figure is not None:
        from tokengeom.figures.comparisons import rival_bars

        save_figure(rival_bars(table), figure)
