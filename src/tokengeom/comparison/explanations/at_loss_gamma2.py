"""The prediction at the loss reached: the logits with the smallest gamma_2 norm that have the run's loss."""

from __future__ import annotations

from typing import ClassVar

from tokengeom.comparison.explanations.at_loss_nuclear import AbstractAtLoss


class AtLossGamma2(AbstractAtLoss):
    """``argmin gamma_2(L)`` over logits with the run's loss gap."""

    name: ClassVar[str] = "at loss, gamma_2"
    meaning: ClassVar[str] = "prediction at the loss, gamma_2 norm"
    order: ClassVar[float] = 14
    norm: ClassVar[str] = "gamma2"
