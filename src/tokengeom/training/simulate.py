"""The verb `simulate`: the geometry that a training is expected to have, from the simplest model that reads contexts.

Tied features are trained as a network was: with its optimizer, rates and schedules, its width, the start of its head,
and a last norm where it has one, until their loss is that of the network. One such training is as random as the network
itself, so the result is the mean over replicates. Nothing in it is fitted to the network's geometry.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_args

import numpy as np

from tokengeom.core.errors import InputError, ProblemError
from tokengeom.core.numerics import blas_threads_for
from tokengeom.core.progress import AbstractProgress, AbstractStage, SilentProgress
from tokengeom.core.resources import Estimate
from tokengeom.core.settings import make, option, takes
from tokengeom.models.factored import FACTORED
from tokengeom.models.networks.tied import TIES
from tokengeom.results.registry import load
from tokengeom.statistics.context_features import ContextFeatures
from tokengeom.statistics.next_token import NextTokenStatistics, statistics_of
from tokengeom.training.gradient_flow import flow_to
from tokengeom.training.loop import ENOUGH, OnRecord, TrainingHooks
from tokengeom.training.objective import SoftLabels
from tokengeom.training.optimizers.base import (
    AbstractOptimizer,
    ScheduleLike,
    optimizer_named,
    optimizer_names,
    parse_schedule,
)
from tokengeom.training.run import Run
from tokengeom.training.settings import Precision, Reduction, TrainingSettings
from tokengeom.training.simulation import EXACT, FLOW, Simulation, spread_of
from tokengeom.training.train import estimate_training, train_many

if TYPE_CHECKING:
    from tokengeom.keywords import SimulateKeywords

FIRST_SEED = 30_000
"""Seed of the first replicate, another one than those of common runs."""
RECORDS_PER_DECADE = 80
"""A training is looked at after each 3% of its steps, so the loss gap at which it ends is as near to the wanted one."""
MOST_STEPS, LONGER = 20_000, 10
"""Steps of a replicate at most: without a run, and as a multiple of the run's steps."""
COPIED = (
    *("dim", "optimizer", "learning_rate", "weight_decay", "rate_schedule", "decay_schedule", "reduction", "batch"),
    *("head_start", "feature_start"),
)
"""Settings that are read from the run."""
OVERRIDING = (*(name for name in COPIED if name != "decay_schedule"), "last_norm", "steps", "precision")
"""Settings that are given in their place."""
RUN = " By default that of the run."


@dataclass(frozen=True)
class SimulationSettings:
    """Settings of `simulate`. None means that of the run which it is like, or without a run the default of `train`."""

    ties: str = option(
        TIES,
        "What contexts share: a sum of positions, pairs, suffixes and self, weighted as in '3*positions+self'.",
    )
    replicates: int = option(8, "Number of trainings with different starts, whose cosines are averaged.")
    loss_gap: float | None = option(None, f"Loss above the entropy floor at which trainings end, in nats.{RUN}")
    optimizer: str | AbstractOptimizer | None = option(
        None,
        f"Optimizer, or {FLOW}: the limit of wide models and small steps, which has no replicates.{RUN}",
        choices=lambda: [*optimizer_names(), FLOW],
    )
    learning_rate: float | None = option(None, f"Learning rate.{RUN}")
    weight_decay: float | None = option(None, f"Weight decay.{RUN}")
    rate_schedule: ScheduleLike | None = option(None, f"Schedule of the learning rate.{RUN}", parse=parse_schedule)
    reduction: Reduction | None = option(
        None, f"Loss to minimise: the mean over the windows, or their sum.{RUN}", choices=lambda: get_args(Reduction)
    )
    batch: int | None = option(None, f"Sampled windows per step.{RUN}")
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
    precision: Precision | None = option(
        None, "Precision of training. By default float32; bfloat16 is for a GPU.", choices=lambda: get_args(Precision)
    )
    device: str = option("cpu", "Device: cpu, cuda, or one of several such as cuda:1.")

    def __post_init__(self) -> None:
        if self.replicates < 1:
            raise ProblemError(f"replicates must be at least 1; got {self.replicates!r}.")
        if self.loss_gap is not None and not self.loss_gap > 0:
            raise ProblemError(f"loss_gap must be a number of nats above 0; got {self.loss_gap!r}.")


