"""``tokengeom predict``: statistics to the limit of training, with a proof."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tokengeom.cli.app import Json, Quiet, app, guarded
from tokengeom.cli.output import give, progress_shown


@app.command("predict")
@guarded
def predict_command(
    statistics: Annotated[Path, typer.Argument(metavar="STATS", help="Folder that `tokengeom count --out` wrote.")],
    embeddings: Annotated[
        Path | None,
        typer.Option(help="For the linear model: H, d x m, in .safetensors (tensor H) or .npy.", show_default=False),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Proven relative gap to reach; 1e-6 for features, 1e-9 for the linear model.")
    ] = None,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="The proxy S~ alone, by a sparse SVD, for corpora of any size.")
    ] = False,
    components: Annotated[int, typer.Option(help="Singular vectors of the proxy.")] = 32,
    device: Annotated[str, typer.Option(help="cpu or cuda, for the features' solver.")] = "cpu",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to save the prediction in.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict where training converges, and prove it.

    For example:

    * `tokengeom predict stats --out prediction`
    * `tokengeom predict stats --embeddings H.safetensors --out linear`
    * `tokengeom predict big-stats --proxy --components 64`
    """
    from tokengeom.statistics.next_token import NextTokenStatistics
    from tokengeom.theory.predict import predict

    began = time.monotonic()
    stats = NextTokenStatistics.load(statistics)
    options: dict[str, Any] = {} if tolerance is None else {"tolerance": tolerance}
    if embeddings is not None:
        options["embeddings"] = load_embeddings(embeddings)
    elif proxy:
        options |= {"proxy": True, "components": components}
    elif device != "cpu":
        options["device"] = device
    with progress_shown(quiet) as progress:
        with progress.stage("Solving", None):
            prediction = predict(stats, **options)
        if out is not None:
            prediction.save(out)
    seconds = time.monotonic() - began
    saved = f"{seconds:.1f} s; " + ("not saved (give --out FOLDER)." if out is None else f"saved in {out}.")
    give(
        {**prediction.to_dict(), "out": None if out is None else str(out), "seconds": seconds},
        lambda console: console.print(f"{prediction.summary()}\n{saved}", markup=False),
        as_json,
        quiet,
    )


def load_embeddings(path: Path) -> Any:
    """H from a ``.npy`` file, or from the tensor ``H`` (or the only one) of a ``.safetensors`` file."""
    import numpy as np

    from tokengeom.errors import InputError

    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        from safetensors.numpy import load_file

        tensors = load_file(path)
    except Exception as error:
        raise InputError(f"{path} cannot be read as .npy or .safetensors: {error}") from error
    if "H" not in tensors and len(tensors) != 1:
        raise InputError(f"{path} must hold a tensor called H, or a single one; it holds: {', '.join(tensors)}.")
    return tensors.get("H", next(iter(tensors.values())))
