"""``tokengeom simulate``: the expected geometry of tied features, trained as a run was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tokengeom.cli.app import EstimateOnly, app, guarded
from tokengeom.cli.options import keywords
from tokengeom.cli.output import print_estimate, print_summary, progress_shown
from tokengeom.training.simulate import SimulationSettings


@app.command("simulate")
@guarded
def simulate_command(
    statistics: Annotated[Path, typer.Argument(metavar="STATS", help="Folder that `tokengeom count --out` wrote.")],
    *,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Folder that `tokengeom train --out` wrote: optimizer, rates, width, start of W, last norm and loss "
            "are those of this run, unless they are given.",
            show_default=False,
        ),
    ] = None,
    settings: SimulationSettings,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to save the simulation in.")] = None,
    estimate: EstimateOnly = False,
) -> None:
    """Simulate a training: the expected geometry of the simplest model that reads contexts, trained in the same way.

    Contexts share the embeddings of their features, such as their last token or the context itself. The model is
    trained to the loss of the run from several random starts, and cosines are averaged.

    For example:

    * `tokengeom simulate stats --like run --out simulation`
    * `tokengeom simulate stats --like run --ties positions+pairs+self --replicates 4`
    * `tokengeom simulate stats --optimizer gradient-flow --loss-gap 0.1 --out simulation`
    """
    from tokengeom.training.simulate import estimate_simulation, simulate
    from tokengeom.training.simulation import Simulation

    began = time.monotonic()
    if estimate:
        print_estimate(estimate_simulation(statistics, like, **keywords(settings)))
        return
    if out is not None:
        Simulation.require_target(out)
    with progress_shown() as progress:
        simulation = simulate(statistics, like, progress=progress, **keywords(settings))
        if out is not None:
            simulation.save(out)
    print_summary(simulation, began=began, out=out)
