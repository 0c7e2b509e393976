"""The finite part of the logits, L_in: centred log-probabilities on support."""

from __future__ import annotations

from tokengeom.comparison.explanations.base import AbstractLogitRival, ContextStatistics
from tokengeom.comparison.logit_numbers import FiniteLogits
from tokengeom.core.numerics import Float


class FinitePart(AbstractLogitRival):
    """``M = L_in``: log-probabilities on support with their mean removed; 0 for a context with one next token."""

    name = "L_in"
    meaning = "log-count part of the logits, which stays finite"
    order = 7
    uses = "probabilities"

    def values(self, contexts: ContextStatistics, background: Float) -> Float:
        return FiniteLogits.of(contexts.P).value
