"""How models are trained for a report: the presets, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tokengeom.errors import InputError
from tokengeom.training.optimizers.base import Steps

Preset = Literal["small", "paper"]
UFM, TRANSFORMER = "ufm", "transformer"
NAMES = {UFM: "unconstrained features", TRANSFORMER: "transformer"}
"""Models by the name that a reader sees."""

_PARTS, _FACTOR = 6, 0.4
_PAPER = {"dim": 128, "steps": 30_000, "learning_rate": 1e-4, "weight_decay": 1e-6}
_PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "small": {
        UFM: {"dim": 128, "steps": 20_000, "learning_rate": 3e-3, "weight_decay": 1e-6, "precision": "float32"},
        TRANSFORMER: {
            "dim": 128,
            "steps": 800,
            "learning_rate": 3e-3,
            "weight_decay": 1e-6,
            "layers": 2,
            "heads": 4,
        },
    },
    "paper": {UFM: dict(_PAPER), TRANSFORMER: {**_PAPER, "layers": 4, "heads": 6}},
}
SECONDS_A_STEP = {UFM: 5e-4, TRANSFORMER: 7e-2}
"""What a step is expected to take on two cores, for the estimate of the time left."""


@dataclass(frozen=True)
class Recipe:
    """What a report is asked for beside the text.

    ``preset``
        ``small`` ends within minutes on two cores; ``paper`` has the papers' sizes and steps.
    ``steps``, ``dim``
        Of every model, instead of the preset's.
    ``transformer``
        Whether a transformer is trained beside the unconstrained features.
    ``draws``
        Resamples behind each interval and permutations behind each null.
    """

    preset: Preset = "small"
    steps: int | None = None
    dim: int | None = None
    seed: int = 0
    transformer: bool = True
    device: str = "cpu"
    draws: int = 200

    def __post_init__(self) -> None:
        if self.preset not in get_args(Preset):
            raise InputError(f"The preset must be one of {', '.join(get_args(Preset))}; got {self.preset!r}.")
        for name, least in (("steps", _PARTS), ("dim", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"The option {name} must be {least} or more; got {value}.")

    def training(self, model: str) -> dict[str, Any]:
        """Options of `train` for one model: AdamW on the summed loss, the rate falling after each sixth of the run."""
        chosen = dict(_PRESETS[self.preset][model])
        chosen |= {name: value for name in ("steps", "dim") if (value := getattr(self, name)) is not None}
        return {"model": model, "optimizer": "adamw", "reduction": "sum", **chosen, **self._where()}

    def _where(self) -> dict[str, Any]:
        return {"seed": self.seed, "device": self.device}


def rate_schedule(options: Mapping[str, Any]) -> Steps:
    """The papers' schedule, stretched over the run: times 0.4 after each sixth."""
    return Steps(tuple(options["steps"] * i // _PARTS for i in range(1, _PARTS)), _FACTOR)
