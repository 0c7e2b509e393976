"""What a run is held against: the geometry of L_mm, and that of the proxy, as factors.

``M = U Sigma V^T``,  ``W = U Sigma^{1/2}`` (V x r),  ``H = Sigma^{1/2} V^T`` (r x m),  for M = L_mm and M = S~

Tokens and contexts of both are compared through their cosines and Grams, which do not depend on the rotation that W and
H are free up to. Factors are kept, not V x m or m x m matrices, so that a comparison costs no more than a step of
training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.factors import Factors
from tokengeom.theory.closed_forms import RANK_TOLERANCE

if TYPE_CHECKING:
    from tokengeom.problems.supports import SupportReduction


def direction_factors(prediction: Any) -> Factors:
    """Tokens and contexts of L_mm, as a prediction gives them."""
    return Factors(prediction.W, prediction.H)


def proxy_factors(reduction: SupportReduction) -> Factors:
    """Tokens and contexts of ``S~``, from the merged pattern: same rows and columns get the same vectors."""
    a, n = reduction.a, reduction.n
    merged = reduction.S_red - (a @ reduction.S_red) / reduction.V
    U, s, Vt = np.linalg.svd(merged * np.sqrt(a)[:, None] * np.sqrt(n), full_matrices=False)
    r = int((s > RANK_TOLERANCE * s[0]).sum()) if s.size else 0
    W = U[:, :r] / np.sqrt(a)[:, None] * np.sqrt(s[:r])
    H = np.sqrt(s[:r])[:, None] * Vt[:r] / np.sqrt(n)
    padded = np.concatenate([H, np.zeros((r, 1))], axis=1)
    return Factors(W[reduction.row_of], padded[:, reduction.column_of])
