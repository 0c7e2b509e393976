"""Directions of contexts and tokens on a text, grouped by support: blocks, agreement, SIM and angles.

`GroupedText` chooses the contexts of a text that are compared; `Directions` are those of a run, a prediction or a
simpler explanation on these contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tokengeom.comparison.explanations.base import FitInputs, explanation_classes
from tokengeom.comparison.similarity import (
    centred_tokens,
    directional_agreement,
    directional_similarity,
    subspace_collapse,
)
from tokengeom.core.numerics import Float, Int, cosines, unit_columns
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom_studies.base import Recipe
from tokengeom_studies.common.torch_runs import DeviceText, load_text

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
            for one in kind.candidates(FitInputs(has_counts=self.stats.has_counts)):
                fit = one.fit(self.stats)
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
        return Directions(unit_columns(centred_tokens(W.astype(np.float64))), contexts, pictured, loss_gap)

    def agreement(self, run: Directions, text: GroupedText) -> dict[str, float]:
        """Correlation of cosines over pairs of contexts with different supports, per set, and of different tokens."""
        found = {
            name: directional_agreement(self.contexts[name], run.contexts[name], text.groups[text.sets[name]])
            for name in SETS
        }
        return {**found, "tokens": directional_agreement(self.tokens, run.tokens)}

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
