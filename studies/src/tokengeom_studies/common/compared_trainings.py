"""Ways of training, each read when its loss gap first falls below given values and compared there with everything else.

One row per text, training, seed and loss gap: agreement with the predictions at that loss (nuclear and gamma_2 norm),
with the prediction in the limit, with every rival, and with the earlier seeds of the same training; efficiency and
split exponent. Everything is compared at the same loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokengeom import NextTokenStatistics, TrainingSettings
from tokengeom.extending import MLP, AbstractProgress, InputError, Network, NetworkShape, build_network, threads_for
from tokengeom_studies.base import Recipe, Table, table_of
from tokengeom_studies.common.corrected import Measured, corrected
from tokengeom_studies.common.measured import Interval, Row, Rows, chosen
from tokengeom_studies.common.model_runs import require_device
from tokengeom_studies.common.on_device import LogitSpectrum, PairGeometry
from tokengeom_studies.common.stepped_training import SteppedTraining
from tokengeom_studies.common.torch_runs import DeviceText, Predicted, Reached, best_candidates, first_below, load_text

NORMS = ("nuclear", "gamma2")
ITEMS = ("contexts", "tokens")
FREE = "UFM"
"""The rival that is a training itself: unconstrained features, once, with a seed that no run has."""
RIVAL_SEED = 1_000
GRIDS = {"log-counts": (0.001, 10.0), "PMI": (0.1, 10.0)}
"""Ends of the grids of alpha and k; they were not widened where the best value lies on an edge."""
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
    """Predictions and rivals of a text at several losses, with which runs are compared."""

    def __init__(self, name: str, text: DeviceText, gaps: Sequence[float], dim: int, rows: Rows) -> None:
        self.name, self.text, self.gaps, self.dim = name, text, gaps, dim
        self.predicted: dict[tuple[str, float], Predicted] = {}
        self.geometries: dict[tuple[str, float], PairGeometry] = {}
        self.others: dict[float, dict[str, PairGeometry]] = {gap: {} for gap in gaps}
        with self.threads():
            for norm in NORMS:
                for gap in sorted(gaps, reverse=True):
                    self._add(norm, gap, text.prediction(gap, norm), rows)
            self._add("limit", 0.0, text.limit, rows)
            self.rivals = text.rivals()
            free = Training("ufm", {"rate_schedule": "constant"}).reached(text, RIVAL_SEED, dim, gaps, seconds=60.0)
            self.free = {reached.target: text.geometry(reached.W, reached.H) for reached in free}

    def threads(self) -> AbstractContextManager[None]:
        """A context in which torch uses one thread where the text is small."""
        return threads_for(self.text.torch, 3.0 * self.text.P.numel() * self.dim)

    def add(self, norm: str, gap: float, prediction: Predicted, rows: Rows) -> None:
        """Compare runs with one more prediction at a loss gap."""
        self._add(norm, gap, prediction, rows)
        self.others[gap][norm] = self.geometries[norm, gap]

    def _add(self, norm: str, gap: float, prediction: Predicted, rows: Rows) -> None:
        self.predicted[norm, gap] = prediction
        self.geometries[norm, gap] = self.text.geometry(prediction.W, prediction.H)
        key = {"kind": "prediction", "text": self.name, "norm": norm, "target": gap}
        if not rows.has(**key):
            rows.add(**key, **prediction.facts())

    def compare(self, reached: Reached) -> tuple[PairGeometry, dict[str, Any]]:
        """The geometry of a run, and its numbers at the loss that it has reached."""
        text, target = self.text, reached.target
        run = text.geometry(reached.W, reached.H)
        spectrum = LogitSpectrum.of(reached.W, reached.H)
        exponent = spectrum.split_exponent
        agreements = {norm: self.geometries[norm, target].agreement(run) for norm in NORMS}
        agreements["limit"] = self.geometries["limit", 0.0].agreement(run)
        agreements |= {name: other.agreement(run) for name, other in self.others[target].items()}
        for norm in NORMS:
            agreements[f"{norm}, own split"] = self._split(norm, target, exponent).agreement(run)
        rivals = best_candidates(self.rivals, run)
        if target in self.free:
            rivals[FREE] = dict(self.free[target].agreement(run))
        rows, columns = (reached.W - reached.W.mean(0)).norm(dim=1), reached.H.norm(dim=0)
        return run, {
            "loss_gap": reached.loss_gap,
            "step": reached.step,
            "seconds": reached.seconds,
            "agreement": agreements,
            "rivals": rivals,
            "efficiency": self.predicted["nuclear", target].norm_value / spectrum.nuclear_norm,
            "split_exponent": exponent,
            "spread_of_token_lengths": float(rows.std() / rows.mean()),
            "spread_of_context_lengths": float(columns.std() / columns.mean()),
        }

    def _split(self, norm: str, target: float, exponent: float) -> PairGeometry:
        """The prediction's logits shared between tokens and contexts as the run shares its own."""
        prediction = self.predicted[norm, target]
        power = 0.5 if np.isnan(exponent) else float(np.clip(exponent, 0.0, 1.0))
        W = self.text.torch.tensor(
            prediction.W - prediction.W.mean(0), dtype=self.text.torch.float64, device=self.text.device
        )
        H = self.text.torch.tensor(prediction.H, dtype=self.text.torch.float64, device=self.text.device)
        Q, R = self.text.torch.linalg.qr(W)
        K, T = self.text.torch.linalg.qr(H.mT)
        U, s, Vt = self.text.torch.linalg.svd(R @ T.mT)
        kept = s > 1e-6 * s[0]
        left, right = (Q @ U)[:, kept] * s[kept] ** power, (K @ Vt.mT)[:, kept] * s[kept] ** (1.0 - power)
        return self.text.geometry(left.float(), right.mT.float())


