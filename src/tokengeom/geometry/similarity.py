"""How alike two geometries are: numbers that do not change under a rotation or a softmax shift.

==========================  ========  ================  =====================================================
number                      range     best              does not depend on
==========================  ========  ================  =====================================================
``structural_similarity``   (-1, 1]   1                 offset of a matrix's entries, and (up to C) their scale
``linear_cka``              [0, 1]    1                 rotation, scale and offset of either set of points
``pearson_off_diagonal``    [-1, 1]   1                 offset and scale of the off-diagonal entries
``spearman_off_diagonal``   [-1, 1]   1                 any increasing map of the off-diagonal entries
``logit_distance``          [0, 2]    0                 scale, and a constant added to a column (softmax shift)
``cosine``                  [-1, 1]   1                 scale
==========================  ========  ================  =====================================================

A number that is not defined (nothing varies, a matrix is 0, an entry is not finite) is NaN. W and H are known up to
``W R, R^T H`` with R orthogonal, so Gram matrices and cosines are compared instead of W and H. Logits are known up to a
constant per column, that is W up to ``W + 1 a^T``, so the mean token is subtracted first (``centred_tokens``).

``directional_similarity`` is SIM of two cosine matrices without an m x m matrix, cheap enough for every record of a
run. With ``x_ij = X_i . X_j`` and ``y_ij = Y_i . Y_j``, SIM needs sums over pairs of items alone, and

``sum_ij x_ij y_ij = ||X Y^T||_F^2``,   ``sum_ij x_ij = ||X 1||^2``

where ``X`` (p x m) and ``Y`` (q x m) hold the items (contexts or tokens) of two geometries as columns. This costs
``m p q`` products and ``p q`` numbers of memory instead of ``m^2 (p + q)`` and ``m^2``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.numerics import centre_columns

if TYPE_CHECKING:
    from tokengeom.numerics import Bool, Float

STABILISER = 1e-5
"""C of SIM: keeps the ratio defined where a matrix is constant; entries of cosine matrices vary far more."""
NO_VARIATION = 1e-12
"""A variance below this, of entries of size 1, is rounding: correlations with it mean nothing."""


def structural_similarity(A: Float, B: Float, C: float = STABILISER) -> float:
    """SIM, the structural term of SSIM: ``(cov(A, B) + C) / (sd(A) sd(B) + C)`` over all entries [zhao2024].

    where ``A, B`` are matrices of the same shape, usually the cosines of a run and of a prediction, and ``cov``, ``sd``
    divide by the number of entries. In (-1, 1], 1 is best: A is an increasing affine map of B. The diagonal of ones
    counts on both sides, so unrelated cosine matrices score above 0: compare SIM with a permutation null. If one of the
    matrices is constant, SIM is 1 by its formula and carries no information.
    """
    A, B = _same_shape(A, B)
    a, b = A - A.mean(), B - B.mean()
    return float((np.mean(a * b) + C) / (np.sqrt(np.mean(a * a) * np.mean(b * b)) + C))


def linear_cka(A: Float, B: Float) -> float:
    """Linear centred kernel alignment ``||A_c B_c^T||_F^2 / (||A_c A_c^T||_F ||B_c B_c^T||_F)`` [kornblith2019].

    where ``A`` (p x n) and ``B`` (q x n) hold n points as columns, with the mean point removed. In [0, 1], 1 is best:
    the same points up to rotation, scale and offset. Norms matter, unlike in cosines. Few points in many dimensions
    give large values by chance. NaN when all points of one side coincide.
    """
    A, B = _as_matrix("A", A), _as_matrix("B", B)
    if A.shape[1] != B.shape[1]:
        raise ProblemError(
            f"CKA compares the same points: A and B need equally many columns; got A {A.shape} and B {B.shape}. "
            "Points are columns here: pass H as it is and W.T."
        )
    if A.size == 0 or B.size == 0:
        return float("nan")
    a, b = A - A.mean(axis=1, keepdims=True), B - B.mean(axis=1, keepdims=True)
    size = np.linalg.norm(a @ a.T) * np.linalg.norm(b @ b.T)
    return float(np.linalg.norm(a @ b.T) ** 2 / size) if size > 0 else float("nan")


def pearson_off_diagonal(A: Float, B: Float) -> float:
    """Pearson correlation of the entries above the diagonals of two symmetric n x n matrices; 1 is best.

    Unlike SIM it leaves out the diagonal, which is 1 on both sides whatever was learned. NaN where the entries of one
    side do not vary, as in an equiangular frame.
    """
    a, b = _above_diagonal(A, B)
    return _correlation(a, b)


def spearman_off_diagonal(A: Float, B: Float) -> float:
    """Spearman correlation of the entries above the diagonals: how well the order of similarities agrees; 1 is best.

    Ties share their mean rank. Entries that differ by rounding errors are not ties: round first where that matters.
    """
    from scipy.stats import rankdata

    a, b = _above_diagonal(A, B)
    if a.size == 0 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("nan")
    return _correlation(rankdata(a) / a.size, rankdata(b) / b.size)


def logit_distance(L: Float, L_mm: Float) -> float:
    """``|| L_c / ||L_c||_F - M_c / ||M_c||_F ||_F``, with ``L_c`` (V x m) centred in each column and M = L_mm.

    In [0, 2]: 0 is the same direction, sqrt(2) orthogonal, 2 opposite. It falls to 0 like 1/R as logits diverge along
    L_mm with norm R, since the finite part keeps its size. NaN when either is 0.
    """
    L, L_mm = _same_shape(L, L_mm)
    a, b = centre_columns(L), centre_columns(L_mm)
    size_a, size_b = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    if not (size_a > 0 and size_b > 0):
        return float("nan")
    return float(np.linalg.norm(a / size_a - b / size_b))


def cosine(X: Float, Y: Float) -> float:
    """``<X, Y> / (||X||_F ||Y||_F)`` of two arrays of the same shape; 1 is the same direction, NaN when either is 0."""
    X, Y = _same_shape(X, Y)
    size = float(np.linalg.norm(X)) * float(np.linalg.norm(Y))
    return float(np.clip(np.vdot(X, Y) / size, -1.0, 1.0)) if size > 0 else float("nan")


def centred_tokens(W: Float) -> Float:
    """``W^T`` (d x V) with the mean token removed: the part of W that softmax can see, one column per token."""
    return centre_columns(W).T


def _correlation(a: Float, b: Float) -> float:
    if a.size == 0:
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    variance = np.mean(a * a), np.mean(b * b)
    if not min(variance) > NO_VARIATION:
        return float("nan")
    return float(np.clip(np.mean(a * b) / np.sqrt(variance[0] * variance[1]), -1.0, 1.0))


def _above_diagonal(A: Float, B: Float) -> tuple[Float, Float]:
    A, B = _same_shape(A, B)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ProblemError(f"Off-diagonal entries need square matrices; got A and B of shape {A.shape}.")
    above = np.triu_indices(A.shape[0], k=1)
    return A[above], B[above]


def _as_matrix(name: str, X: Float) -> Float:
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise ProblemError(f"{name} must be a matrix; got {X.ndim} dimension(s), shape {X.shape}.")
    return X


def _same_shape(A: Float, B: Float) -> tuple[Float, Float]:
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    if A.shape != B.shape:
        raise ProblemError(
            f"Two geometries must have the same shape to be compared; got {A.shape} and {B.shape}. "
            "Likely a transposed matrix, or statistics other than those that the run was trained on."
        )
    return A, B


def directional_similarity(target: Float, run: Float) -> float:
    """SIM of the cosine matrices of unit columns ``target`` (p x m) and ``run`` (q x m).

    Items without a direction in the target (a column of 0: full support) are left out, because nothing is predicted
    for them. NaN when fewer than two remain.
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
    """Which columns, each of norm 1 or 0, have a direction."""
    return np.asarray(np.einsum("ij,ij->j", unit, unit) > 0.5)
