"""The training loop, for every model, optimizer and engine.

The loop decides when to stop, measure, save and report; an engine makes the steps in between, many at a time. At each
record it measures what needs no prediction (`built_in`) and the caller's probes, which are functions of the `State`:
training does not import the theory, so probes that compare with a prediction are defined in ``geometry`` and passed in.
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
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom.core.factors import Factors, FactorsInside
from tokengeom.core.numerics import Arrays, Float, Int
from tokengeom.core.progress import AbstractProgress, AbstractStage, SilentProgress, is_main_process
from tokengeom.core.resources import Estimate
from tokengeom.core.system import Interruption, interrupts
from tokengeom.training.objective import SoftLabels, WindowSampler
from tokengeom.training.optimizers.base import Optimization
from tokengeom.training.run import Checkpoints, Run, Snapshot
from tokengeom.training.trajectory import Trajectory, record_steps

# Seconds that an engine may run before the loop checks Ctrl-C and the clock again.
_PORTION_SECONDS = 0.2
ENOUGH = 2.0
"""Seconds of training after which the rest of it is estimated."""


class AbstractEngine(ABC):
    """Trains one or several replicates (seeds, dimensions) of a model side by side.

    An engine knows nothing of records, checkpoints or time. On a CPU the result is the same to the last bit however the
    steps are divided between calls.
    """

    replicates: int

    @abstractmethod
    def advance(self, table: Float, windows: list[Int] | None) -> None:
        """Make one step per row of the optimizer's coefficients; ``windows[r]`` is steps x batch."""

    @abstractmethod
    def readout(self, replicate: int) -> Factors:
        """W and H of one replicate, in double precision, as copies."""

    def kept(self, replicate: int) -> Arrays:
        """Further weights of one replicate that a run keeps, in double precision, as copies; none by default."""
        return {}

    @abstractmethod
    def state(self) -> Arrays:
        """Everything that the next step depends on."""

    @abstractmethod
    def load(self, state: Arrays) -> None:
        """Restore what `state` returned."""


@dataclass(frozen=True)
class State(FactorsInside):
    """A run at one step, in double precision whatever the precision of training: W, H and the logits L (V x m)."""

    step: int
    factors: Factors
    labels: SoftLabels

    @cached_property
    def L(self) -> Float:
        """Logits ``W H (+ bias)``."""
        return self.factors.logits


Probe = Callable[[State], float | Mapping[str, float]]


def built_in(state: State) -> dict[str, float]:
    """Measurements that need no prediction.

    ``loss_gap``
        ``CE - H`` in nats, > 0; 0 is the entropy floor, which training approaches and never reaches.
    ``norm_W``, ``norm_H``, ``norm_logits``
        Frobenius norms; they grow without bound as the loss approaches its floor.
    ``margin``
        Smallest in-support minus largest off-support logit over all contexts; positive once the logits of every support
        are above the rest, ``inf`` where every support is full.
    """
    return {
        "loss_gap": state.labels.loss_gap(state.L),
        "norm_W": float(np.linalg.norm(state.W)),
        "norm_H": float(np.linalg.norm(state.H)),
        "norm_logits": float(np.linalg.norm(state.L)),
        "margin": float(np.min(state.labels.margins(state.L))),
    }


def measure(state: State, probes: Mapping[str, Probe] | None) -> dict[str, float]:
    """The built-in measurements, then the given probes; a mapping is flattened to ``name.key``."""
    row: dict[str, float] = built_in(state)
    for name, probe in (probes or {}).items():
        value = probe(state)
        if isinstance(value, Mapping):
            row.update({f"{name}.{key}": float(item) for key, item in value.items()})
        else:
            row[name] = float(value)
    return row


OnRecord = Callable[[int, int, dict[str, float]], None]


@dataclass(frozen=True)
class TrainingHooks:
    """What happens around the steps: measuring, reporting and saving.

    where
        probes               name -> function of the `State`, called at each record
        on_record            called with (step, steps, row) at each record
        progress             where a bar with steps, time left and loss gap is shown
        checkpoint           folder of snapshots, one every ``checkpoint_seconds`` and one at the end
        resume               continue from the newest snapshot, where there is one
        loss_gap             end at the first record at which no replicate has a larger loss gap, in nats
    """

    probes: Mapping[str, Probe] | None = None
    on_record: OnRecord | None = None
    progress: AbstractProgress = field(default_factory=SilentProgress)
    checkpoint: str | Path | None = None
    checkpoint_seconds: float = 30.0
    resume: bool = False
    loss_gap: float | None = None

    @property
    def checkpoints(self) -> Checkpoints | None:
        """The snapshots in the checkpoint folder; None where nothing is saved."""
        return None if self.checkpoint is None else Checkpoints(Path(self.checkpoint))


