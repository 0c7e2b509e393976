"""The prediction at the loss reached: the logits with the smallest gamma_2 norm that have the run's loss."""

from __future__ import annotations

from tokengeom.comparison.explanations.at_loss_nuclear import AbstractPrediction
from tokengeom.comparison.target import AT_LOSS


class AtLossGamma2(AbstractPrediction):
    """``argmin gamma_2(L)`` over logits with the run's loss gap."""

    target = AT_LOSS["gamma2"]
    order = 14
