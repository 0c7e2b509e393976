"""Trainings and comparisons that stay on one torch device: many runs of a measured study in a few minutes.

`DeviceText` is a text on the device, with its predictions; `first_below` reads a training where its loss gap first
falls below given values.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from tokengeom import NextTokenStatistics, TrainingSettings, predict
from tokengeom.extending import (
    Float,
    InputError,
    LossPath,
    LossSettings,
    Network,
    SilentProgress,
    import_torch,
)
from tokengeom_studies.base import Recipe
from tokengeom_studies.common.model_runs import count_stories
from tokengeom_studies.common.on_device import TextOnDevice
from tokengeom_studies.common.stepped_training import SteppedTraining

TOLERANCES = {"limit": 1e-3, "nuclear": 1e-3, "gamma2": 2e-3}
"""Proven relative gaps of the predictions."""
NEARLY = 1.5
"""Multiple of a loss gap from which on a run is read after every step."""


def save_text(stats: NextTokenStatistics, path: str | Path) -> None:
    """Write counts and contexts to an .npz file, for machines that cannot count a text."""
    if stats.contexts is None or not stats.has_counts:
        raise InputError("Only statistics with counts and the tokens of their contexts can be written as a text.")
    table = sparse.csc_array(stats.table)
    np.savez_compressed(
        path,
        data=table.data,
        indices=table.indices,
        indptr=table.indptr,
        shape=np.array(table.shape),
        contexts=np.asarray(stats.contexts),
    )


def load_text(recipe: Recipe) -> NextTokenStatistics:
    """Statistics of the recipe's ``text``: the built-in stories, or an .npz file that `save_text` wrote."""
    if recipe["text"] == "stories":
        return count_stories(recipe, SilentProgress())
    path = Path(recipe["text"])
    if path.suffix != ".npz" or not path.is_file():
        raise InputError(f"text must be 'stories' or an .npz file of counts; got {recipe['text']!r}.")
    with np.load(path) as file:
        parts = (file["data"], file["indices"], file["indptr"])
        table = sparse.csc_array(parts, shape=tuple(file["shape"]))
        return NextTokenStatistics.from_counts(table, contexts=file["contexts"])


def training_settings(recipe: Recipe, model: str, seed: int, **changes: Any) -> TrainingSettings:
    """AdamW in float32 with the recipe's ``dim``, ``learning_rate``, ``layers`` and ``heads``; changes override."""
    names = {"ufm": (), "transformer": ("layers", "heads")}.get(model, ("layers",))
    known = {name: recipe[name] for name in ("dim", "learning_rate", *names) if name in recipe}
    shared = {"model": model, "optimizer": "adamw", "precision": "float32", "seed": seed}
    return TrainingSettings(**{**shared, **known, **changes})


@dataclass(frozen=True, eq=False)
class Predicted:
    """A prediction at a loss or in the limit.

    where
        W, H           balanced factors, V x r and r x m
        loss_gap       its loss gap, 0 in the limit
        norm_value     its norm, proven to be within ``relative_gap`` of the smallest
    """

    W: Float
    H: Float
    loss_gap: float
    norm_value: float
    relative_gap: float
    rank: int

    def facts(self) -> dict[str, float]:
        """Everything but the factors."""
        return {name: value for name, value in vars(self).items() if name not in ("W", "H")}


class DeviceText(TextOnDevice):
    """A text on a torch device, with its predictions.

    ``cache``
        Folder in which processes on the same text share their predictions; None without one.
    """

    def __init__(self, stats: NextTokenStatistics, device: str = "cpu", cache: Path | None = None) -> None:
        super().__init__(stats, device)
        self.cache = cache
        self._paths: dict[str, LossPath] = {}

    def begin(
        self, settings: TrainingSettings, *, network: Network | None = None, start_scale: float = 1.0
    ) -> SteppedTraining:
        """A training on this text and device, before its first step."""
        return SteppedTraining(self.stats, settings, device=self.device, network=network, start_scale=start_scale)

    def prediction(self, loss_gap: float, norm: str) -> Predicted:
        """The prediction at a loss gap, each solve started from earlier ones of the same norm."""

        def solve() -> Predicted:
            if norm not in self._paths:
                settings = LossSettings(norm=norm, device=self.device, tolerance=TOLERANCES[norm])
                P, pi = self.stats.P, self.stats.pi
                self._paths[norm] = LossPath(P, pi, entropy=self.entropy, settings=settings)
            at = self._paths[norm].at(loss_gap)
            return Predicted(at.W, at.H, at.loss_gap, at.norm_value, at.relative_gap, at.rank)

        return self.kept_prediction(f"{norm}-{loss_gap:g}", solve)

    @cached_property
    def limit(self) -> Predicted:
        """The prediction in the limit of training, L_mm."""

        def solve() -> Predicted:
            limit = predict(self.stats, tolerance=TOLERANCES["limit"], device=self.device, spread_solves=0)
            proof = limit.certificate
            return Predicted(limit.W, limit.H, 0.0, proof.value, 1.0 - proof.bound / proof.value, limit.rank)

        return self.kept_prediction("limit", solve)

    def kept_prediction(self, name: str, solve: Callable[[], Predicted]) -> Predicted:
        """A prediction from the cache, or solved for and kept there."""
        found = self.cached(name, lambda: vars(solve()))
        facts = {key: float(found[key]) for key in ("loss_gap", "norm_value", "relative_gap")}
        return Predicted(found["W"], found["H"], **facts, rank=int(found["rank"]))

    def cached(self, name: str, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Arrays and numbers from the cache, or made and kept there while other processes wait for them."""
        if self.cache is None:
            return make()
        # Locks of files are not there on all systems.
        import fcntl

        self.cache.mkdir(parents=True, exist_ok=True)
        path = self.cache / f"{self.stats.hash[:16]}-{name}.npz"
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                part = path.with_suffix(f".{os.getpid()}.npz")
                np.savez(part, **make())
                part.replace(path)
        with np.load(path) as file:
            return dict(file)


def release(text: HasLossGap) -> None:
    """Give back the memory of trainings that are over: recorded steps on a GPU hold activations until collected."""
    gc.collect()
    if text.device != "cpu":
        import_torch().cuda.empty_cache()


@dataclass(frozen=True, eq=False)
class Reached:
    """A run when its loss gap first fell below a target; W and H are copies."""

    target: float
    loss_gap: float
    step: int
    seconds: float
    W: Any
    H: Any


class HasLossGap(Protocol):
    """A text that says the loss gap of factors on its device."""

    device: str

    def loss_gap(self, W: Any, H: Any) -> float:
        """Loss above its floor, in nats."""


def first_below(
    run: SteppedTraining,
    text: HasLossGap,
    targets: Sequence[float],
    *,
    every: int = 5,
    most_steps: int = 20_000,
    seconds: float = 60.0,
) -> Iterator[Reached]:
    """The run at each target, largest first, until one is not reached in the steps or the time given."""
    began, gap = time.monotonic(), np.inf
    remaining = sorted(targets, reverse=True)
    while remaining and run.step < most_steps and time.monotonic() - began < seconds:
        # Near a target the loss is computed after every step, so that all runs are read at nearly the same loss.
        run.advance(every if gap > NEARLY * remaining[0] else 1)
        W, H = run.factors()
        gap = text.loss_gap(W, H)
        if not np.isfinite(gap):
            return
        while remaining and gap <= remaining[0]:
            yield Reached(remaining.pop(0), gap, run.step, time.monotonic() - began, W.clone(), H.clone())
