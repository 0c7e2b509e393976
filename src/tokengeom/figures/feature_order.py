"""One order of contexts and tokens for every heat-map of learned features: that of the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengeom.figures.base import HeatmapPanel
from tokengeom.figures.names import context_names, token_names
from tokengeom.figures.ordering import Order, order_groups
from tokengeom.numerics import Float
from tokengeom.theory.feature_prediction import FeaturePrediction, cosines

MANY = 400
"""Contexts or tokens beyond which a heat-map shows an even selection: more would be smaller than a pixel."""


@dataclass(frozen=True, eq=False)
class FeatureOrder:
    """Contexts and tokens in the order of the prediction, with their names in that order."""

    contexts: Order
    tokens: Order
    context_names: Sequence[str]
    token_names: Sequence[str]
    m: int
    V: int

    def context_cosines(self, title: str, H: Float) -> HeatmapPanel:
        """Cosines between contexts' embeddings (columns of H, d x m), chosen and ordered."""
        values = cosines(H[:, self.contexts.indices])
        names, breaks = self.context_names, self.contexts.breaks
        return HeatmapPanel(title, values, "contexts", "contexts", names, names, breaks, breaks, -1.0, 1.0, "cosine")

    def word_cosines(self, title: str, W: Float) -> HeatmapPanel:
        """Cosines between words' embeddings (rows of W, V x d), chosen and ordered."""
        values = cosines(W[self.tokens.indices].T)
        names, breaks = self.token_names, self.tokens.breaks
        return HeatmapPanel(title, values, "tokens", "tokens", names, names, breaks, breaks, -1.0, 1.0, "cosine")

    def logits(
        self, title: str, L: Float, low: float | None = None, high: float | None = None, label: str = ""
    ) -> HeatmapPanel:
        """A V x m matrix, chosen and ordered."""
        values = np.asarray(L[np.ix_(self.tokens.indices, self.contexts.indices)], dtype=np.float64)
        return HeatmapPanel(
            title,
            values,
            "contexts",
            "tokens",
            self.context_names,
            self.token_names,
            self.contexts.breaks,
            self.tokens.breaks,
            low,
            high,
            label,
        )

    def sentence(self) -> str:
        """How the heat-maps are ordered, for a caption."""
        shown = self.contexts.indices.size, self.tokens.indices.size
        chosen = "" if shown == (self.m, self.V) else f" Shown are {shown[0]} contexts and {shown[1]} tokens."
        return (
            f"{self.m} contexts, {self.V} tokens. Contexts with the same possible next tokens stand together, and so "
            "do tokens with the same contexts (thin lines part these groups); groups with a high predicted cosine are "
            f"neighbours. All panels share this order.{chosen}"
        )


def feature_order(prediction: FeaturePrediction, stats: Any = None, *, most: int | None = MANY) -> FeatureOrder:
    """Order contexts and tokens by support group and predicted cosines; names come from the statistics."""
    m, V = prediction.reduction.m, prediction.reduction.V
    contexts = order_groups(prediction.context_groups, prediction.context_cosines).thinned(most)
    tokens = order_groups(prediction.word_groups, prediction.word_cosines).thinned(most)
    names = contexts.names(context_names(stats, m)), tokens.names(token_names(stats, V))
    return FeatureOrder(contexts, tokens, *names, m, V)
