"""The finite part of a run against its prediction: the projection on F, prepared once and applied often.

Linear model: ``P_F(W)`` by an orthonormal basis of ``F = span{(e_z - e_z') h_j^T : z, z' in S_j}`` in R^{V x r}, r the
rank of the embeddings. Learned features: F = span ``(e_z - e_z') e_j^T``, so that ``P_F(L)`` subtracts the in-support
mean, and only the logits on support are ever computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengeom.solvers.least_distance import equality_rows
from tokengeom.solvers.ntp_svm import orthonormal_factor

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokengeom.geometry.targets import Factors
    from tokengeom.numerics import Float
    from tokengeom.problems.support_reduction import Int
    from tokengeom.theory.linear import LinearPrediction

MOST_BASIS_ENTRIES = 4_000_000
"""Entries of the equations up to which a basis is factored (a second or two); beyond it each projection is solved."""
CHUNK = 1 << 20
"""Pairs whose logits are computed at once, so that a long corpus needs no more memory than this times d."""


@dataclass(frozen=True, eq=False)
class FiniteDecoder:
    """Projection on F of decoders W (V x d), against ``W*``; ``is_factored`` when a projection is a mere product."""

    project: Callable[[Float], Float]
    W_star: Float
    is_factored: bool

    @staticmethod
    def of(prediction: LinearPrediction) -> FiniteDecoder:
        """Factor once where that is affordable."""
        S, H = prediction.effective_support, prediction.data.H
        R, U = orthonormal_factor(H)
        equations = int(S.sum()) - S.shape[1]
        if equations * S.shape[0] * R.shape[0] > MOST_BASIS_ENTRIES:
            return FiniteDecoder(prediction.finite_part, prediction.W_star, False)
        basis = _row_space(equality_rows(S, R))

        def project(W: Float) -> Float:
            inside = (W @ U).ravel()
            return np.asarray((basis.T @ (basis @ inside)).reshape(S.shape[0], -1) @ U.T)

        return FiniteDecoder(project, prediction.W_star, True)

    def error(self, W: Float) -> float:
        """``||P_F(W) - W*|| / ||W*||``; absolute when ``W*`` is 0."""
        size = float(np.linalg.norm(self.W_star))
        return float(np.linalg.norm(self.project(W) - self.W_star)) / (size if size > 0 else 1.0)


@dataclass(frozen=True, eq=False)
class FiniteLogits:
    """``L_in`` on support, pair after pair: token z, context j, and the value that ``P_F(L)`` converges to."""

    token: Int
    context: Int
    value: Float
    sizes: Float

    @staticmethod
    def of(P: Any) -> FiniteLogits:
        """Take V x m probabilities, dense or scipy sparse."""
        from scipy.sparse import csc_array

        table = csc_array(P, copy=True)  # statistics are frozen
        table.eliminate_zeros()
        sizes = np.diff(table.indptr)
        context = np.repeat(np.arange(table.shape[1], dtype=np.int64), sizes)
        token = table.indices.astype(np.int64)
        empty = FiniteLogits(token, context, np.zeros(token.size), sizes.astype(np.float64))
        return FiniteLogits(token, context, empty.centre(np.log(table.data)), empty.sizes)

    def centre(self, x: Float) -> Float:
        """Subtract from each pair's value the mean over its context: ``P_F`` on support."""
        mean = np.bincount(self.context, x, minlength=self.sizes.size) / np.maximum(self.sizes, 1.0)
        return np.asarray(x - mean[self.context])

    def logits(self, state: Factors, place: Int | None = None) -> Float:
        """Logits on support; ``place`` gives each context the embedding of another."""
        column = self.context if place is None else place[self.context]
        W, H = state.centred_logits
        if W.shape[0] * H.shape[1] <= CHUNK:
            return np.asarray((W @ H)[self.token, column])
        found = np.empty(self.token.size)
        for start in range(0, self.token.size, CHUNK):
            part = slice(start, start + CHUNK)
            found[part] = np.einsum("ed,de->e", W[self.token[part]], H[:, column[part]])
        return found

    def squared_errors(self, state: Factors, place: Int | None = None) -> Float:
        """``||P_F(L)_j - L_in_j||^2`` of each context, m."""
        error = self.centre(self.logits(state, place)) - self.value
        return np.asarray(np.bincount(self.context, error * error, minlength=self.sizes.size))

    def distance(self, state: Factors) -> float:
        """``||P_F(L) - L_in||_F``."""
        return float(np.sqrt(self.squared_errors(state).sum()))


def _row_space(E: Float) -> Float:
    """Orthonormal rows that span those of E."""
    if E.size == 0:
        return np.zeros((0, E.shape[1]))
    _, singular, right = np.linalg.svd(E, full_matrices=False)
    return np.asarray(right[singular > max(E.shape) * np.finfo(np.float64).eps * singular[0]])