@takes(SimulationSettings)
def simulate(
    stats: NextTokenStatistics | str | Path,
    like: Run | str | Path | None = None,
    *,
    progress: AbstractProgress | None = None,
    **settings: Unpack[SimulateKeywords],
) -> Simulation:
    """The expected geometry of tied features, trained as a run was or as the settings say.

    For example ``tg.simulate(stats, like=run)``, or ``tg.simulate(stats, optimizer="gd", learning_rate=0.5,
    loss_gap=0.1)``.

    Parameters
    ----------
    stats
        Next-token statistics with the tokens of contexts, or the folder of saved ones.
    like
        A run on these statistics, or its folder: optimizer, rates, width, start of W, last norm and loss are its own.
    progress
        Where replicates and their losses are shown.
    """
    plan = _Plan.of(stats, like, make(SimulationSettings, settings, "simulate"))
    shown = progress or SilentProgress()
    with shown.stage("Simulating", float(plan.replicates)) as stage, blas_threads_for(plan.stats.V, plan.stats.m):
        return plan.flow(stage) if plan.is_flow else plan.train(stage, shown)


@takes(SimulationSettings)
def estimate_simulation(
    stats: NextTokenStatistics | str | Path,
    like: Run | str | Path | None = None,
    *,
    rehearsal: float = ENOUGH,
    **settings: Unpack[SimulateKeywords],
) -> Estimate:
    """The time and memory that `simulate` is expected to take, from the first seconds of a replicate.

    How many steps it takes to the loss gap is known only afterwards, so the time is a range: a third to three times the
    steps of the run, or 1% to 100% of those allowed where there is none.

    Parameters
    ----------
    stats, like
        As in `simulate`.
    rehearsal
        Seconds to train for.
    """
    plan = _Plan.of(stats, like, make(SimulationSettings, settings, "estimate_simulation"))
    if plan.is_flow:
        raise InputError(f"The time of {FLOW} is not known beforehand: its steps follow the loss.")
    run = None if like is None else _run(like)
    least, most = (0.01, 1.0) if run is None else (1 / 3, 3.0)
    steps = plan.keywords["steps"] if run is None else run.steps
    one = estimate_training(plan.stats, rehearsal=rehearsal, **{"model": "tied", **plan.keywords, "steps": steps})
    seconds = plan.replicates * one.seconds
    what = f"Simulating {plan.replicates} replicates on {plan.stats.V:,} tokens x {plan.stats.m:,} contexts"
    return Estimate(what, least * seconds, most * seconds, one.bytes)


