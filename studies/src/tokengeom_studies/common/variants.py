"""Trainings that differ in one choice, read at one loss, and how alike their geometries are, corrected for noise.

``corrected(a, b) = mean_{s, t} r(a_s, b_t) / sqrt(rho_a rho_b)``

where
    r        correlation of the cosines of two geometries, over contexts or over tokens
    a_s      replicate s of a kind of training; an explanation without randomness has one
    rho_a    mean correlation of two replicates of a, 1 where there is one

Pairs of different kinds with the same seed are left out: they may share a start. Intervals are of a jackknife over
seeds, with Student's quantile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np

import tokengeom as tg
from tokengeom import NextTokenStatistics, TrainingSettings
from tokengeom.extending import AbstractProgress, Bool, Float, InputError, Network, SilentProgress, build_network
from tokengeom_studies.base import Recipe
from tokengeom_studies.common.compared_trainings import NormedMLP, adapted_below
from tokengeom_studies.common.corrected import LEAST, jackknifed
from tokengeom_studies.common.measured import Interval, Row, Rows, chosen
from tokengeom_studies.common.model_runs import count_stories, require_device
from tokengeom_studies.common.stepped_training import SteppedTraining
from tokengeom_studies.common.torch_runs import DeviceText, HasLossGap, Reached, first_below

Geometry = Mapping[str, Any]
"""Kind of item -> cosines over its pairs, with mean 0 and length 1, as a tensor."""
MAIN = "positions+pairs+self"
"""Ties of the simulations, those of the study of explained shares."""
FIRST_SEED = 500
"""Seed of the first replicate of a simulation; no network has it."""
MLP_NAME = "mlp"
_OF_NETWORKS = ("layers", "heads", "positions", "tied", "attention_dropout")


@dataclass(frozen=True)
class Variant:
    """A way of training.

    where
        model      model of `train`
        settings   settings of `train` that differ from AdamW at the recipe's rate
        norm       last norm of an MLP: "none", "rms" or "layer"; empty for the model's own
        start      factor on all weight matrices at the start
        head       factor on the head alone
        rate       factor on the recipe's learning rate
        adapted    whether the learning rate follows the loss, for gradient descent
    """

    model: str = "mlp"
    settings: Mapping[str, Any] = field(default_factory=dict)
    norm: str = ""
    start: float = 1.0
    head: float = 1.0
    rate: float = 1.0
    adapted: bool = False

    def simulation(self, ties: str = MAIN) -> Variant:
        """Tied features, trained with the same choices as far as they have them."""
        kept = {name: value for name, value in self.settings.items() if name not in _OF_NETWORKS}
        settings = {**kept, "ties": ties, "last_norm": self.norm != "none"}
        return replace(self, model="tied", settings=settings, norm="")

    def begin(self, stats: NextTokenStatistics, recipe: Recipe, seed: int, **more: Any) -> SteppedTraining:
        """The training at its start."""
        shared: dict[str, Any] = {"optimizer": "adamw", "precision": "float32", "rate_schedule": "constant"}
        known = {"model": self.model, "dim": recipe["dim"], "learning_rate": self.rate * recipe["learning_rate"]}
        settings = TrainingSettings(**{**shared, **known, "seed": seed, **self.settings})
        network = build_network(stats, settings)
        if self.norm:
            layers = {name: self.settings[name] for name in ("layers",) if name in self.settings}
            network = Network(NormedMLP(self.norm), stats, dim=settings.dim or 0, seed=seed + 1, **layers)
        self._scale(network)
        return SteppedTraining(stats, settings, network=network, **more)

    def _scale(self, network: Network) -> None:
        for name, parameter in network.decoder.named_parameters():
            factor = self.start * (self.head if name == "weight" else 1.0)
            if parameter.ndim == 2 and factor != 1.0:
                parameter.data.mul_(factor)

    def reached(
        self,
        text: HasLossGap,
        stats: NextTokenStatistics,
        recipe: Recipe,
        seed: int,
        kept: Bool | None = None,
        **more: Any,
    ) -> Iterator[Reached]:
        """The training at each of the recipe's loss gaps, largest first; ``kept`` are the contexts it knows."""
        run = self.begin(stats, recipe, seed, device=text.device, **more)
        if kept is not None and self.model == "tied":
            silence_unknown(run.network, kept)
        below: Callable[..., Iterator[Reached]] = adapted_below if self.adapted else first_below
        return below(run, text, recipe["gaps"], seconds=recipe["seconds"])


def silence_unknown(network: Any, kept: Bool) -> None:
    """Features that no context of the training has are 0: a held-out context is placed by its other features."""
    known = np.zeros(network.inputs.tokens, dtype=bool)
    known[np.unique(network.inputs.rows[network.inputs.row[kept]])] = True
    network.decoder.body.features.weight.data[np.flatnonzero(~known)] = 0.0


def text_named(name: str, recipe: Recipe) -> NextTokenStatistics:
    """Statistics by name, after the recipe's device was found: the built-in stories, or saved ones under ``texts``."""
    require_device(recipe)
    if name == "stories":
        return count_stories(recipe, SilentProgress())
    loaded = tg.load(Path("texts") / name)
    if not isinstance(loaded, NextTokenStatistics):
        raise InputError(f"texts/{name} must hold saved statistics; got {type(loaded).__name__}.")
    return loaded


def as_geometry(pairs: Any) -> Geometry:
    """A geometry of `DeviceText` by kind of item."""
    return {"contexts": pairs.contexts, "tokens": pairs.tokens}