@dataclass
class Pace:
    """Seconds per step and per record of a run, measured on what has been done of it.

    The first portion of steps and the first record are left out: they may compile and load code. Of the portions, only
    the later half counts: a GPU records its steps in the earlier ones.
    """

    enough: float = ENOUGH
    portions: list[tuple[int, float]] = field(default_factory=list)
    records: list[float] = field(default_factory=list)
    measured: float = 0.0

    @property
    def known(self) -> bool:
        """Whether ``enough`` seconds of steps have been measured."""
        return self.measured >= self.enough

    def add_steps(self, count: int, seconds: float) -> None:
        """Add a portion of steps, unless the pace is known already."""
        if not self.known:
            self.measured += seconds if self.portions else 0.0
            self.portions.append((count, seconds))

    def add_record(self, seconds: float) -> None:
        """Add a record, unless the pace is known already."""
        if not self.known:
            self.records.append(seconds)

    def seconds(self, steps: int, records: int) -> float:
        """Expected seconds of so many steps and records."""
        portions = self.portions[1:] or self.portions
        half = sum(seconds for _, seconds in portions) / 2.0
        made, spent = 0, 0.0
        for count, seconds in reversed(portions):
            made, spent = made + count, spent + seconds
            if spent >= half:
                break
        kept = self.records[1:] or self.records
        return steps * spent / max(made, 1) + (records * float(np.mean(kept)) if kept else 0.0)


