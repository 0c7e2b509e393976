"""AdamW: Adam's rule and, separately, the shrinkage ``x <- (1 - lr weight_decay) x`` (decoupled weight decay)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokengeom.training.optimizers.adam import AbstractAdam
from tokengeom.training.optimizers.base import PAPER_STEPS, AbstractSchedule


@dataclass(frozen=True)
class AdamW(AbstractAdam):
    """Adam with decoupled weight decay; unless another schedule is given, the papers' one."""

    decoupled: ClassVar[bool] = True
    default_rate: ClassVar[float] = 1e-4

    def default_schedule(self) -> AbstractSchedule:
        """Learning rate times 0.4 at steps 5k, 10k, 15k, 20k and 25k."""
        return PAPER_STEPS
