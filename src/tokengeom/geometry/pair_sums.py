"""SIM of two cosine matrices in closed form, without an m x m matrix: cheap enough for every record of a run.

With ``x_ij = X_i . X_j`` and ``y_ij = Y_i . Y_j``, all that SIM needs are sums over pairs of items, and

``sum_ij x_ij y_ij = ||X Y^T||_F^2``,   ``sum_ij x_ij = ||X 1||^2``

where ``X`` (p x m) and ``Y`` (q x m) hold the items (contexts or words) of two geometries as columns, so that it costs
``m p q`` products and ``p q`` numbers of memory instead of ``m^2 (p + q)`` and ``m^2``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokengeom.geometry.similarity import STABILISER

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.columns import Bool


def directional_similarity(target: Float, run: Float) -> float:
    """SIM of the cosine matrices of unit columns ``target`` (p x m) and ``run`` (q x m).

    Items to which the target gives no direction (a column of 0: full support) are left out, as nothing is predicted
    for them. NaN when fewer than two are left.
    """
    kept = with_direction(target)
    if not kept.all():
        target, run = target[:, kept], run[:, kept]
    pairs = target.shape[1] ** 2
    if target.shape[1] < 2:
        return float("nan")
    mean_x, mean_y = np.sum(target.sum(axis=1) ** 2) / pairs, np.sum(run.sum(axis=1) ** 2) / pairs
    variance_x = np.sum((target @ target.T) ** 2) / pairs - mean_x**2
    variance_y = np.sum((run @ run.T) ** 2) / pairs - mean_y**2
    covariance = np.sum((target @ run.T) ** 2) / pairs - mean_x * mean_y
    size = np.sqrt(max(variance_x, 0.0) * max(variance_y, 0.0))
    return float((covariance + STABILISER) / (size + STABILISER))


def with_direction(unit: Float) -> Bool:
    """Which unit columns are a direction, and not 0."""
    return np.asarray(np.einsum("ij,ij->j", unit, unit) > 0.5)
