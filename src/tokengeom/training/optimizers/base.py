"""What optimizers share: schedules, the interface, and finding an optimizer by its name.

An optimizer is a frozen dataclass of settings with one update rule, which moves a parameter matrix x by its gradient g.
The rule is written twice, compiled for the CPU (``kernel``) and in torch (``torch_update``), because both engines make
many steps without returning to Python; tests compare the two with each other and with torch's own optimizers.

A schedule gives the factor that multiplies a learning rate or a weight decay at each step.
"""

from __future__ import annotations

import dataclasses
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float
from tokengeom.core.settings import member, member_names

_PACKAGE = __name__.removesuffix(".base")
PAPER_FACTOR, PAPER_PARTS = 0.4, 6


@dataclass(frozen=True)
class AbstractSchedule(ABC):
    """A factor for each step."""

    name: ClassVar[str]

    @abstractmethod
    def factors(self, steps: Float, last: int) -> Float:
        """Factor of each of the given steps (the number of steps already made, from 0) in a run of ``last`` steps."""

    def to_dict(self) -> dict[str, Any]:
        """Name and settings as plain data."""
        return _plain(self.name, self)


@dataclass(frozen=True)
class Constant(AbstractSchedule):
    """Factor 1 at every step."""

    name: ClassVar[str] = "constant"

    def factors(self, steps: Float, last: int) -> Float:
        return np.ones(steps.shape)


@dataclass(frozen=True)
class Steps(AbstractSchedule):
    """Factor ``factor ** (number of milestones passed)``."""

    name: ClassVar[str] = "steps"
    milestones: tuple[int, ...] = ()
    factor: float = 0.1

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(set(self.milestones)) or any(s < 0 for s in self.milestones):
            raise ProblemError(f"The milestones of a schedule must be increasing steps; got {self.milestones!r}.")
        if not (np.isfinite(self.factor) and self.factor >= 0):
            raise ProblemError(f"The factor of a schedule must be a number >= 0; got {self.factor!r}.")

    def factors(self, steps: Float, last: int) -> Float:
        passed = np.searchsorted(np.asarray(self.milestones, np.float64), steps, side="right")
        return np.asarray(self.factor**passed, np.float64)


@dataclass(frozen=True)
class Cosine(AbstractSchedule):
    """Linear warm-up over ``warmup`` steps, then half a cosine from 1 down to ``floor`` at the last step."""

    name: ClassVar[str] = "cosine"
    floor: float = 0.0
    warmup: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor <= 1.0 or self.warmup < 0:
            raise ProblemError(
                f"A cosine schedule needs floor in [0, 1] and warmup >= 0; got floor={self.floor!r}, "
                f"warmup={self.warmup!r}."
            )

    def factors(self, steps: Float, last: int) -> Float:
        progress = np.clip((steps - self.warmup) / max(last - self.warmup, 1), 0.0, 1.0)
        wave = self.floor + (1.0 - self.floor) * 0.5 * (1.0 + np.cos(np.pi * progress))
        return np.asarray(np.minimum(1.0, (steps + 1.0) / max(self.warmup, 1)) * wave)


