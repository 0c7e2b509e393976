"""``tokengeom train``: statistics and a model to a run."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from tokengeom.cli.app import EXIT_INTERRUPTED, EXIT_NO, Json, Quiet, app, guarded
from tokengeom.cli.output import give, progress_shown
from tokengeom.cli.predict import load_embeddings
from tokengeom.errors import InputError

if TYPE_CHECKING:
    from tokengeom.training import Probe

ModelName = Literal["linear", "ufm", "transformer", "mamba", "xlstm", "lstm", "mlp"]
OptimizerName = Literal["gd", "ngd", "adam", "adamw", "signgd", "spectral"]
MODEL, HOW, KEEP = "Model", "How it is trained", "What is kept"


@dataclass(frozen=True)
class WhatModel:
    """Options of the model."""

    model: Annotated[
        ModelName,
        typer.Option(
            help="Decoder on given embeddings (linear), both factors (ufm), or a network.", rich_help_panel=MODEL
        ),
    ] = "ufm"
    dim: Annotated[
        int | None,
        typer.Option(help="Embedding dimension of the ufm or network; 128 for a network.", rich_help_panel=MODEL),
    ] = None
    layers: Annotated[
        int | None, typer.Option(help="Of a network; by default the architecture's own.", rich_help_panel=MODEL)
    ] = None
    heads: Annotated[int | None, typer.Option(help="Of a transformer or xlstm.", rich_help_panel=MODEL)] = None
    positions: Annotated[
        bool, typer.Option("--positions", help="Rotary positions in a transformer.", rich_help_panel=MODEL)
    ] = False
    tied: Annotated[
        bool, typer.Option("--tied", help="W shares a network's input embeddings.", rich_help_panel=MODEL)
    ] = False
    attention_dropout: Annotated[
        float, typer.Option(help="Share of a transformer's attention dropped.", rich_help_panel=MODEL)
    ] = 0.0
    embeddings: Annotated[Path | None, typer.Option(help="H, d x m, for the linear model.", rich_help_panel=MODEL)] = (
        None
    )
    learn_embeddings: Annotated[
        bool, typer.Option("--learn-embeddings", help="Train the linear model's H too.", rich_help_panel=MODEL)
    ] = False
    init: Annotated[Literal["zero", "lecun"], typer.Option(help="Where W starts.", rich_help_panel=MODEL)] = "lecun"

    def options(self) -> dict[str, Any]:
        """As `train` takes them."""
        H = None if self.embeddings is None else load_embeddings(self.embeddings)
        return {**vars(self), "embeddings": H}


@dataclass(frozen=True)
class HowTrained:
    """Options of training."""

    optimizer: Annotated[
        OptimizerName | None,
        typer.Option(help="By default gd for the linear model, adamw for others.", rich_help_panel=HOW),
    ] = None
    steps: Annotated[int, typer.Option(help="Number of steps.", rich_help_panel=HOW)] = 10_000
    learning_rate: Annotated[
        float | None, typer.Option(help="By default the optimizer's own.", rich_help_panel=HOW)
    ] = None
    weight_decay: Annotated[float, typer.Option(help="Strength of weight decay.", rich_help_panel=HOW)] = 0.0
    rate_schedule: Annotated[
        str | None,
        typer.Option(help="constant, cosine, paper, or '{name=\"steps\", ...}'.", rich_help_panel=HOW),
    ] = None
    decay_schedule: Annotated[str, typer.Option(help="The same, for the weight decay.", rich_help_panel=HOW)] = (
        "constant"
    )
    reduction: Annotated[
        Literal["mean", "sum"] | None,
        typer.Option(help="Mean or summed loss; sum for adamw, as in the papers.", rich_help_panel=HOW),
    ] = None
    batch: Annotated[
        int | None, typer.Option(help="Sampled windows a step; else all contexts.", rich_help_panel=HOW)
    ] = None
    seed: Annotated[int, typer.Option(help="Of the start and the sampled windows.", rich_help_panel=HOW)] = 0
    precision: Annotated[
        Literal["float64", "float32", "bfloat16"] | None,
        typer.Option(help="Of the training; float32 for networks, else float64.", rich_help_panel=HOW),
    ] = None
    device: Annotated[str, typer.Option(help="cpu or cuda.", rich_help_panel=HOW)] = "cpu"
    compiled: Annotated[
        bool,
        typer.Option("--compiled", help="Compile a network first; pays for long runs on a GPU.", rich_help_panel=HOW),
    ] = False

    def options(self, model: str) -> dict[str, Any]:
        """As `train` takes them; the papers' way with adamw, which sums the loss."""
        optimizer = self.optimizer or ("gd" if model == "linear" else "adamw")
        return {
            **vars(self),
            "optimizer": optimizer,
            "reduction": self.reduction or ("sum" if optimizer == "adamw" else "mean"),
            "rate_schedule": None if self.rate_schedule is None else _schedule(self.rate_schedule),
            "decay_schedule": _schedule(self.decay_schedule),
        }


