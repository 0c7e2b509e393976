"""``tokengeom compare``: a prediction against a run, plain arrays, or any trained model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokengeom.cli.app import Json, Quiet, app, guarded
from tokengeom.cli.output import give, progress_shown, require_picture, save_picture
from tokengeom.cli.reading import Reading
from tokengeom.errors import InputError

if TYPE_CHECKING:
    from tokengeom.geometry.checkpoints import CheckpointCurve

MODEL, DRAWS = "A trained model", "Intervals and null"


@dataclass(frozen=True)
class TrainedModel:
    """Options of a trained model and its text."""

    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of a Hugging Face causal language model, or of its checkpoint-* folders; may be repeated.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to count with the model's own tokenizer: what `tokengeom count` takes; may be repeated.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None
    context: Annotated[int, typer.Option("--context", "-c", help="Tokens in a context.", rich_help_panel=MODEL)] = 4
    contexts: Annotated[int, typer.Option(help="Keep the most frequent contexts.", rich_help_panel=MODEL)] = 400
    vocabulary: Annotated[
        int | None,
        typer.Option(help="Compare the commonest next tokens; by default all that occur.", rich_help_panel=MODEL),
    ] = None
    support: Annotated[str, typer.Option(help="Support policy: raw, count:TAU or top-p:P.", rich_help_panel=MODEL)] = (
        "raw"
    )
    bos: Annotated[
        bool | None,
        typer.Option(
            "--bos/--no-bos",
            help="Whether the model reads its BOS token before each context; by default what gives the lower loss.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None
    proxy: Annotated[
        bool | None,
        typer.Option(
            "--proxy/--exact",
            help="Hold the model against S~, or against L_mm; by default S~ only where L_mm takes minutes.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None
    device: Annotated[str, typer.Option(help="Where the model runs: cpu or cuda.", rich_help_panel=MODEL)] = "cpu"
    allow_pickle: Annotated[
        bool,
        typer.Option("--allow-pickle", help="Read pytorch_model.bin too; it can run code.", rich_help_panel=MODEL),
    ] = False
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Picture to write (.html, .png, .svg, .pdf): heat-maps of one model, a curve over several.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None

    def asked(self) -> dict[str, Any]:
        """As `compare_models` takes them, beside models and text."""
        return {name: value for name, value in vars(self).items() if name not in ("model", "text", "figure")}


@app.command("compare")
@guarded
def compare_command(
    prediction: Annotated[
        Path | None,
        typer.Argument(metavar="PREDICTION", help="Folder that `tokengeom predict --out` wrote.", show_default=False),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="Folder that `tokengeom train --out` wrote.", show_default=False),
    ] = None,
    arrays: Annotated[
        Path | None,
        typer.Option(
            help="Instead of RUN: W (V x d) and H (d x m) in one .safetensors file, or a folder with W.npy and H.npy.",
            show_default=False,
        ),
    ] = None,
    *,
    trained: TrainedModel,
    reading: Reading,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples of the contexts.", rich_help_panel=DRAWS)] = 200,
    permutations: Annotated[int, typer.Option(help="Permutations of the null.", rich_help_panel=DRAWS)] = 200,
    seed: Annotated[int, typer.Option(help="Of both.", rich_help_panel=DRAWS)] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say how well a run or a trained model agrees with a prediction, with intervals and a null.

    For example:

    * `tokengeom compare prediction run`
    * `tokengeom compare prediction --arrays W_H.safetensors`
    * `tokengeom compare --model stories260K --text stories.txt --figure geometry.html`
    * `tokengeom compare --model checkpoint-1000 --model checkpoint-2000 --text stories.txt --figure training.png`
    """
    draws: dict[str, Any] = {"resamples": resamples, "permutations": permutations, "seed": seed}
    if not trained.model:
        if trained.text or trained.figure is not None:
            raise InputError("--text and --figure go with --model PATH: name the model's folder, or leave them out.")
        _compare_run(prediction, run, arrays, draws, as_json, quiet)
        return
    if prediction is not None or run is not None or arrays is not None:
        raise InputError("--model makes its own prediction from --text: leave out PREDICTION, RUN and --arrays.")
    if not trained.text:
        raise InputError("--model needs --text FILE: the contexts come from it, and the prediction too.")
    require_picture(trained.figure)
    from tokengeom.geometry.compare_models import compare_models

    with progress_shown(quiet) as progress:
        curve = compare_models(
            trained.model,
            [name if "://" in name else Path(name) for name in trained.text],
            reading=reading.options(),
            progress=progress,
            **trained.asked(),
            **draws,
        )
    drawn = {} if trained.figure is None else {"figure": str(trained.figure)}
    give({**curve.to_dict(), **drawn}, lambda c: c.print(curve.summary(), markup=False), as_json, quiet)
    # The numbers are out by now: a picture that cannot be drawn does not cost them.
    if trained.figure is not None:
        _draw(curve, trained.figure)


def _compare_run(
    prediction: Path | None, run: Path | None, arrays: Path | None, draws: dict[str, int], as_json: bool, quiet: bool
) -> None:
    from tokengeom.geometry.compare import compare
    from tokengeom.models.saved_arrays import load_arrays
    from tokengeom.theory.predict import load_prediction
    from tokengeom.training import Run

    if prediction is None or (run is None) == (arrays is None):
        raise InputError(
            "Compare needs PREDICTION and RUN, or PREDICTION and --arrays FILE, or --model PATH and --text FILE. For "
            "example: tokengeom compare prediction run"
        )
    with progress_shown(quiet) as progress, progress.stage("Comparing", None):
        found = load_arrays(arrays) if arrays is not None else Run.load(run)  # type: ignore[arg-type]
        comparison = compare(load_prediction(prediction), found, **draws)
    give(comparison.to_dict(), lambda console: console.print(comparison.summary(), markup=False), as_json, quiet)


def _draw(curve: CheckpointCurve, path: Path) -> None:
    """A curve over several checkpoints; heat-maps of a single one."""
    from tokengeom.figures.comparisons import checkpoints
    from tokengeom.figures.heatmaps import feature_heatmaps
    from tokengeom.theory.features import FeaturePrediction

    if len(curve) > 1:
        figure = checkpoints(curve)
    elif not isinstance(curve.text.prediction, FeaturePrediction):
        raise InputError(
            "Heat-maps need L_mm, and only its proxy was computed: use --exact, or fewer contexts and words."
        )
    else:
        (point,) = curve
        figure = feature_heatmaps(curve.text.prediction, {point.model: (point.W, point.H)}, stats=curve.text.stats)
    save_picture(figure, path)
