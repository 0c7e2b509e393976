"""What an optimizer is here: settings, a table of coefficients, and one rule written for both engines.

The rule moves one matrix x by its gradient g. It is written twice, compiled for the CPU (``kernel``) and in torch
(``torch_update``), because both engines run many steps without coming back to Python; a conformance test holds
the two, and torch's own optimizers, together.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.numerics import Float

if TYPE_CHECKING:
    from tokengeom.training.schedules import AbstractSchedule


@dataclass(frozen=True)
class AbstractOptimizer(ABC):
    """Settings of an optimizer. ``slots`` matrices are kept a parameter (0 to 2).

    ``elementwise``
        Whether an entry's move depends on that entry's history alone, so that parts may be moved apart.
    ``needs_norm``
        Whether the rule divides by the Frobenius norm of the whole gradient.
    ``decoupled``
        Whether weight decay shrinks the parameter beside the rule; otherwise it is the gradient of the ridge
        ``(weight_decay / 2) (||W||^2 + ||H||^2)``, added to the gradient before the rule.
    """

    name: ClassVar[str]
    slots: ClassVar[int]
    elementwise: ClassVar[bool] = True
    needs_norm: ClassVar[bool] = False
    decoupled: ClassVar[bool] = False
    default_rate: ClassVar[float]

    @property
    def matrixwise(self) -> bool:
        """Whether the rule needs each parameter in the shape of its matrix."""
        return not self.elementwise and not self.needs_norm

    @property
    def capturable(self) -> bool:
        """Whether the rule can be recorded as a CUDA graph (a decomposition on the host's side cannot)."""
        return True

    @abstractmethod
    def rule(self, steps: Float, rates: Float, decays: Float) -> list[Float | float]:
        """Coefficients of the rule at the given steps (1-based), as columns."""

    @abstractmethod
    def kernel(self) -> Any:
        """Return the compiled rule ``update(x, g, first, second, c, norm)``, in place, on one matrix."""

    @abstractmethod
    def torch_update(self, x: Any, g: Any, first: Any, second: Any, c: Any, norm: Any) -> None:
        """Apply the rule in place to a batch: replicates x rows x columns, or replicates x entries.

        ``c`` is a tensor, since its values change between replays of a captured graph; ``norm`` is replicates x 1.
        """

    def coefficients(self, steps: Float, rates: Float, decays: Float) -> Float:
        """Table with a row a step: the decay that joins the gradient, then the rule's own coefficients."""
        coupled = np.zeros_like(decays) if self.decoupled else decays
        columns = [coupled, *self.rule(steps, rates, decays)]
        return np.stack([np.broadcast_to(np.asarray(column, np.float64), steps.shape) for column in columns], 1)

    def default_schedule(self) -> AbstractSchedule:
        """Schedule of the learning rate when none is given: constant."""
        from tokengeom.training.schedules import Constant

        return Constant()

    def to_dict(self) -> dict[str, Any]:
        """Name and settings, for a manifest."""
        return {"name": self.name, **dataclasses.asdict(self)}


def check_fraction(optimizer: str, name: str, value: float) -> None:
    """Refuse an averaging weight outside [0, 1)."""
    if not 0.0 <= value < 1.0:
        raise ProblemError(
            f"{name} of {optimizer} must lie in [0, 1); got {value!r}. It is the weight of the past in a running "
            f"average: 0 forgets everything, 0.9 is usual."
        )


def check_positive(optimizer: str, name: str, value: float) -> None:
    """Refuse a setting that must be a positive number."""
    if not value > 0.0 or not np.isfinite(value):
        raise ProblemError(f"{name} of {optimizer} must be a positive number; got {value!r}.")
