"""From sparsity to geometry: S | S~ | L^mm in one order."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokengeom.figures.base import Figure
from tokengeom.figures.feature_heatmaps import dense
from tokengeom.figures.feature_order import MANY, feature_order
from tokengeom.numerics import centre_columns
from tokengeom.theory.closed_forms import proxy
from tokengeom.theory.feature_prediction import FeaturePrediction


def pattern_triple(prediction: FeaturePrediction, *, stats: Any = None, most: int | None = MANY) -> Figure:
    """Draw the support pattern, its centred proxy, and the certified direction."""
    S = dense(prediction.P) > 0
    S_tilde, L_mm = proxy(S), centre_columns(prediction.L_mm)
    order = feature_order(prediction, stats, most=most)
    reach = float(max(np.abs(S_tilde).max(), np.abs(L_mm).max())) or 1.0
    panels = [
        order.logits("S: which token may follow", S.astype(np.float64), 0.0, 1.0, "1 = may follow"),
        order.logits("S~: columns centred (proxy)", S_tilde, -reach, reach, "logit"),
        order.logits("L^mm: predicted direction", L_mm, -reach, reach, "logit"),
    ]
    distance = float(np.linalg.norm(S_tilde / _norm(S_tilde) - L_mm / _norm(L_mm)))
    caption = (
        f"Left: the support pattern, which is all that the direction depends on. Middle: the proxy S~, its columns "
        f"centred; nuclear norm {prediction.proxy_nuclear_norm:.6g}. Right: L^mm, the matrix of smallest nuclear norm "
        f"({prediction.nuclear_norm:.6g}, proven within {prediction.certificate.relative_gap:.1e}) that keeps every "
        f"possible next token at least 1 above every impossible one. Distance of the two, normalised: {distance:.3f}. "
        f"{prediction.proxy_sentence} {order.sentence()}"
    )
    return Figure("pattern-triple", "From sparsity to geometry", caption, panels, columns=3)


def _norm(L: Any) -> float:
    return float(np.linalg.norm(L)) or 1.0
