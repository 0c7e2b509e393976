"""Next-token probabilities: contexts are alike where the same tokens are equally likely after both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokengeom.geometry.explanations.base import AbstractLogitRival

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from tokengeom.numerics import Float


class CentredProbabilities(AbstractLogitRival):
    """``M[z,j] = p_jz - 1/V``."""

    name = "P"
    meaning = "centred next-token probabilities"
    order = 4

    def values(self, P: csc_array, background: Float) -> Float:
        """The probabilities themselves."""
        return np.asarray(P.data)