@dataclass(frozen=True, eq=False)
class _Plan:
    """What is trained: settings of `train` by name, how often, and to which loss gap."""

    stats: NextTokenStatistics
    keywords: dict[str, Any]
    replicates: int
    loss_gap: float
    is_flow: bool

    @staticmethod
    def of(stats: NextTokenStatistics | str | Path, like: Run | str | Path | None, given: SimulationSettings) -> _Plan:
        """From the run, and the settings that override it."""
        stats, run = statistics_of(stats, "simulate"), None if like is None else _run(like)
        if stats.contexts is None:
            raise ProblemError("A simulation reads the tokens of contexts, and these statistics have none.")
        if run is not None and run.statistics_hash not in (None, stats.hash):
            raise ProblemError("The run and the statistics differ: give the statistics that the run was trained on.")
        gap = run.loss_gap if given.loss_gap is None and run is not None else given.loss_gap
        largest = float(np.log(stats.V)) - stats.entropy
        if gap is None or not 0 < gap < largest:
            raise ProblemError(
                f"A simulation ends at a loss gap between 0 and that of a uniform guess, {largest:.3g} nats; got "
                f"{gap}. Give loss_gap, or a run that has learned something (like=run)."
            )
        known = {} if run is None else _settings_of(run)
        known |= {name: getattr(given, name) for name in OVERRIDING if getattr(given, name) is not None}
        is_flow = known.get("optimizer") == FLOW
        if is_flow and given.last_norm:
            raise ProblemError(f"The equations of {FLOW} are those of a model without a last norm: leave it out.")
        known |= {"ties": given.ties, "seed": FIRST_SEED + given.seed, "device": given.device}
        known = {"steps": _most_steps(run, known), **known}
        return _Plan(stats, known, 1 if is_flow else given.replicates, float(gap), is_flow)

    def train(self, stage: AbstractStage, progress: AbstractProgress) -> Simulation:
        """Train the replicates one after the other; the time of all is announced when the first has ended."""
        began, runs = time.monotonic(), list[Run]()
        for r in range(self.replicates):
            hooks = TrainingHooks(on_record=_shown(stage, r), loss_gap=self.loss_gap)
            chosen = TrainingSettings(model="tied", records_per_decade=RECORDS_PER_DECADE, **self.keywords)
            run = train_many(self.stats, [replace(chosen, seed=chosen.seed + r)], hooks=hooks)[0]
            if run.status == "interrupted":
                raise KeyboardInterrupt
            if run.diverged:
                raise ProblemError(f"A replicate cannot be used: {run.status}.")
            runs.append(run)
            if r == 0 and self.replicates > 1:
                seconds = self.replicates * (time.monotonic() - began)
                Estimate(f"Simulating {self.replicates} replicates", seconds, seconds).announce(progress)
            stage.advance(1.0)
        # The weights of a training in float32 are kept as such, without loss.
        kind = np.float32 if runs[0].settings["precision"] != "float64" else np.float64
        gains = [run.weights["gain"] for run in runs if "gain" in run.weights]
        made = self._simulation(
            heads=np.hstack([run.W for run in runs]).astype(kind),
            A=np.vstack([run.weights["A"] for run in runs]).astype(kind),
            gain=np.concatenate(gains).astype(kind) if gains else None,
            steps=tuple(run.steps for run in runs),
            settings=runs[0].settings,
        )
        return self._finished(made, began)

    def flow(self, stage: AbstractStage) -> Simulation:
        """Integrate the gradient flow."""
        began, labels = time.monotonic(), SoftLabels.from_statistics(self.stats)
        named = {name: float(self.keywords.get(name, 1.0)) for name in ("head_start", "feature_start")}
        assert self.stats.contexts is not None
        features = ContextFeatures.of_contexts(self.stats.contexts, self.keywords["ties"])
        W, A, steps = flow_to(labels, features.matrix, self.loss_gap, most=self.keywords["steps"], stage=stage, **named)
        settings = {"optimizer": {"name": FLOW}, "ties": features.ties, **named}
        return self._finished(self._simulation(heads=W, A=A, gain=None, steps=(steps,), settings=settings), began)

    def _simulation(self, **parts: Any) -> Simulation:
        """A simulation before it is measured."""
        assert self.stats.contexts is not None
        return Simulation(
            contexts=np.asarray(self.stats.contexts, np.int32),
            ties=self.keywords["ties"],
            replicates=self.replicates,
            wanted=self.loss_gap,
            loss_gaps=(),
            spread={},
            seconds=0.0,
            statistics_hash=self.stats.hash,
            **parts,
        )

    def _finished(self, made: Simulation, began: float) -> Simulation:
        """With what is measured in double precision: loss gaps, and how alike replicates are."""
        labels = SoftLabels.from_statistics(self.stats)
        gaps = tuple(labels.loss_gap_of(training) for training in made.trainings())
        groups, seen = np.asarray(self.stats.groups.label, np.int64), np.unique(self.stats.P.indices)
        spread = EXACT if self.is_flow else spread_of(made, groups, seen)
        return replace(made, loss_gaps=gaps, spread=spread, seconds=time.monotonic() - began)


def _shown(stage: AbstractStage, r: int) -> OnRecord:
    return lambda step, steps, row: stage.advance(0.0, f"replicate {r + 1}, loss gap {row['loss_gap']:.3g}")


def _run(given: Run | str | Path) -> Run:
    run = load(given) if isinstance(given, str | Path) else given
    if not isinstance(run, Run):
        raise InputError(f"like must be a run, or the folder of a saved one; got {type(run).__name__}.")
    if run.settings.get("model") == "linear":
        raise ProblemError("A simulation learns embeddings of contexts, and the linear model has given ones.")
    if run.diverged:
        raise ProblemError(f"A simulation cannot be like a run that {run.status}.")
    return run


def _settings_of(run: Run) -> dict[str, Any]:
    """Settings of `train` for a tied model that is trained as the run was."""
    settings: Mapping[str, Any] = run.settings
    known = {name: settings[name] for name in COPIED if settings.get(name) is not None}
    if isinstance(known.get("optimizer"), dict):
        own = dict(known["optimizer"])
        kind = type(optimizer_named(own.pop("name")))
        known["optimizer"] = kind(**{name: tuple(x) if isinstance(x, list) else x for name, x in own.items()})
    model = settings.get("model")
    last_norm = bool(settings.get("last_norm")) if model == "tied" else model not in FACTORED
    return known | {"last_norm": last_norm}


def _most_steps(run: Run | None, known: Mapping[str, Any]) -> int:
    """Steps at most, where they are not given: a schedule that ends with the run leaves none to go on with."""
    if run is None:
        return MOST_STEPS
    steps = int(run.settings.get("steps", run.steps))
    schedules = {name: known[name] for name in ("rate_schedule", "decay_schedule") if name in known}
    ends = TrainingSettings(steps=steps, **schedules).optimization().depends_on_steps
    return steps if ends else LONGER * max(steps, 1)
