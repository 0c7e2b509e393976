"""The prediction at the loss reached: the logits with the smallest nuclear norm that have the run's loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tokengeom.comparison.explanations.base import AbstractRival, FactorFit, FitInputs
from tokengeom.comparison.target import AT_LOSS
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.problems.base import LARGEST_GAP
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict


@dataclass(frozen=True, eq=False)
class AbstractAtLoss(AbstractRival):
    """The prediction at the run's loss gap, in the norm of the subclass; left out where the loss is not known."""

    uses: ClassVar[str] = AT_LOSS["nuclear"].info.uses
    quick: ClassVar[bool] = False
    ours: ClassVar[bool] = True
    norm: ClassVar[str]
    inputs: FitInputs

    @classmethod
    def candidates(cls, known: FitInputs) -> Sequence[AbstractRival]:
        """Once, where it was made before, or where the loss is known and statistics are small enough to solve for."""
        solves = cls.norm in known.norms and not (known.proxy_only or known.loss_gap is None)
        return [cls(known)] if cls.norm in known.at or solves else []

    def fit(self, stats: NextTokenStatistics) -> FactorFit:
        known = self.inputs
        prediction = known.at.get(self.norm)
        if prediction is None:
            assert known.loss_gap is not None, "left out where the loss is not known"
            gap, tolerance = known.loss_gap, known.tolerance
            prediction = predict(stats, loss_gap=gap, norm=self.norm, tolerance=tolerance)
            if prediction.relative_gap > LARGEST_GAP > tolerance:
                raise ProblemError(f"Its norm is proven only to a relative gap of {prediction.relative_gap:.1e}.")
        return FactorFit(Factors(prediction.W, prediction.H))


class AtLossNuclear(AbstractAtLoss):
    """``argmin ||L||_*`` over logits with the run's loss gap."""

    name: ClassVar[str] = AT_LOSS["nuclear"].info.name
    meaning: ClassVar[str] = AT_LOSS["nuclear"].info.meaning
    order: ClassVar[float] = 13
    norm: ClassVar[str] = "nuclear"
