"""Whether the supports of a text as it is, with its own counts, predict the geometry that a transformer gives it.

The published comparison is on simplified stories: contexts multiplied by synonyms, counts drawn at random [zhao2024].
Here nothing is simplified: the commonest contexts of a text (``text``, a path) with all that follows them, as often as
it does. In such a text many tokens followed a context only once or twice, so that the study is made a second time with
the supports cut by a policy (``support``), and the first run is held against the cut supports too, and against other
explanations of its geometry that use the same counts. Without a path the built-in stories are read; a grammar writes
them, so that they show how the study works and nothing about natural text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tokengeom.errors import InputError
from tokengeom.figures.base import Figure
from tokengeom.figures.heatmaps import feature_heatmaps
from tokengeom.geometry.compare import Comparison, compare
from tokengeom.geometry.rivals import Rivals, rivals
from tokengeom.progress import AbstractProgress
from tokengeom.statistics.count import count
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.studies.base import AbstractStudy, Check, Findings, Recipe
from tokengeom.studies.feature_runs import Tables, count_all_stories
from tokengeom.studies.network_runs import (
    Trained,
    agreement_table,
    ending,
    gain_checks,
    require_device,
    trained_network,
    trained_ufm,
    training_curves,
)
from tokengeom.theory.features import FeaturePrediction, predict_features

RAW = "raw"
TRANSFORMER, UFM = "transformer", "UFM"


@dataclass(frozen=True, eq=False)
class Column:
    """One support policy: the statistics that it leaves, their prediction, and the models trained on them."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    models: Mapping[str, Trained]


@dataclass(frozen=True, eq=False)
class NaturalText:
    """What was found: raw supports, cut ones, and the raw transformer against the cut ones and other explanations."""

    text: str
    policy: str
    columns: Mapping[str, Column]
    crossed: Comparison
    explanations: Rivals

    @property
    def named(self) -> dict[str, Trained]:
        """Every run by model and policy."""
        return {f"{model}, {p} supports": x for p, c in self.columns.items() for model, x in c.models.items()}


