"""``tokengeom compare``: a prediction against a run, plain arrays, or a trained language model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokengeom.cli.app import app, guarded
from tokengeom.cli.options import MODEL, ModelText, Runs, corpus_of, keywords
from tokengeom.cli.output import print_summary, progress_shown, require_figure_path, save_figure
from tokengeom.comparison.inputs import CompareSettings
from tokengeom.core.errors import InputError
from tokengeom.corpus.locate import ReadingSettings
from tokengeom.page.settings import SeveralModelsSettings, TiesSettings

if TYPE_CHECKING:
    from tokengeom.comparison.checkpoints import CheckpointCurve
    from tokengeom.comparison.comparison import Comparison


@app.command("compare")
@guarded
def compare_command(
    prediction: Annotated[
        Path | None,
        typer.Argument(metavar="PREDICTION", help="Folder that `tokengeom predict --out` wrote.", show_default=False),
    ] = None,
    run: Runs = None,
    *,
    arrays: Annotated[
        Path | None,
        typer.Option(
            help="Instead of RUN: W (V x d) and H (d x m) in one .safetensors file, or a folder with W.npy and H.npy.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to save the comparison in.")] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of a Hugging Face causal language model, or of its checkpoint-* folders; may be repeated, for "
            "checkpoints of one training or for separate trainings.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None,
    text: ModelText = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Figure to write (.html, .png, .svg, .pdf): heat-maps of one model, a curve over several.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None,
    trained: SeveralModelsSettings,
    tying: TiesSettings,
    reading: ReadingSettings,
    settings: CompareSettings,
) -> None:
    """Compare runs or trained models with a prediction: a verdict, and the share of the geometry that is explained.

    For example:

    * `tokengeom compare prediction run run_of_seed_1 run_of_seed_2 --out comparison`
    * `tokengeom compare prediction --arrays W_H.safetensors`
    * `tokengeom compare --model stories260K --text stories.txt --figure geometry.html`
    * `tokengeom compare --model checkpoint-1000 --model checkpoint-2000 --text stories.txt --figure training.png`
    * `tokengeom compare --model seed-0 --model seed-1 --separate-trainings --text stories.txt`
    * `tokengeom compare --model stories260K --text stories.txt --context 6 --ties positions+pairs`
    """
    began = time.monotonic()
    if not model:
        if text or figure is not None:
            raise InputError("--text and --figure need --model PATH: name the model's folder, or leave them out.")
        if tying.ties is not None:
            raise InputError(
                "--ties needs --model PATH. For a run, make the prediction with ties first: tokengeom predict STATS "
                "--loss-gap GAP --ties positions+pairs --out TIED, then tokengeom compare TIED RUN."
            )
        comparison = _compare_run(prediction, run or [], arrays, out, settings)
        print_summary(comparison, began=began, out=out)
        return
    if prediction is not None or run or arrays is not None:
        raise InputError("--model makes its own prediction from --text: leave out PREDICTION, RUN and --arrays.")
    if not text:
        raise InputError("--model needs --text FILE, which the contexts and the prediction come from.")
    require_figure_path(figure)
    from tokengeom.comparison.checkpoints import CheckpointCurve
    from tokengeom.page.compare_models import compare_models

    if out is not None:
        CheckpointCurve.require_target(out)
    with progress_shown() as progress:
        curve = compare_models(model, corpus_of(text), progress=progress, **keywords(trained, tying, reading, settings))
        if out is not None:
            curve.save(out)
    drawn = {} if figure is None else {"figure": str(figure)}
    print_summary(curve, began=began, out=out, more=drawn)
    # The numbers are printed by now: a figure that cannot be drawn does not lose them.
    if figure is not None:
        _draw(curve, figure)


def _compare_run(
    prediction: Path | None,
    runs: list[Path],
    arrays: Path | None,
    out: Path | None,
    settings: CompareSettings,
) -> Comparison:
    from tokengeom.comparison.compare import compare
    from tokengeom.comparison.comparison import Comparison
    from tokengeom.models.saved_arrays import load_arrays

    if prediction is None or bool(runs) == (arrays is not None):
        raise InputError(
            "Compare needs PREDICTION and RUN, or PREDICTION and --arrays FILE, or --model PATH and --text FILE. For "
            "example: tokengeom compare prediction run"
        )
    if out is not None:
        Comparison.require_target(out)
    with progress_shown() as progress:
        measured = [*runs] if arrays is None else load_arrays(arrays)
        comparison = compare(prediction, measured, progress=progress, **keywords(settings))
        if out is not None:
            comparison.save(out)
    return comparison


def _draw(curve: CheckpointCurve, path: Path) -> None:
    """A curve over several checkpoints; heat-maps of a single one."""
    from tokengeom.figures.comparisons import checkpoints
    from tokengeom.figures.heatmaps import feature_heatmaps
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.theory.proxy import ProxyPrediction

    if len(curve) > 1:
        save_figure(checkpoints(curve), path)
        return
    (point,) = curve
    if not isinstance(curve.prediction, FeaturePrediction):
        made, instead = ("a prediction with ties", "leave out --ties")
        if isinstance(curve.prediction, ProxyPrediction):
            made, instead = "its proxy", "use --no-proxy or fewer contexts"
        raise InputError(f"Heat-maps need L_mm, and only {made} was computed: {instead}.")
    save_figure(feature_heatmaps(curve.prediction, {point.model: point}, stats=curve.stats), path)
