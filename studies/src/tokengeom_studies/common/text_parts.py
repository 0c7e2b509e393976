"""Parts of a text: their statistics, what predictions make of them, and how two parts are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from tokengeom import Factors, FeaturePrediction, LossPrediction, NextTokenStatistics, Run, predict
from tokengeom.extending import (
    Bool,
    Float,
    Int,
    centre_columns,
    directional_agreement,
    estimate_completeness,
    proxy,
    unit_columns,
)

LIMIT, PROXY, SUPPORTS, PROBABILITIES = "L_mm", "proxy", "centred supports", "centred probabilities"
NORMS = ("nuclear", "gamma2")
LIMIT_TOLERANCE, NUCLEAR_TOLERANCE, GAMMA2_TOLERANCE = 1e-4, 1e-3, 1e-2
"""Proven relative gaps of the predictions."""


@dataclass(frozen=True, eq=False)
class Directions:
    """Unit columns of a geometry: contexts, d x m, and tokens, d x V; and the gap within which it is proven."""

    contexts: Float
    tokens: Float
    gap: float = 0.0

    @staticmethod
    def of(given: Factors | FeaturePrediction | LossPrediction | Run, gap: float = 0.0) -> Directions:
        """Directions of token and context embeddings."""
        factors = Factors.of(given)
        return Directions(factors.context_directions, factors.token_directions, gap)

    @staticmethod
    def of_matrix(M: Float) -> Directions:
        """Columns and rows of a V x m matrix after each column's mean is removed."""
        centred = centre_columns(M)
        return Directions(unit_columns(centred), unit_columns(centred.T))


@dataclass(frozen=True, eq=False)
class Part:
    """A text, or a part of it, with its rare pairs left out: statistics on the contexts that are left.

    ``kept``
        Numbers of these contexts in the whole text.
    ``tokens``
        Which tokens were seen.
    """

    stats: NextTokenStatistics
    kept: Int
    tokens: Bool

    @staticmethod
    def of(counts: sparse.csc_array, threshold: int = 1) -> Part:
        """Pairs that were seen at least ``threshold`` times."""
        table = counts.copy()
        table.data = np.where(table.data >= threshold, table.data, 0)
        table.eliminate_zeros()
        kept = np.flatnonzero(np.diff(table.indptr))
        seen = np.bincount(table.indices, minlength=table.shape[0]) > 0
        return Part(NextTokenStatistics.from_counts(table[:, kept]), kept, seen)

    def directions(self, loss_gaps: Sequence[float], norms: Iterable[str] = NORMS) -> dict[str, Directions]:
        """What each kind of prediction makes of these statistics, by name."""
        stats = self.stats
        limit = predict(stats, spread_solves=0, tolerance=LIMIT_TOLERANCE)
        directions = {
            LIMIT: Directions.of(limit, limit.certificate.relative_gap),
            PROXY: Directions.of(_proxy_factors(proxy(stats.S))),
            SUPPORTS: Directions.of_matrix(proxy(stats.S)),
            PROBABILITIES: Directions.of_matrix(stats.P.toarray()),
        }
        for norm in norms:
            tolerance = NUCLEAR_TOLERANCE if norm == "nuclear" else GAMMA2_TOLERANCE
            path = limit.path(loss_gaps, norm=norm, tolerance=tolerance)
            for asked, at in zip(loss_gaps, path, strict=True):
                directions[f"{norm} {asked:g}"] = Directions.of(at, at.relative_gap)
        return directions


def agreement(whole: Part, of_whole: Directions, part: Part, of_part: Directions) -> dict[str, Any]:
    """Agreement of two geometries on the contexts and tokens that both texts have."""
    _, i, j = np.intersect1d(whole.kept, part.kept, return_indices=True)
    tokens = whole.tokens & part.tokens
    groups = np.asarray(whole.stats.groups.label)[i]
    return {
        "contexts": directional_agreement(of_whole.contexts[:, i], of_part.contexts[:, j], groups),
        "tokens": directional_agreement(of_whole.tokens[:, tokens], of_part.tokens[:, tokens]),
        "contexts_compared": int(i.size),
        "tokens_compared": int(tokens.sum()),
    }


def growth(part: sparse.csc_array, twin: sparse.csc_array, rest: sparse.csc_array) -> dict[str, float]:
    """What was estimated from a part of a text about its supports, and what the rest of the text then showed.

    ``twin`` is a second part of the same size; ``rest`` is everything but the part, the twin included.
    """
    present = np.flatnonzero(np.diff(part.indptr))
    seen, after, later = (sparse.csc_array(table[:, present]) for table in (part, twin, rest))
    told = estimate_completeness(seen)
    n, twice = told.windows, int((seen.data == 2).sum())
    share = told.missing_share
    new_in_twin, new_later = (_outside(table, seen) for table in (after, later))
    grew = np.count_nonzero(np.diff(new_in_twin.indptr))
    return {
        "windows": n,
        "contexts": int(present.size),
        "pairs": told.pairs,
        "missing_share": share,
        # The variance of Good-Turing's estimate by Esty.
        "missing_error": float(np.sqrt((share * (1 - share) + 2 * twice / n) / n)),
        "missing_in_twin": float(new_in_twin.sum() / max(after.sum(), 1)),
        "missing_in_rest": float(new_later.sum() / max(later.sum(), 1)),
        "new_pairs": told.new_pairs,
        "new_pairs_error": told.new_pairs_error,
        "new_pairs_in_twin": int(new_in_twin.nnz),
        "zeros_seen_later": float(new_later.nnz / max(seen.shape[0] * present.size - seen.nnz, 1)),
        "growing_share": told.growing_share,
        "grew_in_twin": float(grew / present.size),
    }


def _outside(counts: sparse.csc_array, seen: sparse.csc_array) -> sparse.csc_array:
    """Counts of the pairs that were not seen."""
    outside = sparse.csc_array(counts - counts.multiply(seen > 0))
    outside.eliminate_zeros()
    return outside


def agreement_on(whole: Part, run: Directions, prediction: Directions, part: Part) -> float:
    """Agreement of a run with a prediction of the whole text, on the contexts that a part of it has."""
    shared = np.isin(whole.kept, part.kept)
    groups = np.asarray(whole.stats.groups.label)[shared]
    return directional_agreement(run.contexts[:, shared], prediction.contexts[:, shared], groups)


def _proxy_factors(S_tilde: Float) -> Factors:
    """Tokens ``U Sigma^{1/2}`` and contexts ``Sigma^{1/2} V^T`` of the proxy."""
    U, s, Vt = np.linalg.svd(S_tilde, full_matrices=False)
    root = np.sqrt(s[s > 1e-9 * s[0]])
    return Factors(U[:, : root.size] * root, root[:, None] * Vt[: root.size])