def paper_steps(steps: int = 30_000) -> Steps:
    """The papers' schedule for a run of ``steps`` steps: times 0.4 after each sixth of it.

    For the papers' own 30,000 steps the milestones are 5k, 10k, 15k, 20k and 25k.
    """
    if steps < PAPER_PARTS:
        raise ProblemError(
            f"The papers' schedule has {PAPER_PARTS} parts and needs at least as many steps; got steps={steps}."
        )
    return Steps(tuple(steps * part // PAPER_PARTS for part in range(1, PAPER_PARTS)), PAPER_FACTOR)


PAPER_STEPS = paper_steps()
"""The schedule called "paper": milestones at 5k, 10k, 15k, 20k and 25k, whatever the length of the run."""

ScheduleLike = str | AbstractSchedule | Mapping[str, Any]
_SCHEDULES: dict[str, type[AbstractSchedule]] = {kind.name: kind for kind in (Constant, Steps, Cosine)}


def schedule_named(given: ScheduleLike) -> AbstractSchedule:
    """A schedule from its name, from its settings as plain data, or itself.

    For example ``"cosine"``, ``"paper"`` or ``{"name": "steps", "milestones": [100, 200], "factor": 0.1}``.
    """
    if isinstance(given, AbstractSchedule):
        return given
    if given == "paper":
        return PAPER_STEPS
    settings = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = settings.pop("name", None)
    if not isinstance(name, str) or name not in _SCHEDULES:
        raise ProblemError(
            f"A schedule must be 'paper', {', '.join(map(repr, _SCHEDULES))}, or settings of one; got {given!r}."
        )
    fields = [f.name for f in dataclasses.fields(_SCHEDULES[name])]
    unknown = sorted(set(settings) - set(fields))
    if unknown:
        raise ProblemError(f"A schedule {name!r} has the settings {', '.join(fields) or 'none'}; got {unknown[0]!r}.")
    return _SCHEDULES[name](**{key: tuple(x) if isinstance(x, list) else x for key, x in settings.items()})


def parse_schedule(text: str) -> str | dict[str, Any]:
    """A schedule's name, or its settings written as an inline TOML table."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return dict(tomllib.loads(f"schedule = {text}")["schedule"])
    except tomllib.TOMLDecodeError as error:
        raise ProblemError(
            "A schedule must be a name or an inline table such as {name='steps', milestones=[100], factor=0.1}; "
            f"got {text!r}: {error}."
        ) from error


@dataclass(frozen=True)
class AbstractOptimizer(ABC):
    """Settings of an optimizer, which keeps ``slots`` matrices (0 to 2) per parameter.

    ``elementwise``  Whether the update of an entry depends on the history of that entry only; parts of a matrix can
                     then be updated independently.
    ``needs_norm``   Whether the rule divides by the Frobenius norm of the whole gradient.
    ``decoupled``    Whether weight decay shrinks the parameter separately from the rule; otherwise it is the gradient
                     of the ridge ``(weight_decay / 2) (||W||^2 + ||H||^2)``, added to the gradient before the rule.
    """

    slots: ClassVar[int]
    elementwise: ClassVar[bool] = True
    needs_norm: ClassVar[bool] = False
    decoupled: ClassVar[bool] = False
    default_rate: ClassVar[float]

    @property
    def name(self) -> str:
        """Name of the file that defines the optimizer."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def matrixwise(self) -> bool:
        """Whether the rule needs each parameter in the shape of its matrix."""
        return not self.elementwise and not self.needs_norm

    @property
    def capturable(self) -> bool:
        """Whether the rule can be recorded as a CUDA graph; a decomposition that synchronises with the host cannot."""
        return True

    def rule(self, steps: Float, rates: Float, decays: Float) -> list[Float | float]:
        """Coefficients of the rule at the given steps (from 1), as columns; the learning rate unless it needs more."""
        return [rates]

    @abstractmethod
    def kernel(self) -> Any:
        """The compiled rule ``update(x, g, first, second, c, norm)``, in place, on one matrix."""

    @abstractmethod
    def torch_update(self, x: Any, g: Any, first: Any, second: Any, c: Any, norm: Any) -> None:
        """Apply the rule in place to a batch: replicates x rows x columns, or replicates x entries.

        ``c`` is a tensor, since its values change between replays of a captured graph; ``norm`` is replicates x 1.
        """

    def coefficients(self, steps: Float, rates: Float, decays: Float) -> Float:
        """Table with one row per step: the decay that is added to the gradient, then the rule's own coefficients."""
        coupled = np.zeros_like(decays) if self.decoupled else decays
        columns = [coupled, *self.rule(steps, rates, decays)]
        return np.stack([np.broadcast_to(np.asarray(column, np.float64), steps.shape) for column in columns], 1)

    def default_schedule(self) -> AbstractSchedule:
        """Schedule of the learning rate when none is given: constant."""
        return Constant()

    def to_dict(self) -> dict[str, Any]:
        """Name and settings as plain data."""
        return _plain(self.name, self)


@dataclass(frozen=True)
class Optimization:
    """An optimizer with its learning rate, weight decay and their schedules over a number of steps."""

    optimizer: AbstractOptimizer
    steps: int
    learning_rate: float
    weight_decay: float
    rate_schedule: AbstractSchedule
    decay_schedule: AbstractSchedule

    def coefficients(self, begin: int, end: int) -> Float:
        """Coefficients of the steps from ``begin`` to ``end``, one row per step."""
        done = np.arange(begin, end, dtype=np.float64)
        rates = self.learning_rate * self.rate_schedule.factors(done, self.steps)
        decays = self.weight_decay * self.decay_schedule.factors(done, self.steps)
        return self.optimizer.coefficients(done + 1.0, rates, decays)

    @property
    def depends_on_steps(self) -> bool:
        """Whether a run of another length makes other first steps: a cosine ends with the run."""
        return not all(isinstance(schedule, Constant | Steps) for schedule in (self.rate_schedule, self.decay_schedule))


def optimizer_names() -> list[str]:
    """Names of the optimizers, found without importing them."""
    return member_names(_PACKAGE)


def optimizer_named(given: str | AbstractOptimizer) -> AbstractOptimizer:
    """An optimizer with its default settings, from its name; settings of one are returned as they are."""
    if isinstance(given, AbstractOptimizer):
        return given
    return member(_PACKAGE, given, AbstractOptimizer, "optimizer")()  # type: ignore[type-abstract]


def check_fraction(optimizer: str, name: str, value: float) -> None:
    """Refuse an averaging weight outside [0, 1)."""
    if not 0.0 <= value < 1.0:
        raise ProblemError(
            f"{name} of {optimizer} must lie in [0, 1); got {value!r}. It is the weight of the past in a running "
            "average: 0 keeps nothing of the past, 0.9 is usual."
        )


def check_positive(optimizer: str, name: str, value: float) -> None:
    """Refuse a setting that must be a positive number."""
    if not value > 0.0 or not np.isfinite(value):
        raise ProblemError(f"{name} of {optimizer} must be a positive number; got {value!r}.")


def _plain(name: str, settings: AbstractSchedule | AbstractOptimizer) -> dict[str, Any]:
    values = dataclasses.asdict(settings)
    return {"name": name, **{key: list(x) if isinstance(x, tuple) else x for key, x in values.items()}}
