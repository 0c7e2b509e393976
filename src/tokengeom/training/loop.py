"""What the loop asks of an engine: make steps, show W and H, hand over its whole state and take it back.

What is measured at a record: the built-in numbers, and whatever the caller hands in.

Training knows no theory. A probe is a function of the :class:`State`; those that compare with a prediction are
built where both sides meet, and handed to the loop.

The one training loop, for every model, optimizer and engine.

It decides when to stop, measure, save and report; an engine makes the steps in between, many at a time.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tokengeom.factors import Factors
from tokengeom.numerics import Arrays, Float, Int
from tokengeom.progress import AbstractProgress, AbstractStage, SilentProgress, speaks
from tokengeom.training.objective import SoftLabels, WindowSampler
from tokengeom.training.optimizers.base import AbstractOptimizer, AbstractSchedule
from tokengeom.training.run import Checkpoints, Run, Stored, Trajectory, record_steps, snapshot


class AbstractEngine(ABC):
    """Runs one or several replicates (seeds, dimensions) of a model side by side.

    An engine knows nothing of records, checkpoints or time. Steps may be asked for in any portions: the result is
    the same to the last bit on a CPU.
    """

    replicates: int

    @abstractmethod
    def advance(self, table: Float, windows: list[Int] | None) -> None:
        """Make one step for each row of the optimizer's coefficients; ``windows[r]`` is steps x batch."""

    @abstractmethod
    def readout(self, replicate: int) -> Factors:
        """W and H of one replicate, in double precision, as copies."""

    @abstractmethod
    def state(self) -> Arrays:
        """Everything that the next step depends on."""

    @abstractmethod
    def load(self, state: Arrays) -> None:
        """Take back what :meth:`state` handed over."""


@dataclass(frozen=True)
class State:
    """A run at one step, in double precision whatever it was trained in.

    where
        W   V x d
        H   d x m
        L   logits ``W H (+ bias)``, V x m
    """

    step: int
    readout: Factors
    labels: SoftLabels

    @property
    def W(self) -> Float:
        """Decoder."""
        return self.readout.W

    @property
    def H(self) -> Float:
        """Context embeddings."""
        return self.readout.H

    @cached_property
    def L(self) -> Float:
        """Logits."""
        return self.readout.logits


Probe = Callable[[State], float | Mapping[str, float]]


def built_in(state: State) -> dict[str, float]:
    """Measure what needs no prediction.

    ``loss_gap``
        ``CE - H`` in nats, > 0; 0 is the entropy floor, approached and never reached.
    ``norm_W``, ``norm_H``, ``norm_logits``
        Frobenius norms; they grow without bound as the loss approaches its floor.
    ``margin``
        Smallest in-support minus largest off-support logit, over all contexts; positive once every context's
        support stands above the rest, ``inf`` when every support is full.
    """
    return {
        "loss_gap": state.labels.loss_gap(state.L),
        "norm_W": float(np.linalg.norm(state.W)),
        "norm_H": float(np.linalg.norm(state.H)),
        "norm_logits": float(np.linalg.norm(state.L)),
        "margin": float(np.min(state.labels.margins(state.L))),
    }


def measure(state: State, probes: Mapping[str, Probe] | None) -> dict[str, float]:
    """Apply the built-in measurements, then the given probes; a mapping is flattened as ``name.key``."""
    row: dict[str, float] = built_in(state)
    for name, probe in (probes or {}).items():
        value = probe(state)
        if isinstance(value, Mapping):
            row.update({f"{name}.{key}": float(item) for key, item in value.items()})
        else:
            row[name] = float(value)
    return row


# Seconds that an engine may run before the loop looks at Ctrl-C and the clock again.
_PORTION_SECONDS = 0.2


@dataclass(frozen=True)
class Pace:
    """Steps to make and the coefficients of each: optimizer, learning rate and weight decay with their schedules."""

    optimizer: AbstractOptimizer
    steps: int
    learning_rate: float
    weight_decay: float
    rate_schedule: AbstractSchedule
    decay_schedule: AbstractSchedule

    def table(self, begin: int, end: int) -> Any:
        """Coefficients of the steps from ``begin`` to ``end``, one row each."""
        done = np.arange(begin, end, dtype=np.float64)
        rates = self.learning_rate * self.rate_schedule.factors(done, self.steps)
        decays = self.weight_decay * self.decay_schedule.factors(done, self.steps)
        return self.optimizer.coefficients(done + 1.0, rates, decays)


OnRecord = Callable[[int, int, dict[str, float]], None]