@dataclass
class Loop:
    """A run in progress; ``settings`` has one dictionary per replicate, ``samplers`` one where windows are sampled.

    ``resumed_at``  Step of the snapshot that the run was resumed from; 0 for a new one.
    ``held``        Bytes that the run is expected to hold at its peak.
    """

    engine: AbstractEngine
    labels: SoftLabels
    optimization: Optimization
    settings: list[dict[str, Any]]
    samplers: list[WindowSampler] | None = None
    batch: int | None = None
    records_per_decade: int = 10
    hooks: TrainingHooks = field(default_factory=TrainingHooks)
    step: int = 0
    seconds: float = 0.0
    status: str = "running"
    trajectories: list[Trajectory] = field(default_factory=list)
    starts: list[Factors | None] = field(default_factory=list)
    resumed_at: int = 0
    held: int = 0
    pace: Pace = field(default_factory=Pace)
    _stop: bool = False
    _was_finished: bool = False
    _announced: bool = False

    def run(self) -> list[Run]:
        """Train to the last step, until Ctrl-C, or until the logits are no longer finite."""
        if not self.trajectories:
            self.trajectories = [Trajectory() for _ in range(self.engine.replicates)]
            self.starts = [self.engine.readout(r) for r in range(self.engine.replicates)]
        with self._interruptible():
            with self.hooks.progress.stage("Training", float(self.optimization.steps)) as stage:
                stage.advance(float(self.step))
                self._train(stage)
            if self.status == "running":
                self.status = "interrupted" if self._stop and self.step < self.optimization.steps else "finished"
            if not self._was_finished:
                self._save()
        if self.status == "interrupted" and Interruption.ends_all:
            raise KeyboardInterrupt
        return self._runs()

    def estimate(self, rehearsal: float = ENOUGH) -> Estimate:
        """The expected time and memory of the run, from its first seconds, which are trained without saving."""
        self.pace = Pace(rehearsal)
        if not self.trajectories:
            self.trajectories = [Trajectory() for _ in range(self.engine.replicates)]
        for target in self._grid().tolist():
            for _ in self._portions(int(target)):
                if self.pace.known:
                    return self._expected()
            if not self._record():
                break
        return self._expected()

    def _grid(self) -> Int:
        """Steps at which to record, from the present one on."""
        grid = record_steps(self.optimization.steps, self.records_per_decade)
        return grid[np.searchsorted(grid, self.step) :]

    def _expected(self) -> Estimate:
        steps, grid = self.optimization.steps, record_steps(self.optimization.steps, self.records_per_decade)
        records = self.engine.replicates * int((grid >= self.resumed_at).sum())
        seconds = self.pace.seconds(steps - self.resumed_at, records)
        size = f"{self.labels.V:,} tokens x {self.labels.m:,} contexts, {steps - self.resumed_at:,} steps"
        return Estimate(f"Training {self.settings[0].get('model', 'a model')} on {size}", seconds, seconds, self.held)

    def _announce(self) -> None:
        """Show the estimate once, as soon as the pace is known."""
        if not self._announced and self.pace.known:
            self._announced = True
            self._expected().announce(self.hooks.progress)

    def _train(self, stage: AbstractStage) -> None:
        """Make the steps between records, and save whenever the interval has passed."""
        saved = time.monotonic()
        for target in self._grid().tolist():
            for made in self._portions(int(target)):
                stage.advance(float(made))
                self._announce()
                if time.monotonic() - saved >= self.hooks.checkpoint_seconds:
                    self._save()
                    saved = time.monotonic()
            if self.step < target or not self._record():
                return
            gaps = [trajectory.last("loss_gap") for trajectory in self.trajectories]
            stage.advance(0.0, f"loss gap {gaps[0]:.3g}")
            if self.hooks.loss_gap is not None and max(gaps) <= self.hooks.loss_gap:
                return

    def resume(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot: parameters, optimizer slots, generators, records and clock."""
        self.engine.load(snapshot.state)
        self.trajectories = [run.trajectory for run in snapshot.runs]
        self.starts = [run.start for run in snapshot.runs]
        self.step, self.seconds = int(snapshot.step), float(snapshot.seconds)
        self.resumed_at = self.step
        # A finished run is not saved again.
        self._was_finished = self.step == self.optimization.steps and snapshot.runs[0].status == "finished"
        for sampler, generator in zip(self.samplers or [], snapshot.generators, strict=True):
            sampler.load(generator)

    def _portions(self, target: int) -> Iterator[int]:
        """Make steps up to ``target`` in portions of a fraction of a second; yields the number of steps of each."""
        size = 1
        while self.step < target and not self._stop:
            count = min(size, target - self.step)
            windows = None if self.samplers is None else [s.draw(count, self.batch or 0) for s in self.samplers]
            table = self.optimization.coefficients(self.step, self.step + count)
            begin = time.perf_counter()
            self.engine.advance(table, windows)
            spent = time.perf_counter() - begin
            self.step += count
            self.seconds += spent
            self.pace.add_steps(count, spent)
            size = int(np.clip(count * _PORTION_SECONDS / max(spent, 1e-6), 1, max(8 * size, 1)))
            yield count

    def _record(self) -> bool:
        """Measure every replicate; False where the logits of one are no longer finite."""
        recorded = len(self.trajectories[-1]) > 0 and self.trajectories[-1].last("step") >= self.step
        if recorded:
            return True
        for r, trajectory in enumerate(self.trajectories):
            began = time.perf_counter()
            state = State(self.step, self.engine.readout(r), self.labels)
            if not np.all(np.isfinite(state.L)):
                self.status = (
                    f"diverged: the logits of replicate {r} are not finite at step {self.step}; lower the learning "
                    f"rate ({self.optimization.learning_rate!r})"
                )
                return False
            row = {"step": float(self.step), "seconds": self.seconds, **measure(state, self.hooks.probes)}
            trajectory.append(row)
            self.pace.add_record(time.perf_counter() - began)
            if self.hooks.on_record:
                self.hooks.on_record(self.step, self.optimization.steps, row)
        return True

    def _runs(self) -> list[Run]:
        runs = []
        for r in range(self.engine.replicates):
            readout = self.engine.readout(r)
            diverged = self.status.startswith("diverged")
            run = Run(
                W=readout.W,
                H=readout.H,
                loss_gap=float("nan") if diverged else self.labels.loss_gap(readout.logits),
                trajectory=self.trajectories[r],
                settings=self.settings[r],
                status=self.status,
                steps=self.step,
                seconds=self.seconds,
                entropy=self.labels.entropy,
                statistics_hash=self.labels.statistics_hash,
                start=self.starts[r],
                weights=self.engine.kept(r),
            )
            runs.append(run)
        return runs

    def _save(self) -> None:
        checkpoints = self.hooks.checkpoints
        if checkpoints is None or not is_main_process():
            return
        generators = [sampler.state() for sampler in self.samplers or []]
        checkpoints.save(
            Snapshot(self.step, self.seconds, self.labels.hash, generators, self._runs(), self.engine.state())
        )

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """A context in which the first Ctrl-C stops between two portions; a second one is handled as usual."""
        # Processes that train together must make the same steps; their launcher stops them all at once.
        if threading.current_thread() is not threading.main_thread() or "WORLD_SIZE" in os.environ:
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        previous = {caught: signal.getsignal(caught) for caught in signals}
        ours = [caught for caught in signals if caught == signal.SIGINT or interrupts(previous[caught])]

        def stop(number: int, frame: Any) -> None:
            earlier = previous[signal.Signals(number)]
            if self._stop and callable(earlier):
                earlier(number, frame)
            self._stop = True

        for caught in ours:
            signal.signal(caught, stop)
        try:
            yield
        finally:
            for caught in ours:
                signal.signal(caught, previous[caught])
