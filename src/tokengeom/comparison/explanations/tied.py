"""Tied features trained as the run was, to its loss: contexts that share tokens share embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokengeom.comparison.explanations.base import AbstractRival, FactorFit, FitInputs
from tokengeom.comparison.explanations.ufm import LARGEST_DIM, MOST_STEPS, OPTIMIZER, RATES, SEEDS, TrainedFeatures
from tokengeom.core.factors import Factors
from tokengeom.core.progress import AbstractProgress
from tokengeom.models.factored import FACTORED
from tokengeom.models.networks.tied import TIES
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.training.simulate import FIRST_SEED, settings_of, simulated
from tokengeom.training.simulation import Simulation

MOST_WORK = 2e10
"""Steps times tokens times contexts times dimensions up to which a run is copied: about a minute for all seeds."""


@dataclass(frozen=True, eq=False)
class TiedFeatures(TrainedFeatures):
    """``L = W f(A Phi)`` by `simulate`: like the run where that takes about a minute, else as the UFM is trained."""

    name = "tied"
    meaning = "tied features trained to the same loss"
    order = 11.5
    uses = "tokens of contexts, probabilities, the loss and the optimizer"

    @classmethod
    def candidates(cls, known: FitInputs) -> Sequence[AbstractRival]:
        """Once, where the UFM is trained too and the model reads the tokens of contexts, which must be known."""
        reads = known.has_tokens and (known.run is None or known.run.settings.get("model") not in FACTORED)
        return super().candidates(known) if reads else []

    def fit(self, stats: NextTokenStatistics) -> FactorFit:
        made = self.simulation(stats)
        return FactorFit(Factors(made.W, made.H), made.shortfall, SEEDS)

    def simulation(self, stats: NextTokenStatistics, progress: AbstractProgress | None = None) -> Simulation:
        """Train the replicates."""
        return simulated(stats, self.training(stats), self.inputs.loss_gap, SEEDS, progress)

    def training(self, stats: NextTokenStatistics) -> dict[str, Any]:
        """Keywords of `train` for the replicates, each of which has its own seed."""
        known, run = self.inputs, self.inputs.run
        assert known.loss_gap is not None, "left out where the loss is not known"
        optimizer = OPTIMIZER.get(known.optimizer or "", "adamw")
        # Models whose training is not known here are networks, which have a last norm.
        how: dict[str, Any] = {"last_norm": True} if run is None else settings_of(run)
        if run is None or run.steps * stats.V * stats.m * run.W.shape[1] > MOST_WORK:
            quick = {"optimizer": optimizer, "learning_rate": RATES[optimizer], "rate_schedule": "constant"}
            dim = min(known.dim or LARGEST_DIM, LARGEST_DIM)
            how = {**quick, "last_norm": how["last_norm"], "dim": dim, "steps": MOST_STEPS}
        else:
            how["steps"] = min(how["steps"], 2 * run.steps)
        return {**how, "model": "tied", "ties": TIES, "seed": FIRST_SEED}
