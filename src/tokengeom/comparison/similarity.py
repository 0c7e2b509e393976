"""How alike two geometries are, and how far contexts collapse: no number changes under a rotation or a softmax shift.

===========================  ========  ====  ========================================================================
number                       range     best  over
===========================  ========  ====  ========================================================================
``directional_similarity``   (-1, 1]   1     all entries of two cosine matrices: SIM of the papers
``directional_agreement``    [-1, 1]   1     pairs of items of different groups: correlation of cosines
``cosine``                   [-1, 1]   1     entries of two arrays
===========================  ========  ====  ========================================================================

A number that is not defined (nothing varies, a matrix is 0) is NaN. W and H are known up to ``W R, R^T H`` with R
orthogonal, so Gram matrices and cosines are compared instead of W and H. Logits are known up to a constant per column,
that is W up to ``W + 1 a^T``, so the mean token is subtracted first (`Factors.tokens`).

The numbers from factors need no m x m matrix, and are cheap enough for every record of a run. With
``x_ij = X_i . X_j`` and ``y_ij = Y_i . Y_j`` they need sums over pairs of items alone, and

``sum_ij x_ij y_ij = ||X Y^T||_F^2``,   ``sum_ij x_ij = ||X 1||^2``

where ``X`` (p x m) and ``Y`` (q x m) hold the items (contexts or tokens) of two geometries as columns. This costs
``m p q`` products and ``p q`` numbers of memory instead of ``m^2 (p + q)`` and ``m^2``. Sums over pairs of different
groups are those over all pairs less those within each group.

Collapse: how far contexts with the same label, or the same support, share one direction.

Subspace collapse (soft labels) predicts that contexts with equal supports get equal directions, whatever their
probabilities [zhao2024]. Its score is

``(1 - 1/K) tr(Sigma_W) / tr(Sigma_B)``,  0 = collapsed, ``(m - K)/K`` on average for directions without structure

where

``x_j``       direction ``h_j / ||h_j||`` of context j, d; ``mu_g`` mean direction of group g, ``mu`` of all
``Sigma_W``   scatter of ``x_j`` about ``mu_g``, averaged over the contexts that share their group with another
``Sigma_B``   scatter of ``mu_g`` about ``mu``, averaged over contexts
``K``         number of groups

In the one-hot case the groups are the classes and this is NC1 of the directions: the two numbers are equal when the
class means form the predicted simplex frame and the noise lies in its span. NC1 itself, ``tr(Sigma_W Sigma_B^+)/C``,
ignores noise outside the span of the means and diverges when the means are nearly dependent, as those of support groups
are; the ratio of traces does neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from tokengeom.comparison.agreement import AbstractNumbers, Better, ItemKind, Name
from tokengeom.core.errors import ProblemError
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Bool, Float, Int, unit_columns

STABILISER = 1e-5
"""C of SIM: keeps the ratio defined where a matrix is constant; entries of cosine matrices vary far more."""
NO_VARIATION = 1e-12
"""A variance below this, of entries of size 1, is rounding: correlations with it mean nothing."""

_Sum = Float | float
"""A sum over pairs of items, or one per selection."""


def cosine(X: Float, Y: Float) -> float:
    """``<X, Y> / (||X||_F ||Y||_F)`` of two arrays of the same shape; 1 is the same direction, NaN when either is 0."""
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    if X.shape != Y.shape:
        raise ProblemError(
            f"Two geometries must have the same shape to be compared; got {X.shape} and {Y.shape}. "
            "Likely a transposed matrix, or statistics other than those that the run was trained on."
        )
    size = float(np.linalg.norm(X)) * float(np.linalg.norm(Y))
    return float(np.clip(np.vdot(X, Y) / size, -1.0, 1.0)) if size > 0 else float("nan")


def directional_similarity(target: Float, run: Float) -> float:
    """SIM of the cosine matrices A, B of unit columns ``target`` (p x m) and ``run`` (q x m) [zhao2024].

    It is the structural term of SSIM, ``(cov(A, B) + C) / (sd(A) sd(B) + C)`` over all entries, where ``cov`` and
    ``sd`` divide by their number. In (-1, 1], 1 is best: A is an increasing affine map of B. The diagonal of ones
    counts on both sides, so unrelated cosine matrices score above 0: compare SIM with a permutation null. If one of the
    matrices is constant, SIM is 1 by its formula and carries no information.

    Items without a direction in the target (a column of 0: full support) are left out, because nothing is predicted
    for them. NaN when fewer than two remain.
    """
    kept = with_direction(target)
    if not kept.all():
        target, run = target[:, kept], run[:, kept]
    if target.shape[1] < 2:
        return float("nan")
    return float(correlation_of_sums(*_pair_sums(target, run), stabiliser=STABILISER))


def directional_agreement(target: Float, run: Float, groups: Int | None = None) -> float:
    """Correlation of the cosines of unit columns ``target`` (p x m) and ``run`` (q x m) over pairs of different groups.

    ``groups`` (m) numbers the groups; None where each item is its own. Items without a direction in the target are left
    out. NaN where there are no pairs or one side does not vary.
    """
    kept = with_direction(target)
    X, Y = target[:, kept], run[:, kept]
    sums = _pair_sums(X, Y)
    if groups is None:
        # Pairs of each item with itself.
        x, y = np.einsum("ij,ij->j", X, X), np.einsum("ij,ij->j", Y, Y)
        inside = np.array([X.shape[1], np.sum(X * X), np.sum(Y * Y), x @ x, y @ y, x @ y])
    else:
        labels = groups[kept]
        order = np.argsort(labels, kind="stable")
        ends = np.flatnonzero(np.diff(labels[order])) + 1
        inside = np.sum([_pair_sums(X[:, part], Y[:, part]) for part in np.split(order, ends)], axis=0)
    return float(correlation_of_sums(*(sums - inside)))


def _pair_sums(X: Float, Y: Float) -> Float:
    """Number of pairs, and sums of x, y, x^2, y^2 and x y over them, each item with itself among them."""
    n, d = X.shape[1], max(X.shape[0], Y.shape[0])
    if n < d:
        x, y = X.T @ X, Y.T @ Y
        return np.array([n * n, x.sum(), y.sum(), np.vdot(x, x), np.vdot(y, y), np.vdot(x, y)])
    first = [np.sum(A.sum(axis=1) ** 2) for A in (X, Y)]
    return np.array([n * n, *first, *(np.sum((A @ B.T) ** 2) for A, B in ((X, X), (Y, Y), (X, Y)))])


def correlation_of_sums(
    pairs: _Sum, x: _Sum, y: _Sum, xx: _Sum, yy: _Sum, xy: _Sum, *, stabiliser: float = 0.0
) -> Float:
    """Correlation from sums over pairs; with a stabiliser it is SIM. NaN where there are no pairs or nothing varies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_x, mean_y, mean_xx, mean_yy, mean_xy = (total / np.asarray(pairs) for total in (x, y, xx, yy, xy))
        variance_x, variance_y = np.maximum(mean_xx - mean_x**2, 0.0), np.maximum(mean_yy - mean_y**2, 0.0)
        covariance = mean_xy - mean_x * mean_y
        if stabiliser:
            return np.asarray((covariance + stabiliser) / (np.sqrt(variance_x * variance_y) + stabiliser))
        varied = np.minimum(variance_x, variance_y) > NO_VARIATION
        return np.where(varied, np.clip(covariance / np.sqrt(variance_x * variance_y), -1.0, 1.0), np.nan)


