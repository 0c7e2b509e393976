"""Loss and geometry of networks against their number of parameters.

The theory needs a model that is expressive enough to give every context its logits. Networks of growing width and depth
are trained on the same text for the same steps at the same rate, so the study shows what a size reaches within a budget
and not what it could reach. Each is compared with the prediction at the loss that it has reached. Size is the number of
trained parameters per context; V parameters per context would be one per logit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tokengeom import FeaturePrediction, NextTokenStatistics, TrainingSettings, predict
from tokengeom.extending import AbstractProgress, Curve, Figure, Float, InputError, LinePanel, Scale, build_network
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.feature_runs import count_stories, rank_correlation
from tokengeom_studies.common.network_runs import (
    ITEMS,
    Trained,
    agreement_table,
    floor_check,
    gain_checks,
    require_device,
    train_and_compare,
)
from tokengeom_studies.common.trainings import PlannedTraining, network_training

NEAR = 1e-2
"""``CE - H`` in nats up to which a network is said to be near the entropy."""


@dataclass(frozen=True, eq=False)
class Sized:
    """A trained network and its size."""

    model: str
    layers: int
    dim: int
    parameters: int
    trained: Trained

    @property
    def family(self) -> str:
        """Name shared by the networks that differ only in d."""
        return f"{self.model}, {self.layers} layer{'' if self.layers == 1 else 's'}"

    @property
    def loss_gap(self) -> float:
        """``CE - H``."""
        return self.trained.run.loss_gap

    def above_floor(self, item: str) -> float:
        """Agreement of "context" or "token" embeddings minus its floor, which depends on d."""
        found = self.trained.agreement(item)
        return found.value - found.floor


@dataclass(frozen=True, eq=False)
class Sizes:
    """Networks on the same statistics."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    networks: Sequence[Sized]

    @property
    def families(self) -> dict[str, list[Sized]]:
        """Networks that differ only in d, the smallest first."""
        found: dict[str, list[Sized]] = {}
        for one in sorted(self.networks, key=lambda one: one.parameters):
            found.setdefault(one.family, []).append(one)
        return dict(sorted(found.items()))

    @property
    def largest(self) -> Sized:
        """The network with the most parameters."""
        return max(self.networks, key=lambda one: one.parameters)

    @property
    def order(self) -> float:
        """Rank correlation of size and loss; -1 where a larger network always has the lower loss."""
        return rank_correlation(self._column(lambda one: one.parameters), self._column(lambda one: one.loss_gap))

    def slope(self, family: str) -> float:
        """Slope of log ``CE - H`` against log size."""
        sizes = [one.parameters for one in self.families[family]]
        gaps = [one.loss_gap for one in self.families[family]]
        return float(np.polyfit(np.log(sizes), np.log(gaps), 1)[0]) if len(sizes) > 1 else float("nan")

    def per_context(self, one: Sized) -> float:
        """Parameters per context."""
        return one.parameters / self.stats.m

    def _column(self, of: Callable[[Sized], float]) -> Float:
        return np.array([of(one) for one in self.networks], np.float64)


