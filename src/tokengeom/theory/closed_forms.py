"""What is known in closed form about learned features: finite part, projections, proxy and when it is exact.

``L_in[z,j] = log p_{j,z} - mean_{z' in S_j} log p_{j,z'}`` on support, 0 elsewhere
``P_F(L)``: on support subtract the in-support mean of the column, elsewhere 0
``S~ = (I - 11^T/V) S``: feasible for NTP-SVM*, every margin exactly 1

where

``P``      next-token probabilities, V x m; ``S`` its support, V x m
``L``      logits, V x m
``F``      span of ``(e_z - e_z') e_j^T``, z, z' in S_j: where logits stay finite [zhao2024]

``S~ = U Sigma V^T`` (scaled by multiplicities) is optimal if ``U V^T <= 0`` off support. Also necessary
when no other dual exists: when the rank is V' - 1 (all directions that a dual may use on the left) or g (all
on the right), with V' x g the merged pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.errors import ProblemError
from tokengeom.numerics import Bool, Float, centre_columns
from tokengeom.problems.supports import as_support

if TYPE_CHECKING:
    from tokengeom.problems.arrays import Array
    from tokengeom.problems.nuclear_svm import NuclearSVM

SIGN_TOLERANCE = 1e-9
"""Entries of ``U V^T`` are at most 1; rounding of an SVD stays below this."""
RANK_TOLERANCE = 1e-9
"""Singular values of a 0/1 pattern below this share of the largest are rounding."""
GRAM_RANK_TOLERANCE = 1e-7
"""The same, where they come from a Gram matrix."""
SVD_SIDE = 1500
"""Up to this smaller side an SVD takes seconds; beyond it the Gram matrix is used."""


def finite_part(P: Any) -> Float:
    """``L_in``: the centred log-probabilities on support, V x m, that logits converge to on F."""
    dense = np.asarray(P.toarray() if hasattr(P, "toarray") else P, dtype=np.float64)
    if not np.isfinite(dense).all() or (dense < 0).any():
        raise ProblemError(
            "Probabilities must be finite and >= 0; P holds NaN, infinity or a negative entry. "
            "Likely a division by an empty column of counts. Build P with NextTokenStatistics."
        )
    S = as_support(dense > 0)
    return project_on_F(np.log(np.where(S, dense, 1.0)), S)


def project_on_F(L: Float, S: Any) -> Float:
    """``P_F(L)``, V x m: deviations from the in-support mean, 0 off support."""
    pattern = _same_shape(L, S)
    mean = np.where(pattern, L, 0.0).sum(axis=0) / pattern.sum(axis=0)
    return np.where(pattern, L - mean, 0.0)


def project_off_F(L: Float, S: Any) -> Float:
    """``L - P_F(L)``, V x m: the in-support mean on support, L itself off support."""
    pattern = _same_shape(L, S)
    mean = np.where(pattern, L, 0.0).sum(axis=0) / pattern.sum(axis=0)
    return np.where(pattern, mean, L)


def proxy(S: Any) -> Float:
    """``S~``, V x m: the support with each column's mean removed."""
    return centre_columns(as_support(S).astype(np.float64))


@dataclass(frozen=True)
class ProxyExactness:
    """Whether ``S~`` solves NTP-SVM*; ``exact`` is None when the sign test fails but does not decide.

    ``largest_entry``
        Largest entry of ``U V^T`` (scaled) off support; <= 0 proves optimality.
    ``decisive``
        Whether a positive entry proves that the proxy is not optimal.
    """

    exact: bool | None
    largest_entry: float
    decisive: bool
    rank: int
    nuclear_norm: float

    def __bool__(self) -> bool:
        return self.exact is True

    @property
    def sentence(self) -> str:
        """The answer in plain words."""
        if self.exact:
            return "The proxy is exact: its polar factor is a dual certificate."
        if self.exact is False:
            return f"The proxy is not exact: its only possible dual is {self.largest_entry:.1e} > 0 off support."
        return "The sign test cannot decide: other duals exist. The solver's gap decides."


def proxy_exactness(problem: NuclearSVM) -> ProxyExactness:
    """Test ``U V^T <= 0`` off support, on the merged and scaled pattern."""
    rows, columns = problem.shape
    if columns == 0:
        return ProxyExactness(True, 0.0, True, 0, 0.0)
    polar, s = _polar_factor(problem)
    rank = int(s.size)
    largest = float(problem.arrays.xp.where(problem.S, -np.inf, polar).max())
    decisive = rank in (rows - 1, columns)
    exact = True if largest <= SIGN_TOLERANCE else (False if decisive else None)
    return ProxyExactness(exact, largest, decisive, rank, float(s.sum()))


def _polar_factor(problem: NuclearSVM) -> tuple[Array, Float]:
    """``U V^T`` of the scaled proxy and its nonzero singular values; by a Gram where an SVD is slow."""
    M, arrays = problem.proxy(), problem.arrays
    if arrays.device is None and min(M.shape) <= SVD_SIDE:
        U, s, Vt = np.linalg.svd(M, full_matrices=False)
        rank = int((s > RANK_TOLERANCE * s[0]).sum())
        return U[:, :rank] @ Vt[:rank], s[:rank]
    eigenvalues, Q = arrays.xp.linalg.eigh(arrays.gram(M))
    values = arrays.at_least(eigenvalues, 0.0) ** 0.5
    kept = values > GRAM_RANK_TOLERANCE * float(values[-1])
    Q, values = Q[:, kept], values[kept]
    turn = (Q / values) @ Q.T
    polar = turn @ M if M.shape[0] <= M.shape[1] else M @ turn
    return polar, arrays.to_numpy(values)


def _same_shape(L: Float, S: Any) -> Bool:
    pattern = as_support(S)
    if L.shape != pattern.shape:
        raise ProblemError(
            f"Logits and support must have one shape V x m; got L {L.shape} and S {pattern.shape}. "
            "Likely a transposed matrix: rows are tokens, columns are contexts."
        )
    return pattern
