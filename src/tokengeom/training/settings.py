"""`TrainingSettings`: the settings of `train`, with their defaults, documentation and checks."""

# ruff: noqa: RUF009  fields are made by `option`, which `_of_model` and `_of_training` are with a panel
from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from tokengeom.core.errors import ProblemError
from tokengeom.core.settings import member_names, nearest_hint, option, options_of
from tokengeom.models.factored import FACTORED, Init
from tokengeom.models.networks.base import architecture_named
from tokengeom.models.networks.tied import TIES
from tokengeom.training.optimizers.base import (
    AbstractOptimizer,
    Optimization,
    ScheduleLike,
    optimizer_named,
    optimizer_names,
    parse_schedule,
    schedule_named,
)

Reduction = Literal["mean", "sum"]
Precision = Literal["bfloat16", "float32", "float64"]
MODEL, TRAINING = "Model", "Training"
_of_model, _of_training = partial(option, panel=MODEL), partial(option, panel=TRAINING)
DEFAULT_DIM = 128
"""Embedding dimension of the papers' experiments."""


def model_names() -> list[str]:
    """Names of all models, found without importing the networks."""
    return [*FACTORED, *member_names("tokengeom.models.networks")]


def model_options(model: str) -> tuple[str, ...]:
    """Names of the settings under the heading "Model" that a model has, as its class lists them."""
    return FACTORED[model].options if model in FACTORED else architecture_named(model).options


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a run. Where None means a default of the model or the optimizer, that default is filled in."""

    model: str = _of_model(
        "ufm",
        "Model to train: linear (W on given embeddings), ufm (W and H both free), tied (contexts share features), or a "
        "network.",
        choices=model_names,
    )
    dim: int | None = _of_model(
        None, f"Embedding dimension d. By default {DEFAULT_DIM}, and that of the embeddings for the linear model."
    )
    layers: int | None = _of_model(None, "Layers of a network. By default those of its architecture.")
    heads: int | None = _of_model(None, "Heads of a network that has them. By default those of its architecture.")
    positions: bool = _of_model(False, "Use rotary positions in a network with attention.")
    tied: bool = _of_model(False, "Use the input embeddings of a network as its W.")
    attention_dropout: float = _of_model(0.0, "Dropout rate of the attention weights, in a network with attention.")
    ties: str | None = _of_model(
        None,
        "What contexts share in the model tied: a sum of positions, pairs, suffixes and self, weighted as in "
        f"'3*positions+self', or kernel, what an MLP at its start does. By default {TIES}.",
    )
    last_norm: bool = _of_model(False, "Divide states of the model tied by their root mean square.")
    head_start: float = _of_model(1.0, "Start of W in the model tied: entries N(0, head_start^2 / d).")
    feature_start: float = _of_model(1.0, "Start of the features of the model tied: entries N(0, feature_start^2 / d).")
    learn_embeddings: bool = _of_model(False, "Train the embeddings of the linear model too.")
    init: Init = _of_model(
        "lecun",
        "Start of the linear model and the ufm: zero, or lecun with entries N(0, 1/d). The ufm cannot start at zero.",
        choices=lambda: get_args(Init),
    )
    compiled: bool = _of_model(
        False, "Compile a network with torch.compile, which pays off on a GPU beyond some 20,000 steps."
    )
    optimizer: str | AbstractOptimizer | None = _of_training(
        None, "Optimizer. By default gd for the linear model and adamw for all others.", choices=optimizer_names
    )
    steps: int = _of_training(10_000, "Number of steps.")
    learning_rate: float | None = _of_training(None, "Learning rate. By default that of the optimizer.")
    weight_decay: float = _of_training(
        0.0, "Weight decay: decoupled in adamw and spectral, a ridge added to the loss in the others."
    )
    rate_schedule: ScheduleLike | None = _of_training(
        None,
        "Schedule of the learning rate: constant, cosine, paper (times 0.4 at 5k, 10k, ... 25k steps), or a table such "
        "as '{name=\"steps\", milestones=[100], factor=0.1}'. By default paper for adamw and constant for the others.",
        parse=parse_schedule,
    )
    decay_schedule: ScheduleLike = _of_training(
        "constant", "Schedule of the weight decay, given like that of the learning rate.", parse=parse_schedule
    )
    reduction: Reduction | None = _of_training(
        None,
        "Loss to minimise: the mean over the windows, or their sum. By default sum for adamw, as in the papers, and "
        "mean for the others.",
        choices=lambda: get_args(Reduction),
    )
    batch: int | None = _of_training(
        None, "Sampled windows per step. By default the exact loss on all distinct contexts."
    )
    seed: int = _of_training(0, "Seed of the initialisation and of the sampled windows.")
    precision: Precision | None = _of_training(
        None,
        "Precision of training; measurements are in float64. By default float32 for networks and float64 for the "
        "others; bfloat16 is for a network on a GPU.",
        choices=lambda: get_args(Precision),
    )
    device: str = _of_training("cpu", "Device: cpu, cuda, or one of several such as cuda:1.")
    records_per_decade: int = _of_training(10, "Records of the trajectory per factor of ten in the number of steps.")

    def __post_init__(self) -> None:
        self._check_choices()
        self._fill()
        self._check_model()
        for name, least in (("steps", 0), ("seed", 0), ("records_per_decade", 1)):
            _check_whole(name, getattr(self, name), least)
        _check_number("head_start", self.head_start, positive=False)
        _check_number("feature_start", self.feature_start, positive=True)
        for name in ("dim", "layers", "heads", "batch"):
            if getattr(self, name) is not None:
                _check_whole(name, getattr(self, name), 1)
        if self.learning_rate is not None:
            _check_number("learning_rate", self.learning_rate, positive=True)
        _check_number("weight_decay", self.weight_decay, positive=False)
        self.optimization()

    @property
    def is_network(self) -> bool:
        """Whether the model is a network, rather than a pair of matrices."""
        return self.model not in FACTORED

    def optimization(self) -> Optimization:
        """Optimizer, rates and schedules, with the optimizer's defaults filled in."""
        optimizer = self._optimizer()
        rate = optimizer.default_rate if self.learning_rate is None else float(self.learning_rate)
        given = self.rate_schedule
        schedule = optimizer.default_schedule() if given is None else schedule_named(given)
        decay_schedule = schedule_named(self.decay_schedule)
        return Optimization(optimizer, self.steps, rate, self.weight_decay, schedule, decay_schedule)

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain data, with the defaults filled in."""
        filled = self.optimization()
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain["learning_rate"] = filled.learning_rate
        for name in ("optimizer", "rate_schedule", "decay_schedule"):
            plain[name] = getattr(filled, name).to_dict()
        return plain

    def differs_from(self, stored: dict[str, Any]) -> list[str]:
        """Names of settings that differ from those of a stored run; ``steps`` only where the schedules depend on it."""
        mine = self.to_dict()
        if not self.optimization().depends_on_steps:
            del mine["steps"]
        # A setting that the run does not have is newer than the run, which was made with its default.
        defaults = {name: field.default for name, field in options_of(type(self)).items()}
        return sorted(name for name, value in mine.items() if value != stored.get(name, defaults[name]))

    def _check_choices(self) -> None:
        for name, field in options_of(type(self)).items():
            value, choices = getattr(self, name), field.metadata["choices"]
            if choices is None or value is None or isinstance(value, AbstractOptimizer):
                continue
            known = list(choices())
            if value not in known:
                hint = nearest_hint(str(value), known)
                raise ProblemError(f"{name} must be one of {', '.join(known)}; got {value!r}.{hint}")

    def _fill(self) -> None:
        """Replace None by the default of the model and the optimizer."""
        self._default("optimizer", "gd" if self.model == "linear" else "adamw")
        self._default("reduction", "sum" if self._optimizer().name == "adamw" else "mean")
        self._default("precision", "float32" if self.is_network else "float64")
        self._default("dim", None if self.model == "linear" else DEFAULT_DIM)
        self._default("ties", TIES if self.model == "tied" else None)

    def _optimizer(self) -> AbstractOptimizer:
        assert self.optimizer is not None, "filled in when the settings are made"
        return optimizer_named(self.optimizer)

    def _default(self, name: str, value: object) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def _check_model(self) -> None:
        """Refuse settings that the model does not have, and a precision that it cannot be trained in."""
        known = model_options(self.model)
        for name, field in options_of(type(self)).items():
            of_some_models = field.metadata["panel"] == MODEL and name not in ("model", "dim")
            if of_some_models and name not in known and getattr(self, name) != field.default:
                raise ProblemError(
                    f"{name} is not a setting of model {self.model!r}, which has {', '.join(known)}. Leave it out."
                )
        if self.precision == "bfloat16" and not (self.is_network and self.device.startswith("cuda")):
            raise ProblemError(
                f"precision 'bfloat16' is for a network on a GPU; got model {self.model!r} on device {self.device!r}, "
                "where float32 is faster and more accurate."
            )


_MOST = 1 << 63
"""Whole numbers below this fit into an array."""


def _check_whole(name: str, value: object, least: int) -> None:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not least <= int(value) < _MOST:  # type: ignore[call-overload]
        below = " and below 2**63" if whole and int(value) > least else ""  # type: ignore[call-overload]
        raise ProblemError(f"{name} must be a whole number >= {least}{below}; got {value!r}.")


def _check_number(name: str, value: object, *, positive: bool) -> None:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf or (positive and value == 0):  # type: ignore[operator]
        raise ProblemError(f"{name} must be a number {'> 0' if positive else '>= 0'}; got {value!r}.")
