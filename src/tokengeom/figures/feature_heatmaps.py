"""Geometry found and geometry predicted, side by side: cos(H, H), cos(W, W) and L for runs, L^mm and the proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tokengeom.errors import InputError
from tokengeom.figures.base import Figure
from tokengeom.figures.curves import scaled_logits
from tokengeom.figures.feature_order import MANY, feature_order
from tokengeom.numerics import Float
from tokengeom.theory.closed_forms import proxy
from tokengeom.theory.feature_prediction import FeaturePrediction
from tokengeom.training.run import Run

Factors = tuple[Float, Float]


def feature_heatmaps(
    prediction: FeaturePrediction,
    runs: Mapping[str, Run | Factors] | None = None,
    *,
    stats: Any = None,
    most: int | None = MANY,
) -> Figure:
    """One column a source (each run or pair (W, H), then L^mm, then the proxy), one row a matrix, all in one order."""
    sources = {name: _factors(name, run, prediction) for name, run in (runs or {}).items()}
    sources["L^mm"] = (prediction.W, prediction.H)
    sources["proxy S~"] = balanced_factors(proxy(dense(prediction.P) > 0))
    order = feature_order(prediction, stats, most=most)
    logits = {name: scaled_logits(W @ H) for name, (W, H) in sources.items()}
    reach = max(float(np.abs(L).max(initial=0.0)) for L in logits.values()) or 1.0
    panels = [
        *(order.context_cosines(f"cos(H, H): {name}", H) for name, (_, H) in sources.items()),
        *(order.word_cosines(f"cos(W, W): {name}", W) for name, (W, _) in sources.items()),
        *(order.logits(f"logits: {name}", L, -reach, reach, "scaled logit") for name, L in logits.items()),
    ]
    caption = (
        f"Cosines between contexts (top) and between words (middle), and logits (bottom; columns centred, root mean "
        f"square 1), for {_list(sources)}. L^mm is what theory predicts of training; the proxy S~ is the matrix of "
        f"supports with its columns centred. {order.sentence()} Proven relative gap of L^mm: "
        f"{prediction.certificate.relative_gap:.1e}; rank {prediction.rank}."
    )
    return Figure("feature-heatmaps", "Geometry found and geometry predicted", caption, panels, columns=len(sources))


def balanced_factors(L: Float) -> Factors:
    """``W = U Sigma^{1/2}`` and ``H = Sigma^{1/2} V^T`` of a V x m matrix: its geometry as embeddings."""
    U, s, Vt = np.linalg.svd(L, full_matrices=False)
    kept = s > 1e-10 * max(float(s[0]), 1e-300)
    return U[:, kept] * np.sqrt(s[kept]), np.sqrt(s[kept])[:, None] * Vt[kept]


def dense(matrix: Any) -> Float:
    """A V x m matrix, sparse or not, as an array."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)


def _factors(name: str, run: Run | Factors, prediction: FeaturePrediction) -> Factors:
    W, H = (run.W, run.H) if isinstance(run, Run) else run
    V, m = prediction.reduction.V, prediction.reduction.m
    if W.shape[0] != V or H.shape[1] != m or W.shape[1] != H.shape[0]:
        raise InputError(
            f"A run must have W with {V} rows and H with {m} columns, as predicted; '{name}' has W {W.shape} and "
            f"H {H.shape}. Likely it was trained on other statistics."
        )
    return W, H


def _list(names: Any) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else str(last)
