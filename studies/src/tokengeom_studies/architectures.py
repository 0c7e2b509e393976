"""The geometry of five network architectures trained on the same text.

The theory uses supports and embeddings, and does not mention attention, gates or state spaces: any network that is
expressive enough and trained long enough should converge to the geometry of free embeddings. Five architectures and a
model of unconstrained features are trained on the same statistics with the same settings, and compared with the
prediction at the loss that each has reached, with L_mm, and with each other. Every network here ends in a norm. Without
one, LSTM and MLP reached the same loss in the small size with SIM of contexts with L_mm of only 0.44 and 0.54
(docs/experiments.md has the measurements).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from tokengeom import FeaturePrediction, NextTokenStatistics, predict
from tokengeom.extending import AGREES, AbstractProgress, Agreement, Figure, Float, HeatmapPanel, level_of
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.feature_runs import count_stories
from tokengeom_studies.common.network_runs import (
    Trained,
    agreement_table,
    compare_runs,
    floor_check,
    gain_checks,
    require_device,
    train_and_compare,
    train_ufm_and_compare,
    training_curves,
)
from tokengeom_studies.common.trainings import PlannedTraining, network_training, ufm_training

NETWORKS = ("transformer", "mamba", "xlstm", "lstm", "mlp")
UFM = "UFM"
AT_LOSS, LIMIT = "at its loss", "L_mm"
ITEMS = {"contexts": "context", "tokens": "token"}
Pairs = Mapping[tuple[str, str], Mapping[str, Agreement]]


@dataclass(frozen=True, eq=False)
class Architectures:
    """Models by name, each compared with the prediction, and every pair of them compared with each other."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    models: Mapping[str, Trained]
    pairs: Pairs

    @property
    def columns(self) -> list[str]:
        """What each model is compared with: every model, the prediction at its own loss, and L_mm."""
        return [*self.models, AT_LOSS, LIMIT]

    def agreements(self, item: str) -> Float:
        """Agreement of every model (rows) with everything in `columns`; 1 for a model with itself."""
        names = list(self.models)
        values = np.eye(len(names), len(self.columns))
        for (one, other), found in self.pairs.items():
            i, j = names.index(one), names.index(other)
            values[i, j] = values[j, i] = found[f"{item}_agreement"].value
        values[:, -2] = [one.agreement(item).value for one in self.models.values()]
        values[:, -1] = [one.in_limit(item).value for one in self.models.values()]
        return values


