"""Whether networks that read a context in five different ways end in the same geometry.

The theory knows of supports and of embeddings, not of attention, gates or state spaces: any network that is expressive
enough, trained long enough, should end where free embeddings do. Five architectures and a model of unconstrained
features are trained on the same statistics, with the same settings, and held against L_mm and against one another.
Every network here ends in a norm. Without one, LSTM and MLP reached the same loss in the small size with SIM of
contexts 0.44 and 0.54 only (docs/experiments.md says what was measured of the reason).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.geometry.agreement import Agreement
from tokengeom.numerics import Float
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import count_stories
from tokengeom.studies.network_runs import (
    Trained,
    agreement_table,
    gain_checks,
    require_device,
    runs_agree,
    trained_network,
    trained_ufm,
    training_curves,
)
from tokengeom.theory.features import FeaturePrediction, predict_features
from tokengeom.training.settings import NETWORKS

UFM = "UFM"
NEAR = 0.7
"""SIM of contexts from which on a model is said to have come near L_mm."""
ITEMS = {"contexts": "context_similarity", "tokens": "token_similarity"}
Pairs = Mapping[tuple[str, str], Mapping[str, Agreement]]


@dataclass(frozen=True, eq=False)
class Architectures:
    """Models by name, each held against the prediction, and every pair of them held against each other."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    models: Mapping[str, Trained]
    pairs: Pairs

    @property
    def names(self) -> list[str]:
        """The models, and L_mm behind them."""
        return [*self.models, "L_mm"]

    def similarities(self, number: str) -> Float:
        """SIM of every model with every other, and with L_mm in the last row and column; 1 on the diagonal."""
        values = np.eye(len(self.names))
        for i, j in combinations(range(len(self.names)), 2):
            one, other = self.names[i], self.names[j]
            found = self.models[one].comparison if j == len(self.models) else self.pairs[one, other]
            values[i, j] = values[j, i] = found[number].value
        return values


class ArchitecturesStudy(AbstractStudy):
    """Transformer, Mamba, xLSTM, LSTM, MLP and unconstrained features on the same text."""

    name: ClassVar[str] = "architectures"
    question: ClassVar[str] = "Do networks of five architectures end in the same geometry?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count and predict once, train each model, compare each with L_mm and with the others."""
        require_device(recipe)
        stats = count_stories(recipe, progress)
        prediction = predict_features(stats)
        models = {name: trained_network(stats, prediction, recipe, model=name, progress=progress) for name in NETWORKS}
        models[UFM] = trained_ufm(stats, prediction, recipe, progress)
        pairs = {(a, b): runs_agree(models[a].run, models[b].run, recipe) for a, b in combinations(models, 2)}
        found = Architectures(stats, prediction, models, pairs)
        figures = [
            _heatmap(found),
            training_curves(models, "Five networks and free embeddings (UFM), trained on the same text."),
        ]
        tables = {"agreement": agreement_table(models), "pairs": _pair_table(pairs)}
        return Findings(_sentence(found), _checks(found), figures, tables)


def _checks(found: Architectures) -> list[Check]:
    checks = [Check("relative gap of L_mm", found.prediction.certificate.relative_gap, high=1e-6)]
    for name, one in found.models.items():
        checks += gain_checks(name, one, loss_gap=5e-2)
    for items, number in ITEMS.items():
        above = [pair[number].value - pair[number].null for pair in found.pairs.values()]
        checks.append(Check(f"smallest SIM of {items} of two models above chance", min(above), low=0.0))
    return checks


def _sentence(found: Architectures) -> str:
    ends = "; ".join(
        f"{name} {_rise(one, 'context_similarity')} and {_rise(one, 'token_similarity')} "
        f"(CE - H = {one.run.loss_gap:.0e})"
        for name, one in found.models.items()
    )
    chance = {n: max(one.comparison[n].null for one in found.models.values()) for n in ITEMS.values()}
    alike = " and ".join(_range_of_pairs(found.pairs, items) for items in ITEMS)
    return (
        f"{_verdict(found.models)} SIM with L_mm of contexts and of tokens, before and after training on "
        f"{found.stats.m} contexts and {found.stats.V} tokens of the built-in stories: {ends}; chance reaches "
        f"{chance['context_similarity']:.2f} and {chance['token_similarity']:.2f}. With one another, the models "
        f"agree by SIM {alike}."
    )


def _verdict(models: Mapping[str, Trained]) -> str:
    near = [name for name, one in models.items() if one.comparison.context_similarity.value >= NEAR]
    apart = [name for name in models if name not in near]
    if not apart:
        return f"All {len(models)} models come near the predicted geometry (SIM of contexts above {NEAR})."
    if not near:
        return f"None of the {len(models)} models came near the predicted geometry (SIM of contexts above {NEAR})."
    return (
        f"{', '.join(near)} come near the predicted geometry (SIM of contexts above {NEAR}); {', '.join(apart)} stay "
        "away from it within these steps."
    )


def _rise(one: Trained, number: str) -> str:
    return f"{one.before(number):.2f} to {one.comparison[number].value:.2f}"


def _range_of_pairs(pairs: Pairs, items: str) -> str:
    values = {pair: found[ITEMS[items]].value for pair, found in pairs.items()}
    low, high = min(values, key=lambda p: values[p]), max(values, key=lambda p: values[p])
    return (
        f"{values[low]:.2f} ({' and '.join(low)}) to {values[high]:.2f} ({' and '.join(high)}) for {items} (chance "
        f"{pairs[low][ITEMS[items]].null:.2f})"
    )


def _pair_table(pairs: Pairs) -> dict[str, Sequence[Any]]:
    rows = [
        {"one": one, "other": other, "number": number, **agreement.to_dict()}
        for (one, other), found in pairs.items()
        for number, agreement in found.items()
    ]
    return {column: [row[column] for row in rows] for column in rows[0]}


def _heatmap(found: Architectures) -> Figure:
    names = found.names
    panels = []
    for items, number in ITEMS.items():
        values = found.similarities(number)
        panels.append(
            HeatmapPanel(f"SIM of {items}", values, "", "", names, names, low=0.0, high=1.0, colour_label="SIM")
        )
    lowest = " and ".join(_range_of_pairs(found.pairs, items) for items in ITEMS)
    caption = (
        "Structural similarity (SIM) of the cosines between contexts (left) and between words (right) of every two "
        f"models trained on the same text, and with the prediction L_mm; 1 is the same geometry. Two models agree by "
        f"{lowest}."
    )
    return Figure("architectures", "One text, five architectures", caption, panels)
