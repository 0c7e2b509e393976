"""How large a network must be for its loss to come near the entropy, and its geometry near L_mm.

The theory asks for a model that is expressive enough: one that can give every context the logits it needs. Networks of
growing width and depth are trained on the same text for the same steps at the same rate, so that what is shown is what
a size reaches within a budget, not what it could reach. Size is the number of trained parameters for each of the m
contexts; V of them for each context would be one for each logit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Curve, Figure, LinePanel, Scale
from tokengeom.numerics import Float
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import count_stories, ranks_agree
from tokengeom.studies.network_runs import Trained, agreement_table, gain_checks, require_device, trained_network
from tokengeom.theory.features import FeaturePrediction, predict_features
from tokengeom.training.settings import TrainingSettings
from tokengeom.training.train import build_network

NEAR = 1e-2
"""``CE - H`` in nats below which a network is said to have come near the entropy."""


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
        """Networks that differ in d alone."""
        return f"{self.model}, {self.layers} layer{'' if self.layers == 1 else 's'}"

    @property
    def loss_gap(self) -> float:
        """``CE - H``."""
        return self.trained.run.loss_gap

    def above_chance(self, number: str) -> float:
        """A similarity less what chance reaches of it, which depends on d."""
        found = self.trained.comparison[number]
        return found.value - found.null


@dataclass(frozen=True, eq=False)
class Sizes:
    """Networks on the same statistics."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    networks: Sequence[Sized]

    @property
    def families(self) -> dict[str, list[Sized]]:
        """Networks that differ in d alone, the smallest first."""
        found: dict[str, list[Sized]] = {}
        for one in sorted(self.networks, key=lambda one: one.parameters):
            found.setdefault(one.family, []).append(one)
        return dict(sorted(found.items()))

    @property
    def largest(self) -> Sized:
        """The network of most parameters."""
        return max(self.networks, key=lambda one: one.parameters)

    @property
    def order(self) -> float:
        """Rank correlation of size and loss; -1 where a larger network always ends lower."""
        return ranks_agree(self._column(lambda one: one.parameters), self._column(lambda one: one.loss_gap))

    def slope(self, family: str) -> float:
        """Slope of log ``CE - H`` against log size."""
        sizes = [one.parameters for one in self.families[family]]
        gaps = [one.loss_gap for one in self.families[family]]
        return float(np.polyfit(np.log(sizes), np.log(gaps), 1)[0]) if len(sizes) > 1 else float("nan")

    def per_context(self, one: Sized) -> float:
        """Parameters for each context."""
        return one.parameters / self.stats.m

    def _column(self, of: Callable[[Sized], float]) -> Float:
        return np.array([of(one) for one in self.networks], np.float64)


class Overparameterisation(AbstractStudy):
    """Loss and similarity of networks against their number of parameters."""

    name: ClassVar[str] = "overparameterisation"
    question: ClassVar[str] = "How near to the entropy and to L_mm does a network of a given size come?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count and predict once, train a network of each kind, depth and width."""
        require_device(recipe)
        if len(set(recipe["dims"])) < 2:
            raise InputError(f"Sizes are compared along d: give at least two; got dims={recipe['dims']}.")
        stats = count_stories(recipe, progress)
        prediction = predict_features(stats)
        networks = [
            _sized(stats, prediction, recipe, model, layers, dim, progress)
            for model in recipe["models"]
            for layers in sorted(recipe["layers"])
            for dim in sorted(recipe["dims"])
        ]
        found = Sizes(stats, prediction, networks)
        tables = {"sizes": _table(found), "agreement": agreement_table(_named(found), "network")}
        return Findings(_sentence(found), _checks(found), [_figure(found)], tables)


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
    trained = trained_network(stats, prediction, recipe, model=model, progress=progress, **changes)
    return Sized(model, layers, dim, size, trained)


def count_parameters(stats: NextTokenStatistics, settings: TrainingSettings) -> int:
    """Numbers that training moves: embeddings of the input tokens, body and head."""
    network = build_network(stats, settings)
    return sum(int(parameter.numel()) for parameter in network.decoder.parameters())


def _named(found: Sizes) -> dict[str, Trained]:
    return {f"{one.family}, d={one.dim}": one.trained for one in found.networks}