def begin_comparing(recipe: Recipe, rows: Rows) -> Comparer:
    """The text of a recipe on its device, with its predictions at the recipe's loss gaps."""
    require_device(recipe)
    text = DeviceText(load_text(recipe), recipe["device"], Path(recipe["cache"]) if recipe["cache"] else None)
    name = recipe["text"] if recipe["text"] == "stories" else Path(recipe["text"]).stem
    return Comparer(name, text, recipe["gaps"], recipe["dim"], rows)


def known_trainings(names: Sequence[str], known: Mapping[str, Training]) -> dict[str, Training]:
    """The ways of training that a recipe names; an unknown one is refused with those of the study."""
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise InputError(f"This study does not train {unknown!r}. Its ways of training are: {', '.join(known)}.")
    return {name: known[name] for name in names}


def measure_trainings(
    comparer: Comparer,
    trainings: Mapping[str, Training],
    seeds: Sequence[int],
    rows: Rows,
    progress: AbstractProgress,
    *,
    seconds: float,
) -> None:
    """Add a row per training, seed and loss gap that ``rows`` does not have; ``reached`` says whether it got there."""
    title, runs = f"Training on {comparer.name}", float(len(trainings) * len(seeds))
    with comparer.threads(), progress.stage(title, runs) as stage:
        for name, training in trainings.items():
            earlier: dict[float, list[PairGeometry]] = {gap: [] for gap in comparer.gaps}
            for seed in seeds:
                key = {"kind": "run", "text": comparer.name, "training": name, "model": training.model, "seed": seed}
                stage.advance(1.0, f"{name}, seed {seed}")
                if rows.has(**key) or not rows.in_time:
                    continue
                limit = min(seconds, rows.seconds_left)
                for reached in training.reached(comparer.text, seed, comparer.dim, comparer.gaps, limit):
                    run, numbers = comparer.compare(reached)
                    others = [before.agreement(run) for before in earlier[reached.target]]
                    earlier[reached.target].append(run)
                    rows.add(**key, target=reached.target, reached=True, **numbers, with_earlier_seeds=others)
                known = {row["target"] for row in rows.where(**key)}
                for gap in sorted(set(comparer.gaps) - known, reverse=True):
                    rows.add(**key, target=gap, reached=False)


