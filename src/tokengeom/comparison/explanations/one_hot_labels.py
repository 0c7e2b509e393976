"""SELI: the geometry of classification with one-hot labels and unequal classes [thrampoulidis2022]."""

from __future__ import annotations

from tokengeom.comparison.explanations.base import AbstractLogitRival, ContextStatistics, most_frequent
from tokengeom.core.numerics import Float


class OneHotLabels(AbstractLogitRival):
    """``M = (I - 11^T/V) Y``, the centred one-hot labels (simplex-encoded labels interpolation).

    where ``Y`` (V x m) is 1 at each context's most frequent next token; equally frequent ones share the 1.
    """

    name = "SELI"
    meaning = "classification geometry of each context's most frequent next token"
    order = 2
    uses = "most frequent next tokens"

    def values(self, contexts: ContextStatistics, background: Float) -> Float:
        return most_frequent(contexts.P)
