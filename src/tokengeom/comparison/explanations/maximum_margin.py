"""The prediction: L_mm, the smallest nuclear norm that separates every support from the other tokens [zhao2024]."""

from __future__ import annotations

from typing import ClassVar

from tokengeom.comparison.explanations.at_loss_nuclear import AbstractPrediction
from tokengeom.comparison.target import LIMIT, Target


class MaximumMargin(AbstractPrediction):
    """``M = L_mm``."""

    target: ClassVar[Target] = LIMIT
    order: ClassVar[float] = 12