def _checks(found: Sizes) -> list[Check]:
    checks = [
        Check("relative gap of L_mm", found.prediction.certificate.relative_gap, high=1e-6),
        Check("rank correlation of size and CE - H", found.order, high=-0.5),
        *gain_checks("largest network", found.largest.trained, loss_gap=5e-2),
    ]
    for family, networks in found.families.items():
        fall = networks[0].loss_gap / networks[-1].loss_gap
        above = networks[-1].above_chance("context_similarity")
        checks += [
            Check(f"{family}: CE - H of the smallest over that of the largest", fall, low=2.0),
            Check(f"{family}: SIM of contexts above chance in the largest", above, low=0.0),
        ]
    return checks


def _sentence(found: Sizes) -> str:
    stats = found.stats
    chances = [one.trained.comparison.context_similarity.null for one in found.networks]
    ways = "; ".join(_way(found, family) for family in found.families)
    return (
        f"{_verdict(found)} On {stats.m} contexts and {stats.V} tokens of the built-in stories ({stats.n:,} windows, "
        f"{stats.table.nnz} pairs), after {found.largest.trained.run.steps:,} steps, from the smallest d to the "
        f"largest: {ways}. Chance reaches {min(chances):.2f} to {max(chances):.2f}."
    )


def _verdict(found: Sizes) -> str:
    near = [one for one in found.networks if one.loss_gap <= NEAR]
    order = f"rank correlation of size and CE - H: {found.order:.2f}"
    nearer = f"A larger network comes {'nearer' if found.order < 0 else 'no nearer'} to the entropy ({order})"
    if not near:
        return f"{nearer}; none came within {NEAR:g} nats of it."
    first = min(near, key=lambda one: one.parameters)
    alike = sorted(near, key=lambda one: one.trained.comparison.context_similarity.value)
    return (
        f"{nearer}; the smallest within {NEAR:g} nats of it has {found.per_context(first):,.0f} parameters a context "
        f"({first.family}, d={first.dim}). Among those within {NEAR:g} nats, SIM of contexts with L_mm is "
        f"{_similarity(alike[0])} ({alike[0].family}, d={alike[0].dim}) to {_similarity(alike[-1])} "
        f"({alike[-1].family}, d={alike[-1].dim})."
    )


def _way(found: Sizes, family: str) -> str:
    first, last = found.families[family][0], found.families[family][-1]
    return (
        f"{family}, {found.per_context(first):,.0f} to {found.per_context(last):,.0f} parameters a context (d="
        f"{first.dim} to {last.dim}): CE - H = {first.loss_gap:.1e} to {last.loss_gap:.1e}, SIM of contexts "
        f"{_similarity(first)} to {_similarity(last)}"
    )


def _similarity(one: Sized) -> str:
    return f"{one.trained.comparison.context_similarity.value:.2f}"


def _table(found: Sizes) -> dict[str, Sequence[Any]]:
    numbers = ("context_similarity", "token_similarity", "context_pearson", "token_pearson")
    rows = [
        {
            "model": one.model,
            "layers": one.layers,
            "d": one.dim,
            "parameters": one.parameters,
            "per_context": found.per_context(one),
            "per_window": one.parameters / found.stats.n,
            "loss_gap": one.loss_gap,
            **{name: one.trained.comparison[name].value for name in numbers},
            "slope": found.slope(one.family),
        }
        for one in found.networks
    ]
    return {name: [row[name] for row in rows] for name in rows[0]}


def _figure(found: Sizes) -> Figure:
    def panel(title: str, label: str, of: Callable[[Sized], float], scale: Scale = "linear") -> LinePanel:
        curves = [
            Curve(family, np.array([found.per_context(one) for one in some]), np.array([of(one) for one in some]))
            for family, some in found.families.items()
        ]
        marks = [("one for each logit", float(found.stats.V))]
        return LinePanel(title, "parameters / m", label, curves, "log", scale, (), marks)

    panels = [
        panel("Loss above the entropy", "CE - H, nats", lambda one: one.loss_gap, "log"),
        panel("Contexts: SIM above chance", "SIM - chance", lambda one: one.above_chance("context_similarity")),
        panel("Tokens: SIM above chance", "SIM - chance", lambda one: one.above_chance("token_similarity")),
    ]
    caption = (
        f"Networks of growing width, trained alike on {found.stats.m} contexts, against their number of parameters for "
        "each context. Left: how far the loss stays above the entropy. Middle, right: structural similarity of the "
        "cosines between contexts, and between words, with those of L_mm, less what one permutation in twenty reaches "
        "(which grows with d)."
    )
    return Figure("overparameterisation", "Loss and geometry against size", caption, panels, columns=3)