def add_pairs(
    rows: Rows,
    cell: Mapping[str, Any],
    geometries: Mapping[str, Sequence[Geometry]],
    wanted: Callable[[str, str], bool] = lambda one, other: True,
) -> None:
    """One row per two kinds of training: the correlations of all their replicates, seed by seed."""
    for a, b in combinations_with_replacement(geometries, 2):
        if (a == b or wanted(a, b)) and not rows.has(kind="pair", **cell, a=a, b=b):
            tables = {item: _table(geometries[a], geometries[b], item) for item in geometries[a][0]}
            rows.add(kind="pair", **cell, a=a, b=b, **{item: x for item, x in tables.items() if x is not None})


def _table(these: Sequence[Geometry], those: Sequence[Geometry], item: str) -> list[list[float]] | None:
    if item not in those[0]:
        return None
    return [[round(float((x[item].double() * y[item]).sum()), 5) for y in those] for x in these]


class Agreements:
    """The rows that `add_pairs` wrote for one cell."""

    def __init__(self, rows: Sequence[Row], **cell: Any) -> None:
        self._rows = {(row["a"], row["b"]): row for row in chosen(rows, kind="pair", **cell)}
        self.names = list(dict.fromkeys(name for pair in self._rows for name in pair))

    def _correlations(self, a: str, b: str, item: str) -> Float:
        if (a, b) in self._rows:
            return np.array(self._rows[a, b].get(item, [[np.nan]]), float)
        return np.array(self._rows.get((b, a), {}).get(item, [[np.nan]]), float).T

    def reproducible(self, name: str, item: str, left: int | None = None) -> float:
        """Mean correlation of two replicates; 1 where there is only one."""
        R = self._correlations(name, name, item)
        if (name, name) not in self._rows:
            return float("nan")
        kept = [s for s in range(len(R)) if s != left]
        pairs = [R[s, t] for s in kept for t in kept if s < t]
        if len(R) == 1:
            return 1.0
        return float(np.mean(pairs)) if pairs else float("nan")

    def value(self, a: str, b: str, item: str, left: int | None = None) -> float:
        """Corrected agreement without one seed; NaN where it is not known or nothing is reproducible."""
        R = self._correlations(a, b, item)
        many = min(R.shape) > 1
        kept = [
            R[s, t]
            for s in range(R.shape[0])
            for t in range(R.shape[1])
            if not (many and s == t) and not (left == s and R.shape[0] > 1) and not (left == t and R.shape[1] > 1)
        ]
        rho = [self.reproducible(name, item, left) for name in (a, b)]
        known = min(rho) >= LEAST and kept
        return float(np.mean(kept) / np.sqrt(rho[0] * rho[1])) if known else float("nan")

    def seeds(self, *names: str) -> range:
        """The replicates of the kind that has most."""
        return range(max(len(self._correlations(name, name, "tokens")) for name in names))

    def corrected(self, a: str, b: str, item: str) -> Interval:
        """Corrected agreement with its interval."""
        return jackknifed(self.seeds(a, b), lambda left: self.value(a, b, item, left))

    def lead(self, one: str, other: str, of: str, item: str) -> Interval:
        """Corrected agreement of one with a training, less that of another."""
        return jackknifed(
            self.seeds(of), lambda left: self.value(one, of, item, left) - self.value(other, of, item, left)
        )


def compare_ties(recipe: Recipe, rows: Rows, progress: AbstractProgress) -> None:
    """MLPs of the recipe's widths and depths at its loss gaps, beside simulations with its ties and certified norms."""
    name, stats = recipe["text"], text_named(recipe["text"], recipe)
    text = DeviceText(stats, recipe["device"])
    facts = {"tokens": stats.V, "contexts": stats.m, "windows": stats.n, "entropy": stats.entropy}
    for dim, layers in product(recipe["dims"], recipe["layers"]):
        cell, given = {"text": name, "dim": dim, "layers": layers}, {**recipe, "dim": dim}
        found: dict[float, dict[str, list[Geometry]]] = {}
        if rows.has(kind="finished", **cell) or not rows.in_time:
            continue
        known = {ties: f"kernel:{layers}" if ties == "kernel" else ties for ties in recipe["ties"]}
        simulated = {f"simulated, {shown}": Variant().simulation(ties) for shown, ties in known.items()}
        trained = {MLP_NAME: Variant(settings={"layers": layers}), **simulated}
        with progress.stage(f"Trainings on {name}, d = {dim}, {layers} layers", float(len(trained))) as stage:
            for variant, training in trained.items():
                stage.advance(1.0, variant)
                first, count = (0, recipe["seeds"]) if variant == MLP_NAME else (FIRST_SEED, recipe["replicates"])
                for seed in range(first, first + count):
                    for read in training.reached(text, stats, given, seed):
                        geometry = as_geometry(text.geometry(read.W, read.H))
                        found.setdefault(read.target, {}).setdefault(variant, []).append(geometry)
                        run = {"target": read.target, "variant": variant, "seed": seed}
                        rows.add(kind="run", **cell, **run, loss_gap=read.loss_gap, step=read.step)
        for gap, geometries in found.items():
            several = {variant: runs for variant, runs in geometries.items() if len(runs) > 1}
            for norm in recipe["norms"]:
                solved = text.prediction(gap, norm)
                rows.add(kind="prediction", **cell, norm=norm, target=gap, **solved.facts())
                several[norm] = [as_geometry(text.geometry(solved.W, solved.H))]
            add_pairs(rows, {**cell, "target": gap}, several, lambda one, _: one == MLP_NAME)
        rows.add(kind="finished", **cell, **facts)
