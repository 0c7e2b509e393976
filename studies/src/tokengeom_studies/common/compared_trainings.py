"""Ways of training, each read when its loss gap first falls below given values and compared there with everything else.

One row per text, training and loss gap, with a number for every seed: agreement with the predictions at that loss
(nuclear and gamma_2 norm), with the prediction in the limit, with every rival at its best, and of pairs of seeds;
efficiency and split exponent. Everything is compared at the same loss. `compared_cells` reads the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom import NextTokenStatistics, TrainingSettings
from tokengeom.extending import (
    MLP,
    AbstractProgress,
    InputError,
    Network,
    NetworkShape,
    build_network,
    threads_for,
)
from tokengeom_studies.base import Recipe
from tokengeom_studies.common.compared_cells import CELL, FREE, SPLIT
from tokengeom_studies.common.corrected import reliability
from tokengeom_studies.common.measured import Rows
from tokengeom_studies.common.model_runs import require_device
from tokengeom_studies.common.on_device import ITEMS, BestRivals, LogitSpectrum, PairGeometry
from tokengeom_studies.common.stepped_training import SteppedTraining
from tokengeom_studies.common.torch_runs import (
    DeviceText,
    Predicted,
    Reached,
    first_below,
    load_text,
    release,
)

NORMS = ("nuclear", "gamma2")
Others = Mapping[tuple[str, float], Callable[[DeviceText], Predicted]]
FREE_RATES = (1e-4, 1e-3)
"""Learning rates of the rival that is a training itself, unconstrained features; each counts as a rival."""
FREE_SEEDS = range(1_000, 1_005)
"""Seeds of its trainings, which no run has."""
FEWEST = 3
"""Seeds below which a training that the end of the time cut off is not kept."""
DIGITS = 5
FIRST_RATE = 16.0
"""First rate of gradient descent on the mean loss, which is adapted."""
NEAR_TARGET = 0.95
"""Share of a loss gap that is asked for, below which a run is not read."""


@dataclass(frozen=True)
class Training:
    """A way of training.

    where
        model        model of `train`
        settings     settings of `train`
        start_scale  factor on the random start of unconstrained features
        last_norm    last norm of an MLP: "none", "rms" or "layer"; empty for the model's own
        adapted      whether the learning rate follows the loss, for gradient descent
    """

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    start_scale: float = 1.0
    last_norm: str = ""
    adapted: bool = False

    def begin(self, text: DeviceText, seed: int, dim: int) -> SteppedTraining:
        """The run at its start."""
        settings = TrainingSettings(**{"model": self.model, "dim": dim, "seed": seed, **self.settings})
        network = None
        if self.last_norm:
            network = Network(NormedMLP(self.last_norm), text.stats, dim=settings.dim or dim, seed=seed + 1)
        return text.begin(settings, network=network, start_scale=self.start_scale)

    def reached(
        self, text: DeviceText, seed: int, dim: int, gaps: Sequence[float], seconds: float
    ) -> Iterator[Reached]:
        """The run at each loss gap, largest first."""
        run = self.begin(text, seed, dim)
        if self.adapted:
            return adapted_below(run, text, gaps, seconds=seconds)
        return first_below(run, text, gaps, seconds=seconds)


class NormedMLP(MLP):
    """The MLP with another norm after its last layer, or none."""

    def __init__(self, norm: str) -> None:
        self.norm = norm

    def body(self, shape: NetworkShape) -> Any:
        """The MLP's body, its last norm replaced."""
        import torch

        body = super().body(shape)
        replaced = {"none": torch.nn.Identity(), "layer": torch.nn.LayerNorm(shape.dim), "rms": body.layers[-1]}
        body.layers[-1] = replaced[self.norm]
        return body


def without_last_norm(stats: NextTokenStatistics, settings: TrainingSettings) -> Network:
    """An MLP, LSTM or transformer at its start, whose last norm is replaced by nothing."""
    import torch

    network = build_network(stats, settings)
    body = network.decoder.body
    if settings.model == "mlp":
        body.layers[-1] = torch.nn.Identity()
    else:
        (body.inner if settings.model == "transformer" else body).norm = torch.nn.Identity()
    return network