@dataclass(frozen=True)
class Cell:
    """The runs of one training on one text at one loss that got there, one row per seed."""

    text: str
    training: str
    model: str
    target: float
    runs: Sequence[Row]

    def agreement(self, name: str, item: str) -> list[float]:
        """Agreement with a prediction or a rival, one value per seed."""
        return [{**row["agreement"], **row["rivals"]}[name][item] for row in self.runs]

    def agreed(self, name: str, item: str) -> float:
        """Mean agreement over seeds."""
        return float(np.mean(self.agreement(name, item)))

    def lead(self, name: str, other: str, item: str) -> Interval:
        """How far the agreement with one explanation is ahead of that with another, paired by seed."""
        pairs = zip(self.agreement(name, item), self.agreement(other, item), strict=True)
        return Interval.of(x - y for x, y in pairs)

    def best_rival(self, item: str) -> str:
        """The rival that agrees best on average."""
        # To unconstrained features, others of their kind are another seed.
        names = [str(name) for name in self.runs[0]["rivals"] if not (name == FREE and self.model == "ufm")]
        return max(names, key=lambda name: self.agreed(name, item))

    def between_seeds(self, item: str) -> Measured:
        """Agreement of pairs of seeds; a run was compared with those that stand before it."""
        return {
            (before["seed"], row["seed"]): agreed[item]
            for place, row in enumerate(self.runs)
            for before, agreed in zip(
                self.runs[place - len(row["with_earlier_seeds"]) : place], row["with_earlier_seeds"], strict=True
            )
        }

    def reproducible(self, item: str) -> float:
        """Mean agreement between two seeds; NaN without two."""
        pairs = self.between_seeds(item)
        return float(np.mean(list(pairs.values()))) if pairs else float("nan")

    def corrected(self, name: str, item: str, *reliability: Measured) -> Interval:
        """Agreement with a prediction or a rival, corrected for the differences between seeds.

        ``reliability``
            Agreement of trainings of the rival with each other, where it is one.
        """
        agreed: Measured = {
            (int(row["seed"]),): value for row, value in zip(self.runs, self.agreement(name, item), strict=True)
        }
        return corrected(agreed, self.between_seeds(item), *reliability)

    def least_reliability(self, item: str) -> float:
        """Of runs of unconstrained features: the least that two trainings of the rival of this kind can agree to.

        The rival's cosines are a common part and noise, so its agreement with a run is at most the root of what both
        are reproducible to.
        """
        return self.agreed(FREE, item) ** 2 / self.reproducible(item)

    def mean(self, name: str) -> float:
        """Mean over seeds of a number of the run."""
        return float(np.mean([row[name] for row in self.runs]))


def cells(rows: Sequence[Row]) -> list[Cell]:
    """The cells of all runs that got to a loss, in the order in which they were measured."""
    runs = [row for row in chosen(rows, kind="run") if row["reached"]]
    keys = dict.fromkeys((row["text"], row["training"], row["model"], row["target"]) for row in runs)
    return [
        Cell(*key, [row for row in runs if (row["text"], row["training"], row["model"], row["target"]) == key])
        for key in keys
    ]


def farthest(cells: Sequence[Cell]) -> float:
    """Largest relative distance between the loss gap of a run and the one that it is compared at."""
    return max(abs(float(row["loss_gap"]) / cell.target - 1.0) for cell in cells for row in cell.runs)


def not_reached(rows: Sequence[Row]) -> list[str]:
    """Text, training and loss gap of runs that did not get there, each once, with their number."""
    missed = [row for row in chosen(rows, kind="run") if not row["reached"]]
    names = [f"{row['training']} on {row['text']} at {row['target']:g}" for row in missed]
    return [f"{name} ({names.count(name)} seeds)" for name in dict.fromkeys(names)]


def both(number: Callable[[str], float | Interval]) -> str:
    """A number of contexts and of tokens; of intervals, the mean."""
    values = [value.mean if isinstance(value, Interval) else value for value in map(number, ITEMS)]
    return " / ".join("-" if np.isnan(value) else f"{value:.3f}" for value in values)


def edge_table(cells: Sequence[Cell]) -> Table:
    """How often the free parameter of a rival, fitted to a run's contexts, lies on an edge of its grid."""
    rows = []
    for name, (low, high) in GRIDS.items():
        fitted = [row["rivals"][name]["chosen"] for cell in cells for row in cell.runs if name in row["rivals"]]
        values = [float(chosen.partition("=")[2].partition(",")[0]) for chosen in fitted]
        row: dict[str, object] = {"rival": name, "grid": f"{low:g} to {high:g}", "runs": len(values)}
        rows.append(row | {"at the lower end": values.count(low), "at the upper end": values.count(high)})
    return table_of(rows)