class Overparameterisation(AbstractStudy):
    """Loss and agreement of networks against their number of parameters."""

    question: ClassVar[str] = "How close to the entropy and to the prediction does a network of a given size come?"
    # Every size is trained for the same steps at the same rate.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "stories": 3000,
        "context": 4,
        "contexts": 100,
        "vocabulary": 40,
        "models": ["transformer", "mlp"],
        "layers": [1, 2],
        "heads": 4,
        "dims": [4, 8, 16, 32, 64],
        "steps": 300,
        "learning_rate": 3e-3,
        "weight_decay": 1e-6,
        "schedule": "cosine",
        "device": "cpu",
        "draws": 100,
    }
    paper: ClassVar[Recipe] = {
        "seed": 0,
        "stories": 3000,
        "context": 4,
        "contexts": 400,
        "vocabulary": 104,
        "models": ["transformer", "mlp"],
        "layers": [1, 2, 4],
        "heads": 6,
        "dims": [8, 16, 32, 64, 128, 256],
        "steps": 30_000,
        "learning_rate": 1e-4,
        "weight_decay": 1e-6,
        "schedule": "papers",
        "device": "cuda",
        "draws": 1000,
    }

    def trainings(self, recipe: Recipe) -> list[PlannedTraining]:
        """One network per model, number of layers and width."""
        return [
            network_training(recipe, model, layers=layers, dim=dim)
            for model in recipe["models"]
            for layers in recipe["layers"]
            for dim in recipe["dims"]
        ]

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count and predict once, train a network of each architecture, depth and width."""
        require_device(recipe)
        if len(set(recipe["dims"])) < 2:
            raise InputError(f"Networks are compared over d: give at least two; got dims={recipe['dims']}.")
        stats = count_stories(recipe, progress)
        prediction = predict(stats, progress=progress)
        networks = [
            _sized(stats, prediction, recipe, model, layers, dim, progress)
            for model in recipe["models"]
            for layers in sorted(recipe["layers"])
            for dim in sorted(recipe["dims"])
        ]
        found = Sizes(stats, prediction, networks)
        tables = {"sizes": _table(found), "agreement": agreement_table(_named(found), "network")}
        return self.findings(recipe, _sentence(found), _checks(found), [_figure(found)], tables)


def _sized(
    stats: NextTokenStatistics,
    prediction: FeaturePrediction,
    recipe: Recipe,
    model: str,
    layers: int,
    dim: int,
    progress: AbstractProgress,
) -> Sized:
    changes: dict[str, Any] = {"dim": dim, "layers": layers}
    if model == "transformer":
        changes["heads"] = min(recipe["heads"], dim)
    size = count_parameters(stats, TrainingSettings(model=model, **changes))
    trained = train_and_compare(stats, prediction, recipe, model=model, progress=progress, **changes)
    return Sized(model, layers, dim, size, trained)


def count_parameters(stats: NextTokenStatistics, settings: TrainingSettings) -> int:
    """Number of trained parameters: input embeddings, body and head."""
    network = build_network(stats, settings)
    return sum(int(parameter.numel()) for parameter in network.decoder.parameters())


def _named(found: Sizes) -> dict[str, Trained]:
    return {f"{one.family}, d={one.dim}": one.trained for one in found.networks}


def _checks(found: Sizes) -> list[Check]:
    checks = [
        Check("relative gap of L_mm", found.prediction.certificate.relative_gap, high=1e-6),
        Check("rank correlation of size and loss gap", found.order, high=-0.5),
        *gain_checks("largest network", found.largest.trained, loss_gap=5e-2),
    ]
    for family, networks in found.families.items():
        fall = networks[0].loss_gap / networks[-1].loss_gap
        number = networks[-1].trained.agreement("context")
        checks += [
            Check(f"{family}: loss gap of the smallest network over that of the largest", fall, low=2.0),
            floor_check(f"{family}: agreement of contexts in the largest network", number),
        ]
    return checks


def _sentence(found: Sizes) -> str:
    stats = found.stats
    floors = [one.trained.agreement("context").floor for one in found.networks]
    ranges = "; ".join(_range_over_d(found, family) for family in found.families)
    return (
        f"{_verdict(found)} On {stats.m} contexts and {stats.V} tokens of the built-in stories ({stats.n:,} windows, "
        f"{stats.table.nnz} pairs), after {found.largest.trained.run.steps:,} steps, from the smallest d to the "
        f"largest: {ranges}. Floors of the agreement of contexts are {min(floors):.2f} to {max(floors):.2f}."
    )


def _verdict(found: Sizes) -> str:
    near = [one for one in found.networks if one.loss_gap <= NEAR]
    order = f"rank correlation of size and loss gap: {found.order:.2f}"
    nearer = f"Larger networks {'come closer' if found.order < 0 else 'do not come closer'} to the entropy ({order})"
    if not near:
        return f"{nearer}; none is within {NEAR:g} nats of it."
    first = min(near, key=lambda one: one.parameters)
    ordered = sorted(near, key=lambda one: one.trained.agreement("context").value)
    return (
        f"{nearer}; the smallest within {NEAR:g} nats of it has {found.per_context(first):,.0f} parameters per context "
        f"({first.family}, d={first.dim}). Among those within {NEAR:g} nats, the agreement of contexts with the "
        f"prediction at the loss reached is {_agreement(ordered[0])} ({ordered[0].family}, d={ordered[0].dim}) to "
        f"{_agreement(ordered[-1])} ({ordered[-1].family}, d={ordered[-1].dim})."
    )


def _range_over_d(found: Sizes, family: str) -> str:
    first, last = found.families[family][0], found.families[family][-1]
    return (
        f"{family}, {found.per_context(first):,.0f} to {found.per_context(last):,.0f} parameters per context (d="
        f"{first.dim} to {last.dim}): loss gap {first.loss_gap:.1e} to {last.loss_gap:.1e}, agreement of contexts "
        f"{_agreement(first)} to {_agreement(last)} (with L_mm {_in_limit(first)} to {_in_limit(last)})"
    )


def _agreement(one: Sized) -> str:
    return f"{one.trained.agreement('context').value:.2f}"


def _in_limit(one: Sized) -> str:
    return f"{one.trained.in_limit('context').value:.2f}"


def _table(found: Sizes) -> Table:
    limits = [f"limit_{item}_{kind}" for kind in ("agreement", "similarity") for item in ITEMS]
    rows = [
        {
            "model": one.model,
            "layers": one.layers,
            "d": one.dim,
            "parameters": one.parameters,
            "per_context": found.per_context(one),
            "per_window": one.parameters / found.stats.n,
            "loss_gap": one.loss_gap,
            **{f"{item}_agreement": one.trained.agreement(item).value for item in ITEMS},
            **{name: one.trained.comparison[name].value for name in limits},
            "slope": found.slope(one.family),
        }
        for one in found.networks
    ]
    return table_of(rows)


def _figure(found: Sizes) -> Figure:
    def panel(title: str, label: str, of: Callable[[Sized], float], scale: Scale = "linear") -> LinePanel:
        curves = [
            Curve(family, np.array([found.per_context(one) for one in some]), np.array([of(one) for one in some]))
            for family, some in found.families.items()
        ]
        marks = [("one per logit", float(found.stats.V))]
        return LinePanel(title, "parameters / m", label, curves, "log", scale, (), marks)

    label = "agreement - floor"
    panels = [
        panel("Loss gap", "CE - H (nats)", lambda one: one.loss_gap, "log"),
        panel("Contexts: agreement above the floor", label, lambda one: one.above_floor("context")),
        panel("Tokens: agreement above the floor", label, lambda one: one.above_floor("token")),
    ]
    caption = (
        f"Networks of growing width, trained with the same settings on {found.stats.m} contexts, against their number "
        "of parameters per context. Left: loss above the entropy. Middle and right: correlation of the cosines between "
        "contexts of different supports, and between different tokens, with those of the prediction at the loss "
        "reached, minus the floor (the largest of the 95th percentile under permutation, that of Gaussian embeddings, "
        "and the network before training)."
    )
    return Figure("overparameterisation", "Loss and geometry against size", caption, panels, columns=3)
