"""The geometry of five network architectures trained on the same text.

The theory uses supports and embeddings, and does not mention attention, gates or state spaces: any network that is
expressive enough and trained long enough should converge to the geometry of free embeddings. Five architectures and a
model of unconstrained features are trained on the same statistics with the same settings, and compared with L_mm and
with each other. Every network here ends in a norm. Without one, LSTM and MLP reached the same loss in the small size
with SIM of contexts of only 0.44 and 0.54 (docs/experiments.md has the measurements).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np

from tokengeom.figures.base import Figure, HeatmapPanel
from tokengeom.geometry.agreement import Agreement
from tokengeom.numerics import Float
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe, Table, table_of
from tokengeom.studies.common.feature_runs import count_stories
from tokengeom.studies.common.network_runs import (
    Trained,
    agreement_table,
    compare_runs,
    gain_checks,
    require_device,
    train_and_compare,
    train_ufm_and_compare,
    training_curves,
)
from tokengeom.theory.features import FeaturePrediction
from tokengeom.theory.predict import predict

NETWORKS = ("transformer", "mamba", "xlstm", "lstm", "mlp")
UFM = "UFM"
NEAR = 0.7
"""SIM of contexts from which a model is said to be near L_mm."""
ITEMS = {"contexts": "context_similarity", "tokens": "token_similarity"}
Pairs = Mapping[tuple[str, str], Mapping[str, Agreement]]


@dataclass(frozen=True, eq=False)
class Architectures:
    """Models by name, each compared with the prediction, and every pair of them compared with each other."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    models: Mapping[str, Trained]
    pairs: Pairs

    @property
    def names(self) -> list[str]:
        """Names of the models, and L_mm last."""
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

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count and predict once, train each model, compare each with L_mm and with the others."""
        require_device(recipe)
        stats = count_stories(recipe, progress)
        prediction = predict(stats, progress=progress)
        models = {
            name: train_and_compare(stats, prediction, recipe, model=name, progress=progress) for name in NETWORKS
        }
        models[UFM] = train_ufm_and_compare(stats, prediction, recipe, progress)
        pairs = {(a, b): compare_runs(models[a].run, models[b].run, recipe) for a, b in combinations(models, 2)}
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
    for items, number in ITEMS.items():
        above = [pair[number].value - pair[number].null for pair in found.pairs.values()]
        checks.append(Check(f"smallest SIM of {items} between two models, above chance", min(above), low=0.0))
    return checks


def _sentence(found: Architectures) -> str:
    ends = "; ".join(
        f"{name} {_rise(one, 'context_similarity')} and {_rise(one, 'token_similarity')} "
        f"(loss gap {one.run.loss_gap:.0e})"
        for name, one in found.models.items()
    )
    chance = {n: max(one.comparison[n].null for one in found.models.values()) for n in ITEMS.values()}
    between = " and ".join(_range_of_pairs(found.pairs, items) for items in ITEMS)
    return (
        f"{_verdict(found.models)} SIM with L_mm of contexts and of tokens, before and after training on "
        f"{found.stats.m} contexts and {found.stats.V} tokens of the built-in stories: {ends}; chance is at most "
        f"{chance['context_similarity']:.2f} and {chance['token_similarity']:.2f}. Between two models, SIM is "
        f"{between}."
    )


def _verdict(models: Mapping[str, Trained]) -> str:
    near = [name for name, one in models.items() if one.comparison.context_similarity.value >= NEAR]
    apart = [name for name in models if name not in near]
    if not apart:
        return f"All {len(models)} models are near the predicted geometry (SIM of contexts at least {NEAR})."
    if not near:
        return f"None of the {len(models)} models is near the predicted geometry (SIM of contexts at least {NEAR})."
    return (
        f"Near the predicted geometry (SIM of contexts at least {NEAR}): {', '.join(near)}; not near it after these "
        f"steps: {', '.join(apart)}."
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


def _pair_table(pairs: Pairs) -> Table:
    rows = [
        {"one": one, "other": other, "number": number, **agreement.to_dict()}
        for (one, other), found in pairs.items()
        for number, agreement in found.items()
    ]
    return table_of(rows)


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
        "Structural similarity (SIM) of the cosines between contexts (left) and between tokens (right) for every two "
        f"models trained on the same text, and with the prediction L_mm; 1 is the same geometry. SIM of two models is "
        f"{lowest}."
    )
    return Figure("architectures", "One text, five architectures", caption, panels)