def row_correlations(x: Float, y: Float, apart: Bool) -> Float:
    """Correlation of each row of x with that of y (b x n) where ``apart``; NaN where one does not vary."""
    pairs = np.maximum(apart.sum(axis=1), 1.0)
    x, y = (np.where(apart, row - (np.where(apart, row, 0.0).sum(axis=1) / pairs)[:, None], 0.0) for row in (x, y))
    xx, yy, xy = ((a * b).sum(axis=1) / pairs for a, b in ((x, x), (y, y), (x, y)))
    varies = np.minimum(xx, yy) > NO_VARIATION
    correlation = np.clip(xy / np.sqrt(np.where(varies, xx * yy, 1.0)), -1.0, 1.0)
    return np.where(varies, correlation, np.nan)


def with_direction(unit: Float) -> Bool:
    """Which columns, each of norm 1 or 0, have a direction."""
    return np.asarray(np.einsum("ij,ij->j", unit, unit) > 0.5)


def directed_in_all(geometries: Iterable[Float]) -> Int:
    """Items that have a direction in every geometry, of which each has one item per column; none without geometries."""
    directed = [columns.any(axis=0) for columns in geometries]
    return np.flatnonzero(np.logical_and.reduce(directed)) if directed else np.zeros(0, dtype=np.int64)


