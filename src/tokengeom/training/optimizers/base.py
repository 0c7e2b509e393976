"""Schedules as data: the factor that multiplies a learning rate or a weight decay at each step.

What an optimizer is here: settings, a table of coefficients, and one rule written for both engines.

The rule moves one matrix x by its gradient g. It is written twice, compiled for the CPU (``kernel``) and in torch
(``torch_update``), because both engines run many steps without coming back to Python; a conformance test holds
the two, and torch's own optimizers, together.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.numerics import Float


@dataclass(frozen=True)
class AbstractSchedule(ABC):
    """A factor for each step."""

    name: ClassVar[str]

    @abstractmethod
    def factors(self, steps: Float, last: int) -> Float:
        """Factor of each of the given steps (counted from 0: the steps already made) of a run of ``last`` steps."""

    def to_dict(self) -> dict[str, Any]:
        """Name and settings, for a manifest."""
        return {"name": self.name, **dataclasses.asdict(self)}


@dataclass(frozen=True)
class Constant(AbstractSchedule):
    """Factor 1 at every step."""

    name: ClassVar[str] = "constant"

    def factors(self, steps: Float, last: int) -> Float:
        """Return ones."""
        return np.ones(steps.shape)


@dataclass(frozen=True)
class Steps(AbstractSchedule):
    """Factor ``factor ** (number of milestones passed)``."""

    name: ClassVar[str] = "steps"
    milestones: tuple[int, ...] = ()
    factor: float = 0.1

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(set(self.milestones)) or any(s < 0 for s in self.milestones):
            raise ProblemError(f"milestones of a schedule must be increasing steps; got {self.milestones!r}.")
        if not (np.isfinite(self.factor) and self.factor >= 0):
            raise ProblemError(f"factor of a schedule must be a number >= 0; got {self.factor!r}.")

    def factors(self, steps: Float, last: int) -> Float:
        """``factor`` to the number of milestones <= step."""
        passed = np.searchsorted(np.asarray(self.milestones, np.float64), steps, side="right")
        return np.asarray(self.factor**passed, np.float64)


@dataclass(frozen=True)
class Cosine(AbstractSchedule):
    """Half a cosine from 1 down to ``floor`` over the whole run, after a linear warm-up of ``warmup`` steps."""

    name: ClassVar[str] = "cosine"
    floor: float = 0.0
    warmup: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor <= 1.0 or self.warmup < 0:
            raise ProblemError(
                f"a cosine schedule needs floor in [0, 1] and warmup >= 0; got floor={self.floor!r}, "
                f"warmup={self.warmup!r}."
            )

    def factors(self, steps: Float, last: int) -> Float:
        """``floor + (1 - floor)(1 + cos(pi progress)) / 2``."""
        progress = np.clip((steps - self.warmup) / max(last - self.warmup, 1), 0.0, 1.0)
        wave = self.floor + (1.0 - self.floor) * 0.5 * (1.0 + np.cos(np.pi * progress))
        return np.asarray(np.minimum(1.0, (steps + 1.0) / max(self.warmup, 1)) * wave)


# lr x0.4 at 5k, 10k, 15k, 20k and 25k: the setting of the transformer and unconstrained-features experiments.
PAPER_STEPS = Steps(milestones=(5_000, 10_000, 15_000, 20_000, 25_000), factor=0.4)

_KNOWN: dict[str, type[AbstractSchedule]] = {kind.name: kind for kind in (Constant, Steps, Cosine)}


Given = str | AbstractSchedule | Mapping[str, Any]


def schedule_named(given: Given) -> AbstractSchedule:
    """Return the schedule itself; ``"paper"``; a kind by its name; or a kind with settings, as plain data.

    For example ``{"name": "steps", "milestones": [100, 200], "factor": 0.1}``.
    """
    if isinstance(given, AbstractSchedule):
        return given
    if given == "paper":
        return PAPER_STEPS
    settings = {"name": given} if isinstance(given, str) else dict(given)
    name = settings.pop("name", None)
    if name not in _KNOWN:
        raise ProblemError(f"a schedule must be 'paper', {', '.join(map(repr, _KNOWN))}, or settings; got {given!r}.")
    fields = [f.name for f in dataclasses.fields(_KNOWN[name])]
    unknown = sorted(set(settings) - set(fields))
    if unknown:
        raise ProblemError(f"a schedule {name!r} has the settings {', '.join(fields) or 'none'}; got {unknown[0]!r}.")
    return _KNOWN[name](**{key: tuple(x) if isinstance(x, list) else x for key, x in settings.items()})


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
