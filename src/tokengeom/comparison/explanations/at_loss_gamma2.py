"""The prediction at the loss reached: the logits with the smallest gamma_2 norm that have the run's loss."""

from __future__ import annotations

from typing import ClassVar

from tokengeom.comparison.explanations.at_loss_nuclear import AbstractAtLoss
from tokengeom.comparison.target import AT_LOSS


class AtLossGamma2(AbstractAtLoss):
    """``argmin gamma_2(L)`` over logits with the run's loss gap."""

    name: ClassVar[str] = AT_LOSS["gamma2"].info.name
    meaning: ClassVar[str] = AT_LOSS["gamma2"].info.meaning
    order: ClassVar[float] = 14
    norm: ClassVar[str] = "gamma2"
