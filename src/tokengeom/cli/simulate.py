"""``tokengeom simulate``: the expected geometry of tied features, trained as a run was."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tokengeom.cli.app import EstimateOnly, app, guarded
from tokengeom.cli.options import Out, Statistics, keywords, optional
from tokengeom.cli.output import make_and_print, print_estimate
from tokengeom.training.simulate import SimulationSettings


@app.command("simulate")
@guarded
def simulate_command(
    statistics: Statistics,
    *,
    like: Annotated[
        Path | None,
        optional(
            "Folder that `tokengeom train --out` wrote: optimizer, rates, width, start of W, last norm and loss are "
            "those of this run, unless they are given.",
            metavar="RUN",
        ),
    ] = None,
    settings: SimulationSettings,
    out: Out = None,
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

    how = keywords(settings)
    if estimate:
        print_estimate(estimate_simulation(statistics, like, **how))
    else:
        make_and_print(Simulation, lambda progress: simulate(statistics, like, progress=progress, **how), out)