@dataclass
class Loop:
    """A run in progress; ``settings`` holds one dictionary a replicate."""

    engine: AbstractEngine
    labels: SoftLabels
    pace: Pace
    settings: list[dict[str, Any]]
    samplers: list[WindowSampler] | None = None
    batch: int | None = None
    probes: Mapping[str, Probe] | None = None
    per_decade: int = 10
    on_record: OnRecord | None = None
    progress: AbstractProgress = field(default_factory=SilentProgress)
    checkpoints: Checkpoints | None = None
    interval: float = 30.0
    step: int = 0
    seconds: float = 0.0
    status: str = "running"
    trajectories: list[Trajectory] = field(default_factory=list)
    _stop: bool = False

    def run(self) -> list[Run]:
        """Train to the last step, or to Ctrl-C, or until a number is no longer finite."""
        if not self.trajectories:
            self.trajectories = [Trajectory() for _ in range(self.engine.replicates)]
        with self._interruptible(), self.progress.stage("training", float(self.pace.steps)) as stage:
            stage.advance(float(self.step))
            self._go(stage)
        self.status = self.status if self.status != "running" else "interrupted" if self._stop else "finished"
        if self.checkpoints:
            self._save()
        return self._runs()

    def _go(self, stage: AbstractStage) -> None:
        """Make the steps between records, saving whenever the interval has passed."""
        grid = record_steps(self.pace.steps, self.per_decade)
        saved = time.monotonic()
        for target in grid[np.searchsorted(grid, self.step) :].tolist():
            for made in self._portions(int(target)):
                stage.advance(float(made))
                if self.checkpoints and time.monotonic() - saved >= self.interval:
                    self._save()
                    saved = time.monotonic()
            if self._stop or not self._record():
                return
            stage.advance(0.0, f"CE - H = {self.trajectories[0].last('loss_gap'):.3g}")

    def resume(self, stored: Stored) -> None:
        """Go on from a snapshot: parameters, optimizer slots, generators, records and clock."""
        state = {name[6:]: array for name, array in stored.arrays.items() if name.startswith("state.")}
        self.engine.load(state)
        self.trajectories = stored.trajectories
        self.step, self.seconds = int(stored.manifest["step"]), float(stored.manifest["seconds"])
        for sampler, generator in zip(self.samplers or [], stored.manifest["generators"], strict=True):
            sampler.load(generator)

    def _portions(self, target: int) -> Iterator[int]:
        """Make steps up to ``target`` in portions of a fraction of a second; yields the size of each."""
        size = 1
        while self.step < target and not self._stop:
            count = min(size, target - self.step)
            windows = None if self.samplers is None else [s.draw(count, self.batch or 0) for s in self.samplers]
            table = self.pace.table(self.step, self.step + count)
            begin = time.perf_counter()
            self.engine.advance(table, windows)
            spent = time.perf_counter() - begin
            self.step += count
            self.seconds += spent
            size = int(np.clip(count * _PORTION_SECONDS / max(spent, 1e-6), 1, max(8 * size, 1)))
            yield count

    def _record(self) -> bool:
        """Measure every replicate; False when one has left the finite numbers."""
        recorded = len(self.trajectories[-1]) > 0 and self.trajectories[-1].last("step") >= self.step
        if recorded:
            return True
        for r, trajectory in enumerate(self.trajectories):
            state = State(self.step, self.engine.readout(r), self.labels)
            if not np.all(np.isfinite(state.L)):
                self.status = (
                    f"diverged: the logits of replicate {r} are not finite at step {self.step}; lower the learning "
                    f"rate ({self.pace.learning_rate!r})"
                )
                return False
            row = {"step": float(self.step), "seconds": self.seconds, **measure(state, self.probes)}
            trajectory.append(row)
            if self.on_record:
                self.on_record(self.step, self.pace.steps, row)
        return True

    def _runs(self) -> list[Run]:
        runs = []
        for r in range(self.engine.replicates):
            readout = self.engine.readout(r)
            gap = self.labels.loss_gap(readout.logits) if self.status[:8] != "diverged" else float("nan")
            rest = (self.trajectories[r], self.settings[r], self.status, self.step, self.seconds)
            runs.append(Run(readout.W, readout.H, gap, *rest, self.labels.entropy))
        return runs

    def _save(self) -> None:
        assert self.checkpoints is not None
        if not speaks():
            return
        extra = {
            "step": self.step,
            "seconds": self.seconds,
            "data": self.labels.digest,
            "generators": [sampler.state() for sampler in self.samplers or []],
        }
        self.checkpoints.save(self.step, snapshot(self._runs(), self.engine.state(), extra))

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Turn the first Ctrl-C into a stop between two portions; a second one is the user's last word."""
        # Processes that train together must make the same steps: a launcher ends them all at once.
        if threading.current_thread() is not threading.main_thread() or "WORLD_SIZE" in os.environ:
            yield
            return
        previous = signal.getsignal(signal.SIGINT)

        def stop(number: int, frame: Any) -> None:
            if self._stop and callable(previous):
                previous(number, frame)
            self._stop = True

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)
