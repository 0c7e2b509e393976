"""Next-token probabilities at power 1: cosines of the centred probabilities themselves."""

from __future__ import annotations

from tokengeom.comparison.explanations.probabilities import CentredProbabilities


class ProbabilityCosines(CentredProbabilities):
    """``M[z,j] = p_jz - 1/V``; contexts are its columns and tokens its rows."""

    name = "cos P"
    meaning = "cosines of centred next-token probabilities"
    order = 5
    power = 1.0