def adapted_below(
    run: SteppedTraining, text: DeviceText, targets: Sequence[float], *, seconds: float, every: int = 5
) -> Iterator[Reached]:
    """Gradient descent whose rate follows the loss, at each target.

    The rate grows while ``every`` steps lower the gap by less than 2% and falls where they lower it by more than 4%;
    where the loss rises, or falls far below the next target, the last steps are taken back.
    """
    began, rate, last = time.monotonic(), FIRST_RATE, text.loss_gap(*run.factors())
    kept, step = run.engine.state(), run.step
    remaining = sorted(targets, reverse=True)
    while remaining and time.monotonic() - began < seconds and rate > 1e-8:
        run.advance(every, rate=rate)
        W, H = run.factors()
        gap = text.loss_gap(W, H)
        if not (NEAR_TARGET * remaining[0] <= gap <= last + 1e-6):
            run.engine.load(kept)
            run.step, rate = step, 0.5 * rate
            continue
        rate *= 1.05 if gap > 0.98 * last else 0.8 if gap < 0.96 * last else 1.0
        kept, step, last = run.engine.state(), run.step, gap
        while remaining and gap <= remaining[0]:
            yield Reached(remaining.pop(0), gap, run.step, time.monotonic() - began, W.clone(), H.clone())


class Comparer:
    """Predictions and rivals of a text at several losses, with which runs are compared.

    They are made when the first runs are compared, so that of several processes on a text one can make what the others
    wait for.

    ``others``
        More predictions: name and loss gap -> how to solve for it.
    """

    def __init__(self, name: str, text: DeviceText, recipe: Recipe, rows: Rows, others: Others | None = None) -> None:
        self.name, self.text, self.rows, self.others = name, text, rows, others or {}
        self.gaps, self.dim, self.seconds = sorted(recipe["gaps"], reverse=True), recipe["dim"], recipe["seconds"]

    def threads(self) -> AbstractContextManager[None]:
        """A context in which torch uses one thread where the text is small."""
        return threads_for(self.text.torch, 3.0 * self.text.P.numel() * self.dim)

    @cached_property
    def predicted(self) -> dict[tuple[str, float], Predicted]:
        """Name and loss gap -> prediction; the limit has none."""
        solved = {(norm, gap): self.text.prediction(gap, norm) for norm in NORMS for gap in self.gaps}
        solved["limit", 0.0] = self.text.limit
        solved |= {key: solve(self.text) for key, solve in self.others.items()}
        for (norm, gap), prediction in solved.items():
            key = {"kind": "prediction", "text": self.name, "norm": norm, "target": gap}
            if not self.rows.has(**key):
                self.rows.add(**key, **prediction.facts())
        return solved

    @cached_property
    def geometries(self) -> dict[tuple[str, float], PairGeometry]:
        """The geometry of each prediction."""
        return {key: self.text.geometry(of.W, of.H) for key, of in self.predicted.items()}

    @cached_property
    def rivals(self) -> BestRivals:
        """All rivals but unconstrained features."""
        return BestRivals(self.text)

    @cached_property
    def free(self) -> dict[float, dict[str, tuple[PairGeometry, dict[str, float]]]]:
        """Loss gap -> learning rate -> mean of trainings of unconstrained features, and its reliability."""
        found: dict[float, dict[str, tuple[PairGeometry, dict[str, float]]]] = {gap: {} for gap in self.gaps}
        for gap in self.gaps:
            for rate in FREE_RATES:
                runs = [run for seed in FREE_SEEDS if (run := self._free_training(rate, seed, gap))]
                if len(runs) == len(FREE_SEEDS):
                    found[gap][f"{FREE}, rate {rate:g}"] = PairGeometry.mean(runs), reliabilities(runs)
        return found

    def _free_training(self, rate: float, seed: int, gap: float) -> PairGeometry | None:
        """One training of unconstrained features at a loss gap, where it gets there."""

        def train() -> dict[str, Any]:
            training = Training("ufm", {"rate_schedule": "constant", "learning_rate": rate})
            reached = next(training.reached(self.text, seed, self.dim, [gap], self.seconds), None)
            return {name: getattr(reached, name).cpu().numpy() for name in "WH"} if reached else {}

        kept = self.text.cached(f"ufm-{self.dim}-{rate:g}-{seed}-{gap:g}", train)
        return self.text.geometry(kept["W"], kept["H"]) if kept else None

    def compare(self, found: Mapping[int, Reached], target: float) -> dict[str, Any]:
        """The numbers of runs at a loss gap, one per seed."""
        read = list(found.values())
        runs = [self.text.geometry(one.W, one.H) for one in read]
        spectra = [LogitSpectrum.of(one.W, one.H) for one in read]
        agreements = {
            name: _by_item([geometry.agreement(run) for run in runs])
            for (name, gap), geometry in self.geometries.items()
            if gap in (target, 0.0)
        }
        shared = [self._shared(target, spectrum.split_exponent) for spectrum in spectra]
        agreements[SPLIT] = _by_item([one.agreement(run) for one, run in zip(shared, runs, strict=True)])
        rivals = self.rivals.best(runs)
        for name, (mean, own) in self.free[target].items():
            rivals[name] = {**_by_item([mean.agreement(run) for run in runs]), "reliability": own}
        seeds = list(found)
        norm = self.predicted["nuclear", target].norm_value
        return _rounded(
            {
                "dim": self.dim,
                "seeds": seeds,
                **{name: [getattr(one, name) for one in read] for name in ("loss_gap", "step", "seconds")},
                "efficiency": [norm / spectrum.nuclear_norm for spectrum in spectra],
                "split_exponent": [spectrum.split_exponent for spectrum in spectra],
                "spread_of_token_lengths": [_spread((one.W - one.W.mean(0)).norm(dim=1)) for one in read],
                "spread_of_context_lengths": [_spread(one.H.norm(dim=0)) for one in read],
                "agreement": agreements,
                "rivals": rivals,
                "between": [
                    [seeds[a], seeds[b], runs[a].agreement(runs[b])] for a in range(len(runs)) for b in range(a)
                ],
            }
        )

    def _shared(self, target: float, exponent: float) -> PairGeometry:
        """The gamma_2 prediction's logits shared between tokens and contexts as a run shares its own."""
        power = 0.5 if np.isnan(exponent) else float(np.clip(exponent, 0.0, 1.0))
        left, s, right = self._factored[target]
        return self.text.geometry((left * s**power).float(), (right * s ** (1.0 - power)).mT.float())

    @cached_property
    def _factored(self) -> dict[float, tuple[Any, Any, Any]]:
        """Loss gap -> left singular vectors, singular values and right singular vectors of that prediction's logits."""
        torch, found = self.text.torch, {}
        for gap in self.gaps:
            of = self.predicted["gamma2", gap]
            W, H = (torch.as_tensor(M, dtype=torch.float64, device=self.text.device) for M in (of.W, of.H))
            Q, R = torch.linalg.qr(W - W.mean(0))
            K, T = torch.linalg.qr(H.mT)
            U, s, Vt = torch.linalg.svd(R @ T.mT)
            kept = s > 1e-6 * s[0]
            found[gap] = (Q @ U)[:, kept], s[kept], (K @ Vt.mT)[:, kept]
        return found


