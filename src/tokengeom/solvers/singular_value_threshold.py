"""Singular-value threshold of a wide or tall matrix through the eigenvectors of its smaller Gram matrix.

``prox_{tau ||.||_*}(M) = Q diag((1 - tau/s)_+) Q^T M``   with   ``M M^T = Q diag(s^2) Q^T``

where ``M`` is V x m (the transpose is used when V > m), ``s`` its singular values. No SVD of M is needed: one
Gram product, one symmetric eigendecomposition of the smaller side, one or two products. Singular values below
1e-8 of the largest are rounding, but the threshold removes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokengeom.problems.arrays import Array, Arrays


@dataclass(frozen=True)
class Thresholded:
    """``X`` with its rank and nuclear norm, both free by-products."""

    X: Array
    rank: int
    nuclear_norm: float


def singular_value_threshold(arrays: Arrays, M: Array, tau: float) -> Thresholded:
    """Shrink every singular value of M by tau, those below it to 0."""
    if M.shape[0] > M.shape[1]:
        turned = singular_value_threshold(arrays, M.T, tau)
        return Thresholded(turned.X.T, turned.rank, turned.nuclear_norm)
    eigenvalues, Q = arrays.xp.linalg.eigh(M @ M.T)
    s = arrays.at_least(eigenvalues, 0.0) ** 0.5
    rank = int((s > tau).sum())
    kept = s[s.shape[0] - rank :]
    Q = Q[:, Q.shape[1] - rank :]
    shrunk = Q * (1.0 - tau / kept)
    # Two thin products cost 4 V r m, the V x V operator then one product 2 V^2 (r + m): take the cheaper.
    X = (shrunk @ Q.T) @ M if 2 * rank > M.shape[0] else shrunk @ (Q.T @ M)
    return Thresholded(X, rank, float((kept - tau).sum()))
