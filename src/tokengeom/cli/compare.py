"""``tokengeom compare``: a prediction against a run, plain arrays, or a trained language model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokengeom.cli.app import app, guarded
from tokengeom.cli.options import MODEL, ModelText, Out, Runs, corpus_of, keywords, optional, require_one_source
from tokengeom.cli.output import TerminalConsole, make_and_print, require_figure_path, save_figure
from tokengeom.comparison.inputs import CompareSettings
from tokengeom.core.errors import InputError
from tokengeom.core.progress import AbstractProgress
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
        optional("Instead of RUN: W (V x d) and H (d x m) in one .safetensors file, or a folder with W.npy and H.npy."),
    ] = None,
    out: Out = None,
    model: Annotated[
        list[Path] | None,
        optional(
            "Folder of a Hugging Face causal language model, or of its checkpoint-* folders; may be repeated, for "
            "checkpoints of one training or for separate trainings.",
            panel=MODEL,
        ),
    ] = None,
    text: ModelText = None,
    figure: Annotated[
        Path | None,
        optional("Figure (.html, .png, .svg, .pdf): heat-maps of one model, a curve over several.", panel=MODEL),
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
    from tokengeom.comparison.checkpoints import CheckpointCurve
    from tokengeom.comparison.compare import compare
    from tokengeom.comparison.comparison import Comparison
    from tokengeom.models.saved_arrays import load_arrays
    from tokengeom.page.compare_models import compare_models

    require_one_source(model, text, {"PREDICTION": prediction, "RUN": run, "--arrays": arrays})
    if model:
        require_figure_path(figure)
        how = keywords(trained, tying, reading, settings)
        drawn = {} if figure is None else {"figure": str(figure)}
        curve = make_and_print(
            CheckpointCurve,
            lambda progress: compare_models(model, corpus_of(text or []), progress=progress, **how),
            out,
            more=drawn,
        )
        # The numbers are printed by now: a figure that cannot be drawn does not lose them.
        if figure is not None:
            _draw(curve, figure)
        return
    if figure is not None:
        raise InputError("--figure needs --model PATH: name the model's folder, or leave it out.")
    if tying.ties is not None:
        raise InputError(
            "--ties needs --model PATH. For a run, make the prediction with ties first: tokengeom predict STATS "
            "--loss-gap GAP --ties positions+pairs --out TIED, then tokengeom compare TIED RUN."
        )
    if prediction is None or bool(run) == (arrays is not None):
        raise InputError(
            "Compare needs PREDICTION and RUN, or PREDICTION and --arrays FILE, or --model PATH and --text FILE. For "
            "example: tokengeom compare prediction run"
        )

    def compared(progress: AbstractProgress) -> Comparison:
        measured = list(run or []) if arrays is None else load_arrays(arrays)
        return compare(prediction, measured, progress=progress, **keywords(settings))

    make_and_print(Comparison, compared, out, print_text=partial(_print_with_names, prediction))


def _print_with_names(prediction: Path, comparison: Comparison, console: TerminalConsole) -> None:
    """The summary, with the names of tokens and contexts where the prediction's statistics are saved beside it."""
    from tokengeom.comparison.inputs import hash_of
    from tokengeom.results.contract import NearbyResults
    from tokengeom.statistics.next_token import NextTokenStatistics

    known = None if comparison.compared is None else hash_of(comparison.compared[0])
    names = NearbyResults(prediction).find(NextTokenStatistics, hash=known)
    console.print_lines((comparison if names is None else comparison.named_by(names)).summary())


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
