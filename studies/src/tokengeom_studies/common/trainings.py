"""The time and memory of a study's trainings, measured before it starts.

A study lists its trainings with their sizes. Each kind of model is trained for a fraction of a second on random
statistics of the same size, at its smallest and its largest; what lies between is interpolated. Training takes nearly
all of the time of a study that lists trainings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengeom import NextTokenStatistics
from tokengeom.extending import Estimate, estimate_training
from tokengeom_studies.base import Recipe

REHEARSAL = 0.4
"""Seconds of training per measurement."""
SUPPORT = 5
"""Next tokens per context of the random statistics; training depends little on their number."""


@dataclass(frozen=True)
class PlannedTraining:
    """Trainings that are alike: model, size of the statistics, steps, and how many of them there are."""

    model: str
    tokens: int
    contexts: int
    dim: int
    steps: int
    count: int = 1
    layers: int | None = None
    heads: int | None = None
    optimizer: str = "adamw"
    device: str = "cpu"
    context: int = 4

    @property
    def size(self) -> float:
        """What the time of a step grows with."""
        return float(self.contexts) * self.dim * (self.tokens if self.layers is None else self.layers)

    def estimate(self) -> Estimate:
        """The time and memory of one of the trainings."""
        rng = np.random.default_rng(0)
        followers = rng.integers(self.tokens, size=(min(SUPPORT, self.tokens - 1), self.contexts))
        counts = np.zeros((self.tokens, self.contexts), np.int64)
        counts[followers, np.arange(self.contexts)] = 1
        stats = NextTokenStatistics.from_counts(
            counts, contexts=rng.integers(self.tokens, size=(self.contexts, self.context))
        )
        embeddings = rng.standard_normal((self.dim, self.contexts)) if self.model == "linear" else None
        return estimate_training(
            stats,
            self.model,
            embeddings=embeddings,
            rehearsal=REHEARSAL,
            dim=self.dim,
            steps=self.steps,
            layers=self.layers,
            heads=self.heads,
            optimizer=self.optimizer,
            device=self.device,
        )


def network_training(recipe: Recipe, model: str = "transformer", count: int = 1, **changes: Any) -> PlannedTraining:
    """A network trained as a recipe says; ``changes`` override it."""
    settings: dict[str, Any] = {name: recipe.get(name) for name in ("dim", "steps", "layers", "device", "context")}
    settings |= changes
    settings["heads"] = min(recipe["heads"], settings["dim"]) if model == "transformer" else None
    return PlannedTraining(model, recipe["vocabulary"], recipe["contexts"], count=count, **settings)


def ufm_training(recipe: Recipe, count: int = 1, **changes: Any) -> PlannedTraining:
    """Unconstrained features trained as a recipe says; ``changes`` override it."""
    settings: dict[str, Any] = {
        "tokens": recipe.get("vocabulary") or recipe.get("V"),
        "contexts": recipe.get("contexts"),
        "dim": recipe.get("dim"),
        "steps": recipe.get("ufm_steps") or recipe.get("steps"),
    }
    return PlannedTraining("ufm", count=count, **{**settings, **changes})


def estimate_trainings(what: str, planned: Sequence[PlannedTraining]) -> Estimate:
    """The sum over all trainings, one part per model."""
    parts = []
    for model in dict.fromkeys(one.model for one in planned):
        alike = sorted((one for one in planned if one.model == model), key=lambda one: one.size)
        low = alike[0].estimate()
        high = low if alike[-1].size == alike[0].size else alike[-1].estimate()
        sizes = [alike[0].size, alike[-1].size]
        per_step = [low.seconds / alike[0].steps, high.seconds / alike[-1].steps]
        seconds = sum(one.count * one.steps * float(np.interp(one.size, sizes, per_step)) for one in alike)
        times = sum(one.count for one in alike)
        title = f"{times} trainings of the model {model}" if times > 1 else f"One training of the model {model}"
        parts.append(Estimate(title, seconds, seconds, high.bytes))
    return Estimate.total(what, parts)