def subspace_collapse(H: Float, labels: Int) -> float:
    """Scatter of the directions of H's columns within groups over between groups; 0 is complete collapse.

    ``H`` is d x m and ``labels`` (m) numbers the groups. Contexts with a negative label (full support, no predicted
    direction) and columns of 0 are left out. NaN when no group has two contexts or all groups coincide.
    """
    X, group = directions_and_groups(H, labels)
    if X.shape[1] == 0:
        return float("nan")
    size = np.bincount(group)
    means = group_means(X, group)
    shared = size[group] > 1
    spread = float(np.sum((means - X.mean(axis=1, keepdims=True)) ** 2 @ size)) / group.size
    if not (shared.any() and spread > 0):
        return float("nan")
    within = float(np.sum((X - means[:, group])[:, shared] ** 2)) / int(shared.sum())
    return (1.0 - 1.0 / size.size) * within / spread


def directions_and_groups(H: Float, labels: Int) -> tuple[Float, Int]:
    """Directions (d x m') and groups numbered from 0 (m') of the columns that have both."""
    H, labels = np.asarray(H, dtype=np.float64), np.asarray(labels)
    if H.ndim != 2 or labels.shape != (H.shape[1],):
        raise ProblemError(
            f"Every column of H (d x m) needs one label; got H of shape {H.shape} and labels of shape "
            f"{labels.shape}. Likely a transposed H, or labels of other contexts."
        )
    kept = (labels >= 0) & (np.linalg.norm(H, axis=0) > 0)
    return unit_columns(H[:, kept]), numbered(labels[kept])


def numbered(labels: Int) -> Int:
    """Equal labels as equal numbers from 0, in the order of the labels."""
    return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)


def group_means(X: Float, group: Int) -> Float:
    """Mean of X's columns in each group, d x K."""
    return np.asarray(group_sums(X, group) / np.bincount(group))


def group_sums(X: Float, group: Int) -> Float:
    """Sum of X's columns in each group, d x K."""
    member = csr_array((np.ones(group.size), (group, np.arange(group.size))))
    return np.asarray((member @ np.ascontiguousarray(X.T)).T)


@dataclass(frozen=True, eq=False)
class CollapseNumbers(AbstractNumbers):
    """``collapse``: the score of the run's context directions by support group."""

    permutes_items: ClassVar[bool] = True
    run: Factors
    labels: Int
    items: ItemKind = "contexts"

    @cached_property
    def _data(self) -> tuple[Float, Int]:
        return directions_and_groups(self.run.H, self.labels)

    @property
    def units(self) -> Int:
        return self._data[1]

    @property
    def better(self) -> Mapping[Name, Better]:
        return {("", "collapse"): "lower"}

    def values(self) -> Mapping[Name, float]:
        return {("", "collapse"): subspace_collapse(self.run.H, self.labels)}

    def resampled(self, draws: Float) -> Mapping[Name, Float]:
        X, group = self._data
        return {("", "collapse"): np.array([subspace_collapse(X[:, w > 0], group[w > 0]) for w in draws])}

    def permuted(self, orders: Int) -> Mapping[Name, Float]:
        X, group = self._data
        return {("", "collapse"): np.array([subspace_collapse(X, group[order]) for order in orders])}