class NaturalTextStudy(AbstractStudy):
    """A text with its own supports and counts."""

    name: ClassVar[str] = "natural-text"
    question: ClassVar[str] = "Do the supports of a text with its own counts predict the geometry of a transformer?"

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count, cut, predict and train for both policies, compare."""
        require_device(recipe)
        policy = recipe["support"]
        if policy == RAW:
            raise InputError("The study sets another support policy beside raw; got support='raw'. Take count:3, say.")
        counted = _count(recipe, progress)
        columns = {p: _column(counted, p, recipe, progress) for p in (RAW, policy)}
        crossed = _crossed(columns[RAW], columns[policy], recipe)
        found = NaturalText(recipe["text"], policy, columns, crossed, _explanations(columns[RAW], recipe))
        tables: Tables = {
            "agreement": _agreements(found),
            "supports": _support_table(columns),
            "explanations": _explanation_table(found.explanations),
        }
        return Findings(_sentence(found), _checks(found), _figures(found), tables)


def _count(recipe: Recipe, progress: AbstractProgress) -> NextTokenStatistics:
    if not recipe["text"]:
        return count_all_stories(recipe, progress)
    return count(recipe["text"], context=recipe["context"], separator=recipe["separator"], progress=progress)


def _column(counted: NextTokenStatistics, policy: str, recipe: Recipe, progress: AbstractProgress) -> Column:
    stats = counted.limited(contexts=recipe["contexts"], vocabulary=recipe["vocabulary"], support=policy)
    with progress.stage("Predicting", None):
        prediction = predict_features(stats)
    if prediction.rank == 0:
        raise InputError(
            f"A geometry is predicted only where some token never follows a context; in this text all {stats.V} tokens "
            f"follow each of the {stats.m} contexts (supports: {policy}). Take a longer context or a larger vocabulary."
        )
    network = trained_network(stats, prediction, recipe, progress=progress)
    return Column(stats, prediction, {TRANSFORMER: network, UFM: trained_ufm(stats, prediction, recipe, progress)})


def _crossed(raw: Column, cut: Column, recipe: Recipe) -> Comparison:
    """Hold the transformer that saw every count against the prediction from the cut supports."""
    run, draws = raw.models[TRANSFORMER].run, recipe["draws"]
    H = run.H[:, _places(raw.stats, cut.stats)]
    return compare(cut.prediction, (run.W, H), resamples=draws, permutations=draws, seed=recipe["seed"])


def _explanations(raw: Column, recipe: Recipe) -> Rivals:
    draws, run = recipe["draws"], raw.models[TRANSFORMER].run
    options = {"resamples": draws, "permutations": draws, "seed": recipe["seed"]}
    return rivals(raw.stats, run, raw.prediction, held_out=0.0, **options)


def _places(raw: NextTokenStatistics, cut: NextTokenStatistics) -> NDArray[np.int64]:
    """Where the contexts of the cut statistics stand among the raw ones; a policy may leave a context nothing."""
    place = {tuple(row): j for j, row in enumerate(np.asarray(raw.contexts).tolist())}
    return np.array([place[tuple(row)] for row in np.asarray(cut.contexts).tolist()], np.int64)


def _checks(found: NaturalText) -> list[Check]:
    gaps = [column.prediction.certificate.relative_gap for column in found.columns.values()]
    checks = [Check("largest relative gap of L_mm", max(gaps), high=1e-6)]
    for name, one in found.named.items():
        checks += gain_checks(name, one, loss_gap=5e-2)
    return checks


def _sentence(found: NaturalText) -> str:
    stats = found.columns[RAW].stats
    ends = "; ".join(ending(name, one) for name, one in found.named.items())
    contexts, tokens = found.crossed.context_similarity, found.crossed.token_similarity
    return (
        f"On the {stats.m} commonest contexts and {stats.V} tokens of {_source(found.text)}: {ends}. The transformer "
        f"that saw every count has SIM {contexts.value:.3f} [{contexts.low:.3f}, {contexts.high:.3f}] for contexts and "
        f"{tokens.value:.3f} [{tokens.low:.3f}, {tokens.high:.3f}] for tokens with the L_mm of {found.policy} supports. "
        f"{_best_explanations(found.explanations)}"
    )


def _best_explanations(found: Rivals) -> str:
    told = []
    for items in found.items:
        first, second = found.of(items)[:2]
        verdict = "clearly before" if second.behind.is_clear else "in a tie with"
        told.append(
            f"its {items} are explained best by {first.rival} (SIM {first.similarity.value:.3f}), {verdict} "
            f"{second.rival} ({second.similarity.value:.3f})"
        )
    return f"Of the explanations made from these counts, {' and '.join(told)}."


def _source(text: str) -> str:
    if text:
        return Path(text).name
    return "the built-in stories, which a grammar writes and which are no natural text (give one with text=PATH)"


def _agreements(found: NaturalText) -> dict[str, list[Any]]:
    table = {name: list(column) for name, column in agreement_table(found.named, "run").items()}
    run = f"{TRANSFORMER}, {RAW} supports, against {found.policy}"
    for number, agreement in found.crossed.agreements.items():
        row = {"run": run, "number": number, **agreement.to_dict(), "before": float("nan")}
        for name, column in table.items():
            column.append(row[name])
    return table


def _support_table(columns: Mapping[str, Column]) -> dict[str, Sequence[Any]]:
    rows = [
        {
            "support": policy,
            "windows": column.stats.n,
            "contexts": column.stats.m,
            "tokens": column.stats.V,
            "entropy": column.stats.entropy,
            "supports": int(column.stats.groups.multiplicity.size),
            "median_support": float(np.median(column.stats.support_sizes)),
            "one_hot_share": column.stats.one_hot_share,
            "rank_of_L_mm": column.prediction.rank,
            "proxy_above_optimum": column.prediction.proxy_nuclear_norm / column.prediction.nuclear_norm - 1,
        }
        for policy, column in columns.items()
    ]
    return {name: [row[name] for row in rows] for name in rows[0]}


def _explanation_table(found: Rivals) -> dict[str, Sequence[Any]]:
    rows = [
        {"items": row.items, "explanation": row.rival, **row.similarity.to_dict(), "behind": row.behind.value}
        for row in found.rows
    ]
    return {name: [row[name] for row in rows] for name in rows[0]}


def _figures(found: NaturalText) -> list[Figure]:
    what = "Models trained on every count (raw) and on cut supports, each against the L_mm of its own supports."
    figures = [training_curves(found.named, what)]
    for policy, column in found.columns.items():
        runs = {model: one.run for model, one in column.models.items()}
        drawn = feature_heatmaps(column.prediction, runs, stats=column.stats)
        name = "raw" if policy == RAW else "cut"
        figures.append(replace(drawn, name=f"heatmaps-{name}-supports", title=f"{drawn.title}: {policy} supports"))
    return figures
