"""Directions of contexts and tokens on a text, grouped by support: blocks, agreement, SIM and angles.

`GroupedText` chooses the contexts of a text that are compared; `Directions` are those of a run, a prediction or a
simpler explanation on these contexts; `DirectionFindings` is what measured rows of them say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tokengeom import NextTokenStatistics
from tokengeom.extending import (
    FitInputs,
    Float,
    Int,
    centre_columns,
    cosines,
    directional_agreement,
    directional_similarity,
    explanation_classes,
    subspace_collapse,
    unit_columns,
)
from tokengeom_studies.base import Check, Recipe, Table, table_of
from tokengeom_studies.common.corrected import Measured, corrected, explained
from tokengeom_studies.common.measured import Answer, Interval, Row, decided
from tokengeom_studies.common.torch_runs import DeviceText, load_text

NUCLEAR, GAMMA2, LIMIT, PROXY, SUPPORTS = "at the loss, nuclear", "at the loss, gamma_2", "L_mm", "S~", "cos S~"

SAMPLED = 4_000
"""Contexts whose pairs are compared; of more, this many are drawn with a fixed seed."""
SETS = ("several", "all")
"""Contexts with several next tokens, and all contexts."""
SIMPLE = ("support_cosines", "proxy", "probability_cosines", "probabilities", "one_hot_labels", "simplex_frame")
"""Explanations that need no solver."""


class GroupedText:
    """The statistics, the contexts that are compared, and everything that is compared with a run."""

    def __init__(self, recipe: Recipe) -> None:
        self.stats: NextTokenStatistics = load_text(recipe)
        self.device = DeviceText(self.stats, recipe["device"])
        self.groups = np.asarray(self.stats.groups.label).astype(np.int64)
        sizes = np.asarray(self.stats.support_sizes)
        several = np.flatnonzero((sizes > 1) & (sizes < self.stats.V))
        self.sets = {"several": _sample(several), "all": _sample(np.flatnonzero(sizes < self.stats.V))}
        self.pictured = self._of_largest(several, recipe["supports"], recipe["each"])
        self.simple = dict(self._simple())
        self.names = list(recipe["tokens"]) or list(self.stats.vocabulary)

    def _of_largest(self, several: Int, supports: int, each: int) -> Int:
        """The most frequent contexts of the supports of several tokens that have the most contexts."""
        labels, sizes = np.unique(self.groups[several], return_counts=True)
        largest = labels[np.argsort(-sizes, kind="stable")[:supports]]
        frequent = several[np.argsort(-self.stats.pi[several], kind="stable")]
        parts = [frequent[self.groups[frequent] == label][:each] for label in largest]
        return np.concatenate([part for part in parts if part.size > 1])

    def _simple(self) -> Iterator[tuple[str, Directions]]:
        everything = np.arange(self.stats.m)
        for kind in explanation_classes(SIMPLE):
            for rival in kind.candidates(FitInputs().on(self.stats)):
                fit = rival.fit(self.stats)
                yield kind.name, Directions.of(self, fit.tokens(np.arange(self.stats.V)).T, fit.contexts(everything))

    @cached_property
    def limit(self) -> Directions:
        """L_mm."""
        return Directions.of(self, self.device.limit.W, self.device.limit.H)

    def facts(self) -> dict[str, Any]:
        """Sizes of the text, and the support of each context of the heat-map."""
        stats = self.stats
        return {
            "windows": stats.n,
            "contexts": stats.m,
            "tokens": stats.V,
            "entropy": stats.entropy,
            "supports": stats.groups.count,
            "one_hot_share": stats.one_hot_share,
            "several": int(self.sets["several"].size),
            "names": [self._support_name(int(j)) for j in self.pictured],
        }

    def _support_name(self, context: int) -> str:
        rows = self.stats.P[:, [context]].tocoo().row
        return f"{{{', '.join(repr(self.names[int(z)]) for z in sorted(rows))}}}"


def _sample(contexts: Int) -> Int:
    if contexts.size <= SAMPLED:
        return contexts
    return np.sort(np.random.default_rng(0).choice(contexts, SAMPLED, replace=False))


@dataclass(frozen=True, eq=False)
class Directions:
    """Directions of tokens and of the contexts that are compared, of a run or an explanation.

    where
        tokens     unit columns, d x V, the mean over tokens removed
        contexts   set -> unit columns, d x (contexts of the set)
        pictured   unit columns of the contexts of the heat-map
    """

    tokens: Float
    contexts: Mapping[str, Float]
    pictured: Float
    loss_gap: float = float("nan")

    @staticmethod
    def of(text: GroupedText, W: Float, H: Float, loss_gap: float = float("nan")) -> Directions:
        """The directions of W (V x d) and H (d x m)."""
        contexts = {name: unit_columns(H[:, which].astype(np.float64)) for name, which in text.sets.items()}
        pictured = unit_columns(H[:, text.pictured].astype(np.float64))
        return Directions(unit_columns(centre_columns(W.astype(np.float64)).T), contexts, pictured, loss_gap)

    def agreement(self, run: Directions, text: GroupedText) -> dict[str, float]:
        """Correlation of cosines over pairs of contexts with different supports, per set, and of different tokens."""
        of_sets = {
            name: directional_agreement(self.contexts[name], run.contexts[name], text.groups[text.sets[name]])
            for name in SETS
        }
        return {**of_sets, "tokens": directional_agreement(self.tokens, run.tokens)}

    def similarity(self, run: Directions) -> dict[str, float]:
        """The papers' SIM of the contexts of the heat-map, and of tokens."""
        return {
            "contexts": directional_similarity(self.pictured, run.pictured),
            "tokens": directional_similarity(self.tokens, run.tokens),
        }

    def blocks(self, text: GroupedText) -> dict[str, float]:
        """Mean cosines of the heat-map within and between supports, and the collapse of all supports of several."""
        C, group = cosines(self.pictured), text.groups[text.pictured]
        same = group[:, None] == group
        within = same & ~np.eye(group.size, dtype=bool)
        which = text.sets["several"]
        return {
            "within": float(C[within].mean()),
            "between": float(C[~same].mean()),
            "collapse": subspace_collapse(self.contexts["several"], text.groups[which]),
        }

    def angles(self, text: GroupedText) -> dict[str, float]:
        """Cosines between contexts with several next tokens and tokens, in and off the support, and their order."""
        which = text.sets["several"]
        S = text.stats.P[:, which].toarray() > 0
        C = self.tokens.T @ self.contexts["several"]
        lowest, highest = np.where(S, C, np.inf).min(axis=0), np.where(S, -np.inf, C).max(axis=0)
        sums = unit_columns(self.tokens @ S)
        return {
            "in support": float(C[S].mean()),
            "off support": float(C[~S].mean()),
            "ordered": float(np.mean(lowest > highest)),
            "with the sum of its tokens": float(np.mean(np.sum(sums * self.contexts["several"], axis=0))),
        }