class ArchitecturesStudy(AbstractStudy):
    """Transformer, Mamba, xLSTM, LSTM, MLP and unconstrained features on the same text."""

    question: ClassVar[str] = "Do networks of five architectures converge to the same geometry?"
    # Every network has the same width, layers and training settings. Small has few contexts and tokens, so that 48
    # dimensions are more than the rank of L_mm.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "stories": 3000,
        "context": 4,
        "contexts": 100,
        "vocabulary": 40,
        "layers": 2,
        "heads": 4,
        "dim": 48,
        "steps": 400,
        "learning_rate": 3e-3,
        "weight_decay": 1e-6,
        "schedule": "cosine",
        "ufm_steps": 1_000,
        "ufm_learning_rate": 3e-3,
        "device": "cpu",
        "draws": 100,
    }
    paper: ClassVar[Recipe] = {
        "seed": 0,
        "stories": 3000,
        "context": 4,
        "contexts": 400,
        "vocabulary": 104,
        "layers": 4,
        "heads": 6,
        "dim": 128,
        "steps": 30_000,
        "learning_rate": 1e-4,
        "weight_decay": 1e-6,
        "schedule": "papers",
        "ufm_steps": 30_000,
        "ufm_learning_rate": 1e-4,
        "device": "cuda",
        "draws": 1000,
    }

    def trainings(self, recipe: Recipe) -> list[PlannedTraining]:
        """One training per architecture, and one of unconstrained features."""
        return [*(network_training(recipe, model) for model in NETWORKS), ufm_training(recipe)]

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count and predict once, train each model, compare each with the prediction and with the others."""
        require_device(recipe)
        stats = count_stories(recipe, progress)
        prediction = predict(stats, progress=progress)
        models = {
            name: train_and_compare(stats, prediction, recipe, model=name, progress=progress) for name in NETWORKS
        }
        models[UFM] = train_ufm_and_compare(stats, prediction, recipe, progress)
        pairs = {
            (a, b): compare_runs(prediction, models[a].run, models[b].run, recipe) for a, b in combinations(models, 2)
        }
        found = Architectures(stats, prediction, models, pairs)
        figures = [
            _heatmap(found),
            training_curves(models, "Five networks and free embeddings (UFM), trained on the same text."),
        ]
        tables = {"agreement": agreement_table(models), "pairs": _pair_table(pairs)}
        return self.findings(recipe, _sentence(found), _checks(found), figures, tables)


def _checks(found: Architectures) -> list[Check]:
    checks = [Check("relative gap of L_mm", found.prediction.certificate.relative_gap, high=1e-6)]
    for name, one in found.models.items():
        checks += gain_checks(name, one, loss_gap=5e-2)
    for items, item in ITEMS.items():
        between = [
            floor_check(f"agreement of {items} between two models that agree least", pair[f"{item}_agreement"])
            for pair in found.pairs.values()
        ]
        checks.append(min(between, key=lambda check: check.value))
    return checks


def _sentence(found: Architectures) -> str:
    ends = "; ".join(
        f"{name} {_rise(one, 'context')} and {_rise(one, 'token')} (loss gap {one.run.loss_gap:.0e})"
        for name, one in found.models.items()
    )
    floor = {item: max(one.agreement(item).floor for one in found.models.values()) for item in ITEMS.values()}
    between = " and ".join(_range_of_pairs(found.pairs, items) for items in ITEMS)
    return (
        f"{_verdict(found.models)} Agreement of contexts and of tokens with the prediction at the loss reached, before "
        f"and after training on {found.stats.m} contexts and {found.stats.V} tokens of the built-in stories: {ends}; "
        f"floors are at most {floor['context']:.2f} and {floor['token']:.2f}. Between two models, agreement is "
        f"{between}. {_beside_models(found)}"
    )


def _beside_models(found: Architectures) -> str:
    """How many models agree with the prediction better than with any other model."""
    count = len(found.models)
    ahead = []
    for items, item in ITEMS.items():
        values = found.agreements(item)
        others = np.where(np.eye(count, dtype=bool), -1.0, values[:, :count]).max(axis=1)
        ahead.append(f"the {items} of {int(np.sum(values[:, count] > others))}")
    return f"Of {count} models, {' and '.join(ahead)} agree with the prediction better than with any other model."


def _verdict(models: Mapping[str, Trained]) -> str:
    rule = f"above the floor and at least {AGREES:g}"
    near = [name for name, one in models.items() if level_of(one.agreement("context")) == "agrees"]
    apart = [name for name in models if name not in near]
    if not apart:
        return f"The contexts of all {len(models)} models agree with the prediction ({rule})."
    if not near:
        return f"The contexts of none of the {len(models)} models agree with the prediction ({rule})."
    return (
        f"The contexts of these models agree with the prediction ({rule}): {', '.join(near)}; those of {_list(apart)} "
        "do not after these steps."
    )


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _rise(one: Trained, item: str) -> str:
    number = one.agreement(item)
    return f"{number.untrained:.2f} to {number.value:.2f}"


def _range_of_pairs(pairs: Pairs, items: str) -> str:
    numbers = {pair: found[f"{ITEMS[items]}_agreement"] for pair, found in pairs.items()}
    low, high = min(numbers, key=lambda p: numbers[p].value), max(numbers, key=lambda p: numbers[p].value)
    floor = max(number.floor for number in numbers.values())
    return (
        f"{numbers[low].value:.2f} ({' and '.join(low)}) to {numbers[high].value:.2f} ({' and '.join(high)}) for "
        f"{items} (floors at most {floor:.2f})"
    )


def _pair_table(pairs: Pairs) -> Table:
    rows = [
        {"one": one, "other": other, "number": number, **agreement.to_dict()}
        for (one, other), found in pairs.items()
        for number, agreement in found.items()
    ]
    return table_of(rows)


def _heatmap(found: Architectures) -> Figure:
    shown: dict[str, Any] = {
        "x_names": found.columns,
        "y_names": list(found.models),
        "x_breaks": [len(found.models)],
        "low": 0.0,
        "high": 1.0,
        "colour_label": "agreement",
    }
    panels = [
        HeatmapPanel(f"Agreement of {items}", found.agreements(item), "", "", **shown) for items, item in ITEMS.items()
    ]
    lowest = " and ".join(_range_of_pairs(found.pairs, items) for items in ITEMS)
    caption = (
        "Correlation of the cosines between contexts of different supports (left) and between different tokens (right) "
        "for every two models trained on the same text, and of each model with the prediction at its own loss and in "
        f"the limit, L_mm; 1 is the same geometry. The agreement of two models is {lowest}."
    )
    return Figure("architectures", "One text, five architectures", caption, panels)
