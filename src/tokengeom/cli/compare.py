"""``tokengeom compare``: a prediction against a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import Json, Quiet, app, guarded
from tokengeom.cli.output import give, progress_shown


@app.command("compare")
@guarded
def compare_command(
    prediction: Annotated[
        Path, typer.Argument(metavar="PREDICTION", help="Folder that `tokengeom predict --out` wrote.")
    ],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `tokengeom train --out` wrote.")],
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples of the contexts.")] = 200,
    permutations: Annotated[int, typer.Option(help="Permutations of the null.")] = 200,
    seed: Annotated[int, typer.Option(help="Of both.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say how well a run agrees with a prediction, with intervals and a null.

    For example: `tokengeom compare prediction run`
    """
    from tokengeom.geometry.compare import compare
    from tokengeom.theory.predict import load_prediction
    from tokengeom.training import Run

    with progress_shown(quiet) as progress, progress.stage("Comparing", None):
        comparison = compare(
            load_prediction(prediction), Run.load(run), resamples=resamples, permutations=permutations, seed=seed
        )
    give(comparison.to_dict(), lambda console: console.print(comparison.summary(), markup=False), as_json, quiet)
