"""The prediction: L_mm, the smallest nuclear norm that separates every support from the other tokens [zhao2024]."""

from __future__ import annotations

from tokengeom.comparison.explanations.at_loss_nuclear import AbstractPrediction
from tokengeom.comparison.target import LIMIT


class MaximumMargin(AbstractPrediction):
    """``M = L_mm``."""

    target = LIMIT
    order = 12
