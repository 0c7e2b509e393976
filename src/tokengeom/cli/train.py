"""``tokengeom train``: train a model on statistics."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokengeom.cli.app import EXIT_CHECK_FAILED, EXIT_INTERRUPTED, EstimateOnly, app, guarded
from tokengeom.cli.options import OUTPUT, Out, Statistics, keywords, optional
from tokengeom.cli.output import TerminalConsole, print_estimate, print_summary, progress_shown
from tokengeom.cli.predict import load_embeddings
from tokengeom.core.errors import InputError
from tokengeom.training.settings import TrainingSettings

if TYPE_CHECKING:
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.training.loop import Probe
    from tokengeom.training.run import Run


@app.command("train")
@guarded
def train_command(
    statistics: Statistics,
    *,
    settings: TrainingSettings,
    embeddings: Annotated[
        Path | None,
        optional("Embeddings H (d x m) of the linear model, in .safetensors (tensor H) or .npy.", panel="Model"),
    ] = None,
    start: Annotated[
        Path | None,
        optional(
            "A saved prediction for these statistics, from whose tokens W starts instead of random ones. For a "
            "network that is not tied; the ufm starts from the contexts too.",
            panel="Model",
            metavar="FOLDER",
        ),
    ] = None,
    prediction: Annotated[
        Path | None, optional("A saved prediction to compare with at every record.", panel=OUTPUT)
    ] = None,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run in --out.", rich_help_panel=OUTPUT)
    ] = False,
    estimate: EstimateOnly = False,
) -> None:
    """Train a model on exact soft labels, and record metrics during training.

    Ctrl-C keeps what was done; the same command with --resume continues from there (bit for bit on a CPU). Several GPUs
    train one network through PyTorch's launcher: `torchrun --nproc-per-node 4 -m tokengeom train ...`.

    For example:

    * `tokengeom train stats --model ufm --dim 128 --steps 30000 --out run`
    * `tokengeom train stats --model ufm --dim 128 --steps 30000 --estimate`
    * `tokengeom train stats --model linear --embeddings H.safetensors --optimizer ngd --prediction linear --out run`
    * `tokengeom train stats --model transformer --layers 2 --heads 4 --dim 128 --steps 1000 --learning-rate 2e-3`
    * `tokengeom train stats --model transformer --start at-loss --out run`
    """
    from tokengeom.statistics.next_token import statistics_of
    from tokengeom.training.train import estimate_training, train

    began = time.monotonic()
    stats = statistics_of(statistics, "train")
    how = keywords(settings) | {
        "embeddings": None if embeddings is None else load_embeddings(embeddings),
        "start": start,
        "probes": None if prediction is None else _probes(prediction, stats),
    }
    if estimate:
        print_estimate(estimate_training(stats, **how))
        return
    with progress_shown() as progress:
        run = train(stats, **how, progress=progress, checkpoint=out, resume=resume)
    final = {name: float(run.trajectory[name][-1]) for name in run.trajectory.names}
    print_summary(
        run, began=began, out=out, print_text=lambda console: _print_run(run, final, console), more={"final": final}
    )
    if run.status == "interrupted":
        if out is not None:
            said = f"Interrupted. What was trained is in {out}; to continue, run the same command with --resume."
            TerminalConsole(stderr=True).print(said, style="yellow")
        raise typer.Exit(EXIT_INTERRUPTED)
    if run.diverged:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _print_run(run: Run, final: dict[str, float], console: TerminalConsole) -> None:
    console.print_lines(run.summary())
    for name, value in final.items():
        console.print(f"  {name:<28} {value:.6g}")


def _probes(folder: Path, stats: NextTokenStatistics) -> dict[str, Probe]:
    """Agreement with a saved prediction for the same statistics."""
    from tokengeom.comparison.inputs import hash_of, require_same_statistics
    from tokengeom.comparison.monitor import feature_probes, linear_probes
    from tokengeom.results.registry import load
    from tokengeom.theory.features import FeaturePrediction
    from tokengeom.theory.linear import LinearPrediction

    prediction = load(folder)
    require_same_statistics("prediction", hash_of(prediction), "statistics", stats.hash)
    if isinstance(prediction, LinearPrediction):
        return linear_probes(prediction)
    if isinstance(prediction, FeaturePrediction):
        return feature_probes(prediction)
    raise InputError(
        f"--prediction must be a saved prediction of learned features or of the linear model; {folder} holds a "
        f"{type(prediction).__name__}."
    )
