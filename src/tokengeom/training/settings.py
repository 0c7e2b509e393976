"""Everything that a training run is asked for, checked in one place and storable as plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.models.factored import Init
from tokengeom.training.loop import Pace
from tokengeom.training.optimizers import AbstractOptimizer, optimizer_named
from tokengeom.training.optimizers.base import Constant, Given, schedule_named

Reduction = Literal["mean", "sum"]
FACTORED = ("linear", "ufm")
NETWORKS = ("transformer", "mamba", "xlstm", "lstm", "mlp")
_CHOICES = {
    "model": (*FACTORED, *NETWORKS),
    "init": ("zero", "lecun"),
    "reduction": ("mean", "sum"),
    "precision": ("bfloat16", "float32", "float64"),
}
# Fields that only a network has, with the value that means "not asked for".
_OF_NETWORKS = {
    "layers": None,
    "heads": None,
    "positions": False,
    "tied": False,
    "attention_dropout": 0.0,
    "compiled": False,
}


def _help(text: str) -> dict[str, str]:
    return {"help": text}


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a run; each field's help is its documentation, here and on the command line."""

    model: str = field(
        default="ufm",
        metadata=_help("linear (embeddings given), ufm (both factors trained), or a network: " + ", ".join(NETWORKS)),
    )
    dim: int | None = field(default=None, metadata=_help("embedding dimension d, from 1 up; 128 for a network"))
    layers: int | None = field(default=None, metadata=_help("of a network; None takes the architecture's default"))
    heads: int | None = field(default=None, metadata=_help("of a transformer or xlstm; None takes the default"))
    positions: bool = field(default=False, metadata=_help("rotary positions in a transformer"))
    tied: bool = field(default=False, metadata=_help("W shares the input embeddings of a network"))
    attention_dropout: float = field(default=0.0, metadata=_help("share of attention dropped in a transformer"))
    optimizer: str | AbstractOptimizer | None = field(
        default=None,
        metadata=_help(
            "gd, ngd, adam, adamw, signgd or spectral, or settings of one; None: adamw for networks, else gd"
        ),
    )
    steps: int = field(default=10_000, metadata=_help("number of steps"))
    learning_rate: float | None = field(default=None, metadata=_help("None takes the optimizer's default"))
    weight_decay: float = field(
        default=0.0, metadata=_help("ridge added to the loss; decoupled for adamw and spectral")
    )
    rate_schedule: Given | None = field(
        default=None,
        metadata=_help("constant, cosine, paper, or settings; None: paper for adamw, else constant"),
    )
    decay_schedule: Given = field(default="constant", metadata=_help("the same, for the weight decay"))
    init: Init = field(default="lecun", metadata=_help("zero or lecun: entries N(0, 1/d)"))
    seed: int = field(default=0, metadata=_help("seed of the initialisation and of the sampled windows"))
    batch: int | None = field(
        default=None, metadata=_help("raw windows a step; None takes the exact loss on all distinct contexts")
    )
    reduction: Reduction | None = field(
        default=None,
        metadata=_help("mean over the windows, or sum: times their number; None: sum for networks, else mean"),
    )
    precision: str | None = field(
        default=None,
        metadata=_help(
            "float64, float32, or bfloat16 for a network on a GPU; None: float32 for networks, else float64; "
            "measurements are in float64"
        ),
    )
    device: str = field(default="cpu", metadata=_help("cpu or cuda"))
    compiled: bool = field(
        default=False,
        metadata=_help("compile a network's body first (torch.compile): pays on a GPU beyond some 20,000 steps"),
    )
    learn_embeddings: bool = field(default=False, metadata=_help("train the linear model's embeddings too"))
    records_per_decade: int = field(default=10, metadata=_help("records for each factor of ten in steps"))

    def __post_init__(self) -> None:
        self._fill()
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ProblemError(f"{name} must be {' or '.join(map(repr, known))}; got {getattr(self, name)!r}.")
        _check_whole("steps", self.steps, 0)
        _check_whole("seed", self.seed, 0)
        _check_whole("records_per_decade", self.records_per_decade, 1)
        if self.batch is not None:
            _check_whole("batch", self.batch, 1)
        if self.dim is not None:
            _check_whole("dim", self.dim, 1)
        if self.learning_rate is not None:
            _check_number("learning_rate", self.learning_rate, positive=True)
        _check_number("weight_decay", self.weight_decay, positive=False)
        if self.model != "linear" and self.learn_embeddings:
            raise ProblemError(
                f"learn_embeddings belongs to model 'linear'; model {self.model!r} always learns its embeddings."
            )
        self._check_network()
        optimizer_named(self.optimizer or "gd")

    @property
    def is_network(self) -> bool:
        """Whether the model is a sequence network, and not a pair of matrices."""
        return self.model in NETWORKS

    def _fill(self) -> None:
        """Put the model's defaults where nothing was asked for."""
        network = self.is_network
        filled = {
            "optimizer": "adamw" if network else "gd",
            "reduction": "sum" if network else "mean",
            "precision": "float32" if network else "float64",
            "dim": 128 if network else None,
        }
        for name, value in filled.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def _check_network(self) -> None:
        for name in ("layers", "heads"):
            if getattr(self, name) is not None:
                _check_whole(name, getattr(self, name), 1)
        if not self.is_network:
            asked = [name for name, absent in _OF_NETWORKS.items() if getattr(self, name) != absent]
            if asked:
                raise ProblemError(f"{asked[0]} belongs to a network; model {self.model!r} is a pair of matrices.")
        elif self.init != "lecun":
            raise ProblemError("init belongs to models 'linear' and 'ufm'; a network has its own start. Leave it out.")
        if self.precision == "bfloat16" and not (self.is_network and self.device.startswith("cuda")):
            raise ProblemError(
                f"precision 'bfloat16' is for a network on a GPU; got model {self.model!r} on device {self.device!r}, "
                f"where float32 is faster and more exact."
            )

    def pace(self) -> Pace:
        """Optimizer, rates and schedules, with the defaults filled in."""
        optimizer = optimizer_named(self.optimizer or "gd")
        rate = optimizer.default_rate if self.learning_rate is None else float(self.learning_rate)
        given = self.rate_schedule
        schedule = optimizer.default_schedule() if given is None else schedule_named(given)
        return Pace(optimizer, self.steps, rate, self.weight_decay, schedule, schedule_named(self.decay_schedule))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a manifest, with the defaults filled in."""
        pace = self.pace()
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain["learning_rate"] = pace.learning_rate
        for name in ("optimizer", "rate_schedule", "decay_schedule"):
            parts = getattr(pace, name).to_dict()
            plain[name] = {key: list(x) if isinstance(x, tuple) else x for key, x in parts.items()}
        return plain

    def differs_from(self, stored: dict[str, Any]) -> list[str]:
        """Names of the settings under which a stored run was started differently; more steps are no difference."""
        mine = self.to_dict()
        free = {"steps"} if _independent_of_length(self.pace()) else set()
        return sorted(name for name in mine if name not in free and mine[name] != stored.get(name))


def _independent_of_length(pace: Pace) -> bool:
    return all(s.name in (Constant.name, "steps") for s in (pace.rate_schedule, pace.decay_schedule))


def _check_whole(name: str, value: object, least: int) -> None:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or int(value) < least:  # type: ignore[call-overload]
        raise ProblemError(f"{name} must be a whole number >= {least}; got {value!r}.")


def _check_number(name: str, value: float, *, positive: bool) -> None:
    if not np.isfinite(value) or value < 0 or (positive and value == 0):
        raise ProblemError(f"{name} must be a number {'> 0' if positive else '>= 0'}; got {value!r}.")