def reliabilities(runs: Sequence[PairGeometry]) -> dict[str, float]:
    """Of the mean of runs, for contexts and tokens."""
    pairs = [runs[a].agreement(runs[b]) for a in range(len(runs)) for b in range(a)]
    return {item: reliability(of, len(runs)) for item, of in _by_item(pairs).items()}


def _by_item(agreements: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {item: [one[item] for one in agreements] for item in ITEMS}


def _spread(lengths: Any) -> float:
    return float(lengths.std() / lengths.mean())


def _rounded(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data whose numbers have few digits, so that rows stay short."""
    return {name: _short(value) for name, value in numbers.items()}


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return _rounded(value)
    if isinstance(value, list):
        return [_short(of) for of in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def begin_comparing(recipe: Recipe, rows: Rows, others: Others | None = None) -> Comparer:
    """The text of a recipe on its device, with what its runs are compared with."""
    require_device(recipe)
    text = DeviceText(load_text(recipe), recipe["device"], Path(recipe["cache"]) if recipe["cache"] else None)
    name = recipe["text"] if recipe["text"] == "stories" else Path(recipe["text"]).stem
    return Comparer(name, text, recipe, rows, others)


def known_trainings(names: Sequence[str], known: Mapping[str, Training]) -> dict[str, Training]:
    """The ways of training that a recipe names; an unknown one is refused with those of the study."""
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise InputError(f"This study does not train {unknown!r}. Its ways of training are: {', '.join(known)}.")
    return {name: known[name] for name in names}


def measure_trainings(
    comparer: Comparer, trainings: Mapping[str, Training], seeds: Sequence[int], progress: AbstractProgress
) -> None:
    """Add a row per training and loss gap that the rows do not have; ``tried`` is the number of seeds."""
    rows, title, runs = comparer.rows, f"Training on {comparer.name}", float(len(trainings) * len(seeds))
    with comparer.threads(), progress.stage(title, runs) as stage:
        for name, training in trainings.items():
            key = {"kind": CELL, "text": comparer.name, "training": name, "model": training.model}
            if rows.has(**key):
                continue
            tried, found = 0, {gap: dict[int, Reached]() for gap in comparer.gaps}
            for seed in seeds:
                stage.advance(1.0, f"{name}, seed {seed}")
                seconds = min(comparer.seconds, rows.seconds_left)
                reached = list(training.reached(comparer.text, seed, comparer.dim, comparer.gaps, seconds))
                release(comparer.text)
                if not rows.in_time:
                    break
                tried += 1
                for one in reached:
                    found[one.target][seed] = one
            if tried < min(FEWEST, len(seeds)):
                return
            for gap, of in found.items():
                rows.add(**key, target=gap, tried=tried, **(comparer.compare(of, gap) if of else {"seeds": []}))