@app.command("train")
@guarded
def train_command(
    statistics: Annotated[Path, typer.Argument(metavar="STATS", help="Folder that `tokengeom count --out` wrote.")],
    *,
    what: WhatModel,
    how: HowTrained,
    prediction: Annotated[
        Path | None,
        typer.Option(help="A saved prediction to measure against along the way.", rich_help_panel=KEEP),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the run.", rich_help_panel=KEEP)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run in --out.", rich_help_panel=KEEP)
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on exact soft labels and record the way.

    Ctrl-C keeps what was done; the same command with --resume goes on, bit for bit. Several GPUs train one network
    through PyTorch's launcher: `torchrun --nproc-per-node 4 -m tokengeom train ...`.

    For example:

    * `tokengeom train stats --model ufm --dim 128 --steps 30000 --out run`
    * `tokengeom train stats --model linear --embeddings H.safetensors --optimizer ngd --prediction linear --out run`
    * `tokengeom train stats --model transformer --layers 2 --heads 4 --dim 64 --steps 1000 --learning-rate 2e-3`
    """
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.training import train

    stats = NextTokenStatistics.load(statistics)
    with progress_shown(quiet) as progress:
        run = train(
            stats,
            **what.options(),
            **how.options(what.model),
            probes=None if prediction is None else _probes(prediction),
            progress=progress,
            checkpoint=out,
            resume=resume,
        )
    final = {name: float(run.trajectory[name][-1]) for name in run.trajectory.names}

    def person(console: Console) -> None:
        rate = run.steps / max(run.seconds, 1e-9)
        console.print(f"{run.status}: {run.steps:,} steps in {run.seconds:.1f} s ({rate:,.0f} a second)")
        console.print(f"loss {run.loss:.6f} nats, {run.loss_gap:.3g} above the entropy floor {run.entropy:.6f}")
        if run.loss >= math.log(run.W.shape[0]):
            console.print(
                "That is no better than a uniform guess: lower the learning rate if it is large, else train longer."
            )
        for name, value in final.items():
            console.print(f"  {name:<28} {value:.6g}")
        console.print("not saved (give --out FOLDER)" if out is None else f"saved in {out}")

    give({**run.to_dict(), "final": final, "out": None if out is None else str(out)}, person, as_json, quiet)
    if run.status == "interrupted":
        raise typer.Exit(EXIT_INTERRUPTED)
    if run.status.startswith("diverged"):
        raise typer.Exit(EXIT_NO)


def _schedule(text: str) -> str | dict[str, Any]:
    """A schedule's name, or its settings as an inline TOML table."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return dict(tomllib.loads(f"schedule = {text}")["schedule"])
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"A schedule must be a name or an inline table such as {{name='steps', milestones=[100], factor=0.1}}; "
            f"got {text!r}: {error}."
        ) from error


def _probes(folder: Path) -> dict[str, Probe]:
    """Measurements against a saved prediction of either kind."""
    from tokengeom.geometry.probes import feature_probes, linear_probes
    from tokengeom.theory.linear import LinearPrediction
    from tokengeom.theory.predict import load_prediction

    prediction = load_prediction(folder)
    return linear_probes(prediction) if isinstance(prediction, LinearPrediction) else feature_probes(prediction)
