"""The verb `simulate`: the geometry that a training is expected to have, from the simplest model that reads contexts.

Tied features are trained as a network was: with its optimizer, rates and schedules, its width, the start of its head,
and a last norm where it has one, until their loss is that of the network. One such training is as random as the network
itself, so the result is the mean over replicates. Nothing in it is fitted to the network's geometry.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import Arrays, Float, blas_threads_for
from tokengeom.core.progress import AbstractProgress, AbstractStage, SilentProgress
from tokengeom.core.resources import SAFETY, Estimate, fewer_contexts, free_memory, require_memory
from tokengeom.core.settings import make, option, takes
from tokengeom.models.factored import FACTORED
from tokengeom.models.networks.tied import TIES
from tokengeom.results.registry import load
from tokengeom.statistics.context_features import KERNEL, OWN, ContextFeatures
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.training.gradient_flow import flow_bytes, flow_to
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.base import AbstractOptimizer, optimizer_named, optimizer_names
from tokengeom.training.run import Run
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.simulation import FLOW, Simulation
from tokengeom.training.tied_replicates import TiedReplicates, replicate_bytes
from tokengeom.training.trajectory import record_steps

if TYPE_CHECKING:
    from tokengeom.keywords import SimulateKeywords

FIRST_SEED = 30_000
"""Seed of the first replicate, another one than those of common runs."""
RECORDS_PER_DECADE = 80
"""A training is looked at after each 3% of its steps, so the loss gap at which it ends is as near to the wanted one."""
MOST_STEPS, LONGER = 20_000, 10
"""Steps of a replicate at most: without a run, and as a multiple of the run's steps."""
SURE, UNSURE = 1.3, 2.0
"""Factors around an estimated time, where the number of steps was seen in the rehearsal and where it was not."""
REHEARSAL = 5.0
"""Seconds of a replicate from which its time is estimated."""
LONGEST = 4
"""Rehearsal at most, as a multiple of these, where the loss gap has not yet fallen to a third."""
FEWEST_RECORDS = 12
"""Records that a rehearsal makes at least."""
SLOWEST = 0.05
"""Power of the steps with which the loss gap falls at least; where it falls more slowly, no end is in sight."""
OVERRIDING = ("dim", "optimizer", "learning_rate", "head_start", "feature_start", "last_norm", "steps")
"""Settings of `train` that take the place of the run's."""
COPIED = (*OVERRIDING[:5], "weight_decay", "rate_schedule", "decay_schedule", "reduction", "batch")
"""Settings that are read from the run; its last norm follows from its model."""
RUN = " By default that of the run."


@dataclass(frozen=True)
class SimulationSettings:
    """Settings of `simulate`. None means that of the run which it is like, or without a run the default of `train`."""

    ties: str | ContextFeatures = option(
        TIES,
        "What contexts share: a sum of positions, pairs, suffixes and self, weighted as in '3*positions+self', or "
        "kernel, what an MLP at its start does.",
    )
    replicates: int = option(8, "Number of trainings with different starts, whose cosines are averaged.")
    loss_gap: float | None = option(None, f"Loss above the entropy floor at which trainings end, in nats.{RUN}")
    optimizer: str | AbstractOptimizer | None = option(
        None,
        f"Optimizer, or {FLOW}: the limit of wide models and small steps, which has no replicates.{RUN}",
        choices=lambda: [*optimizer_names(), FLOW],
    )
    learning_rate: float | None = option(None, f"Learning rate.{RUN}")
    dim: int | None = option(None, f"Dimension d.{RUN}")
    last_norm: bool | None = option(
        None, "Divide states by their root mean square. By default as the run does: networks do, ufm does not."
    )
    head_start: float | None = option(None, f"Start of W: entries N(0, head_start^2 / d).{RUN}")
    feature_start: float | None = option(None, "Start of the features: entries N(0, feature_start^2 / d).")
    steps: int | None = option(
        None, f"Steps of a training at most. By default {LONGER} times those of the run, or {MOST_STEPS:,}."
    )
    seed: int = option(0, "Seed of the starts.")
    device: str = option("cpu", "Device: cpu, cuda, or one of several such as cuda:1.")

    def __post_init__(self) -> None:
        if self.replicates < 1 or (self.optimizer == FLOW and self.last_norm):
            raise ProblemError(
                f"replicates must be at least 1, and {FLOW} has no last norm; got replicates={self.replicates}, "
                f"last_norm={self.last_norm}."
            )


