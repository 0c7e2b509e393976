"""The geometry of a transformer trained on a text with its own supports and counts.

The comparison of [zhao2024] is on simplified stories: contexts multiplied by synonyms, and counts drawn at random. Here
nothing is simplified: the data are the most frequent contexts of a text (``text``, a path) and everything that follows
them, as often as it does. In such a text many tokens follow a context only once or twice. So the study is repeated with
supports cut by a policy (``support``), and the first run is also compared with the prediction from the cut supports and
with other explanations of its geometry that use the same counts. Without a path the built-in stories are read; a
grammar writes them, so they show how the study works and say nothing about natural text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from tokengeom import Comparison, FeaturePrediction, NextTokenStatistics, Rivals, compare, count, predict, rivals
from tokengeom.extending import AbstractProgress, Figure, InputError, Int, feature_heatmaps
from tokengeom_studies.base import AbstractStudy, Check, Findings, Recipe, Table, table_of
from tokengeom_studies.common.feature_runs import count_all_stories
from tokengeom_studies.common.network_runs import (
    ITEMS,
    Trained,
    agreement_table,
    gain_checks,
    outcome,
    require_device,
    train_and_compare,
    train_ufm_and_compare,
    training_curves,
    with_interval,
)
from tokengeom_studies.common.trainings import PlannedTraining, network_training, ufm_training

RAW = "raw"
TRANSFORMER, UFM = "transformer", "UFM"


@dataclass(frozen=True, eq=False)
class Variant:
    """One support policy: its statistics, their prediction, and the models trained on them."""

    stats: NextTokenStatistics
    prediction: FeaturePrediction
    models: Mapping[str, Trained]


@dataclass(frozen=True, eq=False)
class NaturalText:
    """Raw and cut supports, and further comparisons of the transformer trained on raw supports.

    ``raw_with_cut``
        Its comparison with the prediction from the cut supports.
    ``explanations``
        Its comparison with other explanations.
    """

    text: str
    policy: str
    variants: Mapping[str, Variant]
    raw_with_cut: Comparison
    explanations: Rivals

    @property
    def named(self) -> dict[str, Trained]:
        """Every run by model and policy."""
        return {f"{model}, {p} supports": x for p, v in self.variants.items() for model, x in v.models.items()}


class NaturalTextStudy(AbstractStudy):
    """A text with its own supports and counts."""

    question: ClassVar[str] = "Do the supports of a text with its own counts predict the geometry of a transformer?"
    # text is the path of a text, with separator between its documents; if it is empty, the built-in stories are used.
    # For a text of millions of tokens, use more contexts and tokens, and a dim above the rank of L_mm, which is below
    # the vocabulary.
    small: ClassVar[Recipe] = {
        "seed": 0,
        "text": "",
        "separator": "auto",
        "stories": 3000,
        "context": 4,
        "contexts": 200,
        "vocabulary": 60,
        "support": "count:3",
        "layers": 2,
        "heads": 4,
        "dim": 64,
        "steps": 500,
        "learning_rate": 2e-3,
        "weight_decay": 1e-6,
        "schedule": "cosine",
        "ufm_steps": 1_000,
        "ufm_learning_rate": 3e-3,
        "device": "cpu",
        "draws": 100,
    }
    paper: ClassVar[Recipe] = {
        "seed": 0,
        "text": "",
        "separator": "auto",
        "stories": 3000,
        "context": 4,
        "contexts": 400,
        "vocabulary": 104,
        "support": "count:3",
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
        """Both models, on raw supports and on cut ones."""
        return [network_training(recipe, count=2), ufm_training(recipe, count=2)]

    def run(self, recipe: Recipe, progress: AbstractProgress) -> Findings:
        """Count, cut, predict and train for both policies, and compare."""
        require_device(recipe)
        policy = recipe["support"]
        if policy == RAW:
            raise InputError(
                "The study compares raw supports with another policy; got support='raw'. Give one such as count:3."
            )
        counted = _count(recipe, progress)
        variants = {p: _variant(counted, p, recipe, progress) for p in (RAW, policy)}
        crossed = _raw_with_cut(variants[RAW], variants[policy], recipe)
        found = NaturalText(recipe["text"], policy, variants, crossed, _explanations(variants[RAW], recipe))
        tables = {
            "agreement": _agreements(found),
            "supports": _support_table(variants),
            "explanations": _explanation_table(found.explanations),
        }
        return self.findings(recipe, _sentence(found), _checks(found), _figures(found), tables)


def _count(recipe: Recipe, progress: AbstractProgress) -> NextTokenStatistics:
    if not recipe["text"]:
        return count_all_stories(recipe, progress)
    return count(recipe["text"], context=recipe["context"], separator=recipe["separator"], progress=progress)


def _variant(counted: NextTokenStatistics, policy: str, recipe: Recipe, progress: AbstractProgress) -> Variant:
    stats = counted.limited(top_contexts=recipe["contexts"], vocabulary=recipe["vocabulary"], support=policy)
    prediction = predict(stats, progress=progress)
    if prediction.rank == 0:
        raise InputError(
            f"A geometry is predicted only where some token never follows a context; in this text all {stats.V} tokens "
            f"follow each of the {stats.m} contexts (supports: {policy}). Use a longer context or a larger vocabulary."
        )
    network = train_and_compare(stats, prediction, recipe, progress=progress)
    ufm = train_ufm_and_compare(stats, prediction, recipe, progress)
    return Variant(stats, prediction, {TRANSFORMER: network, UFM: ufm})


def _raw_with_cut(raw: Variant, cut: Variant, recipe: Recipe) -> Comparison:
    """The transformer trained on raw supports, compared with L_mm of the cut supports.

    The prediction at its loss is left out: on cut statistics, what it learned about the dropped pairs counts as error.
    """
    run = raw.models[TRANSFORMER].run
    factors = run.W, run.H[:, _places(raw.stats, cut.stats)]
    return compare(cut.prediction, factors, at_loss=False, permutations=recipe["draws"], seed=recipe["seed"])


def _explanations(raw: Variant, recipe: Recipe) -> Rivals:
    run = raw.models[TRANSFORMER].run
    draws = {"permutations": recipe["draws"], "seed": recipe["seed"]}
    return rivals(raw.stats, run, raw.prediction, held_out=0.0, **draws)


def _places(raw: NextTokenStatistics, cut: NextTokenStatistics) -> Int:
    """Index of each context of the cut statistics among the raw ones; a context that loses every token is left out."""
    place = {tuple(row): j for j, row in enumerate(np.asarray(raw.contexts).tolist())}
    return np.array([place[tuple(row)] for row in np.asarray(cut.contexts).tolist()], np.int64)


def _checks(found: NaturalText) -> list[Check]:
    gaps = [variant.prediction.certificate.relative_gap for variant in found.variants.values()]
    checks = [Check("largest relative gap of L_mm", max(gaps), high=1e-6)]
    for name, one in found.named.items():
        checks += gain_checks(name, one, loss_gap=5e-2)
    return checks


def _sentence(found: NaturalText) -> str:
    stats = found.variants[RAW].stats
    ends = "; ".join(outcome(name, one) for name, one in found.named.items())
    crossed = found.raw_with_cut.in_limit
    contexts, tokens = (with_interval(crossed[f"{item}_agreement"]) for item in ITEMS)
    return (
        f"On the {stats.m} most frequent contexts and {stats.V} tokens of {_source(found.text)}: {ends}. With the L_mm "
        f"of {found.policy} supports, the agreement of the transformer trained on raw supports is {contexts} for "
        f"contexts and {tokens} for tokens. {_best_explanations(found.explanations)}"
    )


def _best_explanations(found: Rivals) -> str:
    parts = []
    for items in found.items:
        first, second = found.of(items)[:2]
        verdict = "clearly ahead of" if second.behind.is_clear else "tied with"
        parts.append(
            f"'{first.rival}' fits its {items} best (agreement {first.agreement.value:.3f}), {verdict} "
            f"'{second.rival}' ({second.agreement.value:.3f})"
        )
    return f"Of {len(found.of('contexts'))} explanations of its geometry, {' and '.join(parts)}."


def _source(text: str) -> str:
    if text:
        return Path(text).name
    return "the built-in stories, which a grammar writes and which are not natural text (give one with text=PATH)"


def _agreements(found: NaturalText) -> Table:
    table = {name: list(column) for name, column in agreement_table(found.named, "run").items()}
    run = f"{TRANSFORMER}, {RAW} supports, compared with {found.policy}"
    for number, agreement in found.raw_with_cut.agreements.items():
        row = {"run": run, "number": number, **agreement.to_dict(), "before": float("nan")}
        for name, column in table.items():
            column.append(row[name])
    return table


def _support_table(variants: Mapping[str, Variant]) -> Table:
    rows = [
        {
            "support": policy,
            "windows": variant.stats.n,
            "contexts": variant.stats.m,
            "tokens": variant.stats.V,
            "entropy": variant.stats.entropy,
            "supports": int(variant.stats.groups.multiplicity.size),
            "median_support": float(np.median(variant.stats.support_sizes)),
            "one_hot_share": variant.stats.one_hot_share,
            "rank_of_L_mm": variant.prediction.rank,
            "proxy_above_optimum": variant.prediction.proxy_nuclear_norm / variant.prediction.nuclear_norm - 1,
        }
        for policy, variant in variants.items()
    ]
    return table_of(rows)


def _explanation_table(found: Rivals) -> Table:
    rows = [
        {"items": row.items, "explanation": row.rival, **row.agreement.to_dict(), "behind": row.behind.value}
        for row in found.rows
    ]
    return table_of(rows)


def _figures(found: NaturalText) -> list[Figure]:
    runs_are = "Models trained on raw and on cut supports, each compared with the L_mm of its own supports."
    figures = [training_curves(found.named, runs_are)]
    for policy, variant in found.variants.items():
        runs = {model: one.run for model, one in variant.models.items()}
        drawn = feature_heatmaps(variant.prediction, runs, stats=variant.stats)
        name = "raw" if policy == RAW else "cut"
        figures.append(replace(drawn, name=f"heatmaps-{name}-supports", title=f"{drawn.title}: {policy} supports"))
    return figures
