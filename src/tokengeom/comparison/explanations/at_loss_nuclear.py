"""The prediction at the loss reached: the logits with the smallest nuclear norm that have the run's loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tokengeom.comparison.explanations.base import AbstractRival, FactorFit, FitInputs
from tokengeom.comparison.target import AT_LOSS, Target
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.problems.base import LARGEST_GAP
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.at_loss import LossPrediction
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict

LIMIT_TOLERANCE = 1e-5
"""Proven relative gap where L_mm is solved for here."""


@dataclass(frozen=True, eq=False)
class AbstractPrediction(AbstractRival):
    """The prediction that ``target`` is: one that was made before, or a new one."""

    quick = False
    ours = True
    target: ClassVar[Target]
    inputs: FitInputs = field(default_factory=FitInputs)

    def __init_subclass__(cls) -> None:
        info = cls.target.info
        cls.name, cls.meaning, cls.uses = info.name, info.meaning, info.uses

    @classmethod
    def candidates(cls, known: FitInputs) -> Sequence[AbstractRival]:
        """Once, where it was made before, or statistics are small enough to solve for it, and the loss is known."""
        norm, rival = cls.target.norm, cls(known)
        solves = not known.proxy_only and (norm is None or (norm in known.norms and known.loss_gap is not None))
        return [rival] if rival.made is not None or solves else []

    @property
    def made(self) -> FeaturePrediction | LossPrediction | None:
        """The prediction that was made before."""
        norm = self.target.norm
        return self.inputs.prediction if norm is None else self.inputs.at.get(norm)

    def fit(self, stats: NextTokenStatistics) -> FactorFit:
        known, norm, prediction = self.inputs, self.target.norm, self.made
        if prediction is None and norm is not None:
            assert known.loss_gap is not None, "left out where the loss is not known"
            prediction = predict(stats, loss_gap=known.loss_gap, norm=norm, tolerance=known.tolerance)
            if prediction.relative_gap > LARGEST_GAP > known.tolerance:
                raise ProblemError(f"Its norm is proven only to a relative gap of {prediction.relative_gap:.1e}.")
        elif prediction is None:
            prediction = predict(stats, spread_solves=0, tolerance=LIMIT_TOLERANCE)
        return FactorFit(Factors(prediction.W, prediction.H))


class AtLossNuclear(AbstractPrediction):
    """``argmin ||L||_*`` over logits with the run's loss gap."""

    target = AT_LOSS["nuclear"]
    order = 13