@takes(SimulationSettings)
def simulate(
    stats: NextTokenStatistics | str | Path,
    like: Run | str | Path | None = None,
    *,
    progress: AbstractProgress | None = None,
    **settings: Unpack[SimulateKeywords],
) -> Simulation:
    """The expected geometry of tied features, trained as a run was or as the settings say.

    For example ``tg.simulate(stats, like=run)``, or ``tg.simulate(stats, optimizer="gd", loss_gap=0.1)``. ``ties``
    may be `ContextFeatures`, such as ``tg.kernel_features(stats, like=run)``; of these, other contexts have no place.

    Parameters
    ----------
    stats
        Next-token statistics with the tokens of contexts, or the folder of saved ones.
    like
        A run on these statistics, or its folder: optimizer, rates, width, start of W, last norm and loss are its own.
    progress
        Where replicates and their losses are shown.
    """
    chosen, given = make(SimulationSettings, settings, "simulate"), statistics_of(stats, "simulate")
    how, gap = _plan(given, _run(like, given), chosen)
    return simulated(given, how, gap, chosen.replicates, progress, _own(given, chosen))


@takes(SimulationSettings)
def estimate_simulation(
    stats: NextTokenStatistics | str | Path,
    like: Run | str | Path | None = None,
    *,
    rehearsal: float = REHEARSAL,
    **settings: Unpack[SimulateKeywords],
) -> Estimate:
    """The time and memory that `simulate` is expected to take, from ``rehearsal`` seconds of the first replicate.

    Where it has not come to the loss gap by then, its steps are extrapolated from how the loss falls, and the time is a
    range. Parameters are those of `simulate`.
    """
    chosen, given = make(SimulationSettings, settings, "estimate_simulation"), statistics_of(stats, "simulate")
    how, gap = _plan(given, _run(like, given), chosen)
    own = _own(given, chosen)
    with blas_threads_for(given.V, given.m), SilentProgress().stage("", None) as silent:
        if chosen.optimizer == FLOW:
            begun = _flow_beginning(given, how, gap, own)
            with suppress(_EnoughSeen):
                _flow(given, how, gap, lambda step, loss_gap: begun.add_until_enough(step, loss_gap, rehearsal), own)
            return begun.expected()
        training = TrainingSettings(**how)
        together = _at_a_time(given, training, chosen.replicates, own)
        begun = _Beginning.of_replicates(given, training, gap, chosen.replicates, together, own)
        trained = TiedReplicates(given, _seeds(training, together), own)
        for gaps in _records(trained, gap, silent):
            begun.add(trained.step, float(gaps.max()))
            if begun.is_enough(rehearsal):
                break
    return begun.expected()


class _EnoughSeen(Exception):  # noqa: N818 - not an error
    """A rehearsal ends."""


