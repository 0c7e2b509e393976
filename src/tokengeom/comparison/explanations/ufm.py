"""Unconstrained features trained to the run's loss: W and H are free, and what remains is the optimizer's own bias.

One training is as random as the run itself, so the explanation is the mean of the cosines of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokengeom.comparison.explanations.base import AbstractRival, FactorFit, FitInputs
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.loop import TrainingHooks
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import train_many

RATES = {"adamw": 1e-2, "ngd": 0.3}
"""Learning rates at which some hundred steps suffice; lower ones give the same agreement on the stories."""
OPTIMIZER = {"gd": "ngd", "ngd": "ngd"}
"""Optimizer for each of the run's, adamw for all others: ngd follows the trajectory of gd in fewer steps."""
MOST_STEPS = 800
RECORDS_PER_DECADE = 30
"""Steps at which the loss is measured: each has a gap within some 10% of the last."""
LARGEST_DIM = 128
SEED = 20_000
"""Seed of the first start, another one than that of common runs."""
SEEDS = 5
"""Trainings whose cosines are averaged."""


@dataclass(frozen=True, eq=False)
class TrainedFeatures(AbstractRival):
    """W and H of ``min CE(W H)``, trained from a random start until the loss gap is the run's."""

    name = "UFM"
    meaning = "unconstrained features trained to the same loss"
    order = 11.0
    uses = "probabilities, the loss and the optimizer"
    parameters = f"random start, mean of {SEEDS}"
    quick = False
    inputs: FitInputs

    @classmethod
    def candidates(cls, known: FitInputs) -> Sequence[AbstractRival]:
        """Once, where the loss is known and statistics are small enough to train on."""
        return [] if known.proxy_only or known.loss_gap is None else [cls(known)]

    def fit(self, stats: NextTokenStatistics) -> FactorFit:
        """Train from several starts, each until the loss gap is reached, or for `MOST_STEPS` steps."""
        trained = [self._train(stats, SEED + seed) for seed in range(SEEDS)]
        short = [gap for _, gap in trained if gap is not None]
        limitation = f"UFM was trained to a loss gap of {max(short):.2g} nats only." if short else ""
        W = np.hstack([factors.W for factors, _ in trained])
        return FactorFit(Factors(W, np.vstack([factors.H for factors, _ in trained])), limitation, SEEDS)

    def _train(self, stats: NextTokenStatistics, seed: int) -> tuple[Factors, float | None]:
        """W and H, and the loss gap where it is not the run's."""
        wanted = self.inputs.loss_gap
        assert wanted is not None, "left out where the loss is not known"
        optimizer = OPTIMIZER.get(self.inputs.optimizer or "", "adamw")

        settings = TrainingSettings(
            model="ufm",
            dim=min(self.inputs.dim or LARGEST_DIM, LARGEST_DIM),
            optimizer=optimizer,
            learning_rate=RATES[optimizer],
            rate_schedule="constant",
            precision="float32",
            steps=MOST_STEPS,
            seed=seed,
            records_per_decade=RECORDS_PER_DECADE,
        )
        run = train_many(stats, [settings], hooks=TrainingHooks(loss_gap=wanted))[0]
        if run.diverged:
            raise ProblemError(f"Unconstrained features could not be trained: {run.status}.")
        return Factors(run.W, run.H), None if run.loss_gap <= wanted else run.loss_gap