class DirectionFindings:
    """Intervals over seeds, and what they decide."""

    def __init__(self, runs: Sequence[Row], pairs: Sequence[Row]) -> None:
        self.runs, self.pairs = runs, pairs

    def over(self, *names: str) -> Interval:
        """The interval of one number over seeds."""
        return Interval.of(_entry(row, names) for row in self.runs)

    def difference(self, first: str, second: str) -> Interval:
        """Paired difference of agreement on contexts with several next tokens."""
        values = [row["agreement"][first]["several"] - row["agreement"][second]["several"] for row in self.runs]
        return Interval.of(values)

    def reproducible(self, items: str) -> Interval:
        """Agreement between seeds."""
        return Interval.of(row[items] for row in self.pairs)

    def corrected(self, name: str, items: str) -> Interval:
        """Agreement with an explanation, corrected for the differences between seeds."""
        agreed: Measured = {(int(row["seed"]),): row["agreement"][name][items] for row in self.runs}
        return corrected(agreed, {tuple(row["seeds"]): row[items] for row in self.pairs})

    def answers(self) -> dict[str, Answer]:
        """One answer per hypothesis."""
        gap = self.over("loss_gap")
        apart = Interval.of(row["within"] - row["between"] for row in self.runs)
        between_seeds = self.reproducible("several").mean
        share = Interval.of(row["agreement"][GAMMA2]["several"] / between_seeds for row in self.runs)
        similarity = self.over("similarity", PROXY, "contexts")
        return {
            "entropy": Answer(decided(_negative(gap), -0.05), f"loss gap {_text(gap)} nats"),
            "blocks": Answer(decided(apart, 0.5), f"within less between: {_text(apart)}"),
            "collapse": Answer(decided(self.over("within"), 0.9), f"mean cosine within: {_text(self.over('within'))}"),
            "loss": self._nearer(LIMIT),
            "supports": self._nearer(SUPPORTS),
            "ceiling": Answer(decided(share, 0.9), f"share {_text(share)} of {_text(self.reproducible('several'))}")
            if self.pairs
            else Answer("undecided", "one seed"),
            "proxy": Answer(decided(similarity, 0.8), f"SIM {_text(similarity)}"),
            "angles": Answer(
                decided(self.over("angles", "ordered"), 0.95),
                f"share of contexts: {_text(self.over('angles', 'ordered'))}",
            ),
        }

    def _nearer(self, other: str) -> Answer:
        difference = self.difference(GAMMA2, other)
        values = (f"{name} {_text(self.over('agreement', name, 'several'))}" for name in (GAMMA2, other))
        return Answer(decided(difference), f"{'; '.join(values)}; difference {_text(difference)}")

    def corrected_table(self) -> Table:
        """Corrected agreement and explained share of every explanation; empty with one seed."""
        rows = []
        for name in self.runs[0]["agreement"] if self.pairs else ():
            row: dict[str, object] = {"explanation": name}
            for items in (*SETS, "tokens"):
                agreed = self.corrected(name, items)
                row |= {items: _text(agreed), f"{items}: explained": _text(explained(agreed))}
            rows.append(row)
        return table_of(rows) if rows else {}

    def agreement_table(self) -> Table:
        """Agreement and SIM of every explanation, and what two seeds agree to."""
        rows = []
        for name in self.runs[0]["agreement"]:
            agreed = {item: _text(self.over("agreement", name, item)) for item in (*SETS, "tokens")}
            similar = {f"SIM {item}": _text(self.over("similarity", name, item)) for item in ("contexts", "tokens")}
            rows.append({"explanation": name, **agreed, **similar})
        if self.pairs:
            agreed = {item: _text(self.reproducible(item)) for item in (*SETS, "tokens")}
            rows.append({"explanation": "reproducible", **agreed, "SIM contexts": "", "SIM tokens": ""})
        return table_of(rows)

    def block_table(self) -> Table:
        """Mean cosines of the contexts of the heat-map, of the network and as predicted."""
        return self._by_source((), "predicted_blocks", ("within", "between"))

    def angle_table(self) -> Table:
        """Cosines between contexts and tokens, of the network and as predicted."""
        return self._by_source(("angles",), "predicted_angles", list(self.runs[0]["angles"]))

    def _by_source(self, measured: Sequence[str], predicted: str, names: Sequence[str]) -> Table:
        """Numbers of the network, and of the predictions."""
        places = {"network": measured, **{name: (predicted, name) for name in (GAMMA2, LIMIT)}}
        return table_of(
            [
                {"source": source, **{name: _text(self.over(*place, name)) for name in names}}
                for source, place in places.items()
            ]
        )

    def checks(self) -> list[Check]:
        """Whether the runs have learned, and whether the predictions are proven."""
        proven = max(max(row["proven"].values()) for row in self.runs)
        return [
            Check("largest loss gap at the end", max(row["loss_gap"] for row in self.runs), high=1.0),
            Check("largest proven relative gap of a prediction", proven, high=2e-2),
        ]

    def sentence(self, text: Row) -> str:
        """The answers with their numbers."""
        decisions = ", ".join(f"{name}: {answer.decision}" for name, answer in self.answers().items())
        values = {name: _text(self.over("agreement", name, "several")) for name in (GAMMA2, LIMIT, SUPPORTS)}
        agreed = ", ".join(f"{value} with {name}" for name, value in values.items())
        return (
            f"On {text['contexts']:,} contexts and {text['tokens']} tokens (entropy {text['entropy']:.4f} nats), "
            f"{len(self.runs)} networks reach a loss gap of {_text(self.over('loss_gap'))} nats. Cosines are "
            f"{_text(self.over('within'))} within supports and {_text(self.over('between'))} between them. Agreement "
            f"on contexts with several next tokens: {agreed}. Hypotheses: {decisions}."
        )


def _entry(row: Row, names: Sequence[str]) -> float:
    value: Any = row
    for name in names:
        value = value[name]
    return float(value)


def _negative(interval: Interval) -> Interval:
    return Interval(-interval.mean, -interval.high, -interval.low, interval.count)


def _text(interval: Interval) -> str:
    """Mean and interval, and nothing where a number is not defined."""
    if not np.isfinite(interval.mean):
        return ""
    return str(interval)