class _Beginning:
    """Steps, loss gaps and times at the beginning of the first of ``batches``: how long all of them take.

    ``what``, ``most``, ``held``
        What is done, the most steps of a batch, and the bytes that it holds.
    """

    def __init__(self, what: str, gap: float, most: int, held: int, batches: int = 1) -> None:
        self.what, self.gap, self.most, self.held, self.batches = what, gap, most, held, batches
        self.seen, self.times, self.began = list[tuple[int, float]](), list[float](), time.monotonic()

    @staticmethod
    def of_replicates(
        stats: NextTokenStatistics,
        chosen: TrainingSettings,
        gap: float,
        replicates: int,
        together: int,
        own: ContextFeatures | None,
    ) -> _Beginning:
        """The beginning of replicates, of which so many are trained together."""
        what, batches = f"Simulating {replicates} replicates on {_size(stats)}", math.ceil(replicates / together)
        return _Beginning(what, gap, chosen.steps, together * _bytes_each(stats, chosen, own), batches)

    def add(self, step: int, gap: float) -> None:
        """A record."""
        self.seen.append((step, gap))
        self.times.append(time.monotonic())

    def add_until_enough(self, step: int, gap: float, seconds: float) -> None:
        """A record, after which the rehearsal may end."""
        self.add(step, gap)
        if self.is_enough(seconds):
            raise _EnoughSeen

    def is_enough(self, seconds: float) -> bool:
        """Whether the batch has ended, or has trained for so many seconds, or for longer where its loss hardly fell."""
        gap = self.seen[-1][1]
        enough = seconds if gap < self.seen[0][1] / 3 else LONGEST * seconds
        return gap <= self.gap or (self.times[-1] - self.began > enough and len(self.seen) >= FEWEST_RECORDS)

    def expected(self) -> Estimate:
        """The time and memory of all batches."""
        seen, times, most = self.seen, self.times, self.most
        # The first steps may compile and load code.
        first = max(min(len(seen) // 3, len(seen) - 2), 0)
        pace = (times[-1] - times[first]) / max(seen[-1][0] - seen[first][0], 1)
        known = seen[-1][1] <= self.gap or seen[-1][0] >= most
        seconds = self.batches * pace * min(steps_to(self.gap, seen), float(most))
        spread = SURE if known else UNSURE
        return Estimate(self.what, seconds / spread, seconds * spread, self.held)


def _size(stats: NextTokenStatistics) -> str:
    return f"{stats.V:,} tokens x {stats.m:,} contexts"


def steps_to(gap: float, seen: Sequence[tuple[int, float]]) -> float:
    """Steps to a loss gap, from records of steps and gaps; beyond the last, gaps fall as a power of the steps."""
    step, last = seen[-1]
    if last <= gap:
        return float(step)
    # At first the loss falls faster and faster: earlier records would make the end look far away.
    recent = [record for record in seen if 1.5 * record[0] >= step]
    later = np.log([(s, g) for s, g in (recent if len(recent) > 1 else seen[-2:]) if s > 0 and g > 0])
    slope = float(np.polyfit(later[:, 0], later[:, 1], 1)[0]) if len(later) > 1 else 0.0
    return float(step * (last / gap) ** (1.0 / -slope)) if slope < -SLOWEST else math.inf


def _plan(stats: NextTokenStatistics, run: Run | None, given: SimulationSettings) -> tuple[dict[str, Any], float]:
    """Keywords of `train`, from the run and the settings that override it; and the loss gap."""
    gap = run.loss_gap if given.loss_gap is None and run is not None else given.loss_gap
    largest = float(np.log(stats.V)) - stats.entropy
    if gap is None or not 0 < gap < largest:
        raise ProblemError(
            f"A simulation ends at a loss gap between 0 and that of a uniform guess, {largest:.3g} nats; got {gap}. "
            "Give loss_gap, or a run that has learned something (like=run)."
        )
    how = {"steps": MOST_STEPS} if run is None else settings_of(run)
    how |= {name: getattr(given, name) for name in OVERRIDING if getattr(given, name) is not None}
    named = given.ties if isinstance(given.ties, str) else given.ties.ties
    ties, layers = named, None if run is None else run.settings.get("layers")
    model = None if run is None else run.settings.get("model")
    if KERNEL in ties and model not in (None, "mlp", "tied", *FACTORED):
        raise InputError(
            f"ties={KERNEL!r} is what an MLP does at its start, and the run is a {model}. Leave out ties for {TIES}; "
            "what this network does at its start is ties=tg.kernel_features(stats, like=run)."
        )
    if ties == KERNEL and layers is not None and model == "mlp":
        ties = f"{KERNEL}:{layers}"
    how |= {"model": "tied", "ties": ties, "seed": FIRST_SEED + given.seed, "device": given.device}
    return how, float(gap)


def _own(stats: NextTokenStatistics, given: SimulationSettings) -> ContextFeatures | None:
    """Features that were given as a matrix; None where ties have a name, from which they are made."""
    ties = given.ties
    if isinstance(ties, str):
        return None
    if ties.m != stats.m:
        raise InputError(f"ties must be features of these {stats.m:,} contexts; got {ties!r}.")
    return ties if ties.ties == OWN else None


def _run(given: Run | str | Path | None, stats: NextTokenStatistics) -> Run | None:
    run = load(given) if isinstance(given, str | Path) else given
    if run is None:
        return None
    if not isinstance(run, Run) or run.diverged or run.settings.get("model") == "linear":
        raise InputError(f"like must be a run, not of the linear model, and not one that diverged; got {run!r}.")
    if run.statistics_hash not in (None, stats.hash):
        raise ProblemError("The run and the statistics differ: give the statistics that the run was trained on.")
    return run


def settings_of(run: Run) -> dict[str, Any]:
    """Keywords of `train` for a tied model that is trained as the run was, with as many steps as may be needed."""
    settings: Mapping[str, Any] = run.settings
    known = {name: settings[name] for name in COPIED if settings.get(name) is not None}
    if isinstance(known.get("optimizer"), dict):
        own = dict(known["optimizer"])
        kind = type(optimizer_named(own.pop("name")))
        known["optimizer"] = kind(**{name: tuple(x) if isinstance(x, list) else x for name, x in own.items()})
    steps, model = max(int(settings.get("steps", run.steps)), 1), settings.get("model")
    # A schedule that ends with the run leaves no steps to go on with.
    ends = TrainingSettings(**{**known, "model": "tied", "steps": steps}).optimization().depends_on_steps
    last_norm = bool(settings.get("last_norm")) if model == "tied" else model not in FACTORED
    return known | {"last_norm": last_norm, "steps": steps if ends else LONGER * steps}


def simulated(
    stats: NextTokenStatistics,
    how: Mapping[str, Any],
    gap: float | None,
    replicates: int,
    progress: AbstractProgress | None = None,
    own: ContextFeatures | None = None,
) -> Simulation:
    """Replicates of a training of the tied model to a loss gap, or to their last step; or its gradient flow.

    ``how`` are keywords of `train`, of which the optimizer may be `FLOW`; ``own`` features take the place of its ties.
    """
    if stats.contexts is None:
        raise ProblemError("A simulation reads the tokens of contexts, and these statistics have none.")
    began, shown, is_flow = time.monotonic(), progress or SilentProgress(), how.get("optimizer") == FLOW
    with blas_threads_for(stats.V, stats.m):
        if is_flow:
            assert gap is not None, "gradient flow has no last step"
            with shown.stage("Simulating", None) as stage:
                parts = _flow(stats, how, gap, lambda _, reached: stage.advance(0.0, f"loss gap {reached:.3g}"), own)
        else:
            parts = _train(stats, TrainingSettings(**how), gap, replicates, shown, own)
        known = {"ties": how["ties"], "own": own, "wanted": 0.0, "statistics_hash": stats.hash, "stats": stats}
        made = Simulation(contexts=stats.contexts, replicates=len(parts["steps"]), **known, **parts)
        made = replace(made, **made.measured(stats), seconds=time.monotonic() - began)
        return replace(made, wanted=made.loss_gap if gap is None else gap)


def _train(
    stats: NextTokenStatistics,
    chosen: TrainingSettings,
    gap: float | None,
    replicates: int,
    progress: AbstractProgress,
    own: ContextFeatures | None,
) -> dict[str, Any]:
    """Train the replicates, as many in one batch as fit in memory."""
    kept = 4 * replicates * (chosen.dim or 0) * stats.V
    require_memory(kept, f"The weights of {replicates:,} replicates", "Take fewer replicates or dimensions.")
    ended, seeds = list[tuple[int, Arrays]](), _seeds(chosen, replicates)
    while len(ended) < replicates:
        together = _at_a_time(stats, chosen, replicates - len(ended), own)
        begun = None
        if not ended and gap is not None:
            begun = _Beginning.of_replicates(stats, chosen, gap, replicates, together, own)
        settings = seeds[len(ended) : len(ended) + together]
        with progress.stage("Simulating", float(chosen.steps)) as stage:
            ended += _train_together(TiedReplicates(stats, settings, own), gap, stage, begun, progress)
    weights = [each for _, each in ended]
    # Weights of a training in float32 are kept as such, without loss.
    return {
        "heads": np.hstack([each["W"] for each in weights]).astype(np.float32),
        "A": np.vstack([each["A"] for each in weights]).astype(np.float32),
        "gain": np.concatenate([each["gain"] for each in weights]).astype(np.float32) if chosen.last_norm else None,
        "steps": tuple(step for step, _ in ended),
        "settings": chosen.to_dict(),
    }


def _seeds(chosen: TrainingSettings, replicates: int) -> list[TrainingSettings]:
    return [replace(chosen, seed=chosen.seed + r) for r in range(replicates)]


def _bytes_each(stats: NextTokenStatistics, chosen: TrainingSettings, own: ContextFeatures | None) -> int:
    features = own or ContextFeatures.of_contexts(np.asarray(stats.contexts), chosen.ties or TIES)
    itemsize = np.dtype(chosen.precision).itemsize
    return replicate_bytes(stats.V, stats.m, features.F, chosen.dim or 0, itemsize, full=own is not None)


def _at_a_time(
    stats: NextTokenStatistics, chosen: TrainingSettings, replicates: int, own: ContextFeatures | None
) -> int:
    """Replicates of these that are trained in one batch: as many as fit in memory, of which one must fit."""
    each = _bytes_each(stats, chosen, own)
    require_memory(
        each,
        f"One replicate of {stats.V:,} tokens x {stats.m:,} contexts in {chosen.dim:,} dimensions",
        lambda share: f"{fewer_contexts(share, stats.m)}, or use fewer dimensions.",
        device=chosen.device,
    )
    return min(replicates, max(int(SAFETY * free_memory(chosen.device) / each), 1))


def _records(trained: TiedReplicates, gap: float | None, stage: AbstractStage) -> Iterator[Float]:
    """Train, and measure the loss gaps of the replicates that are left, on a logarithmic grid; without a gap, once."""
    last = trained.optimization.steps
    for target in [last] if gap is None else record_steps(last, RECORDS_PER_DECADE).tolist():
        for made in trained.advance(target):
            stage.advance(float(made))
        gaps = trained.loss_gaps()
        if not np.isfinite(gaps).all():
            raise ProblemError(
                f"A replicate cannot be used: diverged at step {target}; lower the learning rate "
                f"({trained.optimization.learning_rate!r})."
            )
        stage.advance(0.0, f"loss gap {gaps.max():.3g}")
        yield gaps


def _train_together(
    trained: TiedReplicates,
    gap: float | None,
    stage: AbstractStage,
    begun: _Beginning | None,
    progress: AbstractProgress,
) -> list[tuple[int, Arrays]]:
    """Steps and weights of each replicate, at the first record at which its loss gap is small enough, or the last."""
    found: dict[int, tuple[int, Arrays]] = {}
    for gaps in _records(trained, gap, stage):
        if begun is not None:
            begun.add(trained.step, float(gaps.max()))
            if begun.is_enough(REHEARSAL):
                if begun.seen[-1][1] > begun.gap or begun.batches > 1:
                    begun.expected().announce(progress)
                begun = None
        ends = gaps <= (-math.inf if gap is None else gap)
        ends |= trained.step >= trained.optimization.steps
        for r in np.flatnonzero(ends).tolist():
            found[trained.places[r]] = (trained.step, trained.weights(r))
        if ends.all():
            break
        if ends.any():
            trained.keep(np.flatnonzero(~ends))
    return [found[r] for r in sorted(found)]


def _features(stats: NextTokenStatistics, how: Mapping[str, Any], own: ContextFeatures | None) -> ContextFeatures:
    return own or ContextFeatures.of_contexts(np.asarray(stats.contexts), how["ties"])


def _flow_beginning(
    stats: NextTokenStatistics, how: Mapping[str, Any], gap: float, own: ContextFeatures | None
) -> _Beginning:
    F = _features(stats, how, own).F
    return _Beginning(f"Gradient flow of {F:,} features on {_size(stats)}", gap, how["steps"], flow_bytes(stats.V, F))


def _flow(
    stats: NextTokenStatistics,
    how: Mapping[str, Any],
    gap: float,
    seen: Callable[[int, float], object],
    own: ContextFeatures | None,
) -> dict[str, Any]:
    """Integrate the gradient flow; ``seen`` is told its steps and loss gaps."""
    Phi = _features(stats, how, own).matrix
    starts = float(how.get("head_start", 1.0)), float(how.get("feature_start", 1.0))
    W, A, steps = flow_to(SoftLabels.from_statistics(stats), Phi, gap, starts, how["steps"], seen)
    settings = {"optimizer": {"name": FLOW}, "head_start": starts[0], "feature_start": starts[1]}
    return {"heads": W, "A": A, "gain": None, "steps": (steps,), "settings": settings}
