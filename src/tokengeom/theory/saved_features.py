"""Saved predictions of learned features: their arrays are read and checked, and their claims computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array

from tokengeom.core.errors import StatisticsError
from tokengeom.core.numerics import Float
from tokengeom.problems.base import Solution
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.problems.supports import SupportReduction
from tokengeom.results.contract import SAME, close
from tokengeom.statistics.supports import check_table, degenerate_support_warnings
from tokengeom.theory.proxy import proxy_exactness
from tokengeom.theory.recomputed import entropy_of, same_sentence
from tokengeom.theory.uniqueness import Spread, solution_bounds

if TYPE_CHECKING:
    from tokengeom.core.checks import Entries
    from tokengeom.statistics.arrays_file import SavedArrays
    from tokengeom.theory.features import FeaturePrediction


def feature_claims(prediction: FeaturePrediction) -> dict[str, bool | None]:
    """Whether numbers and sentences are those that logits, dual and probabilities give."""
    problem = NuclearSVM(prediction.reduction)
    exactness = proxy_exactness(problem)
    exact, sentence = exactness.verdict(prediction.certificate, prediction.tolerance)
    answer = (prediction.L_merged, prediction.dual_merged, prediction.certificate)
    bounds, claimed = solution_bounds(problem, Solution(*answer, "", 0, 0.0)), prediction.solution_bounds
    sizes, groups = np.diff(prediction.P.indptr), np.unique(prediction.context_groups).size
    rank = None if prediction.claimed is None else prediction.claimed.get("rank")
    return {
        "the rank is the one claimed": rank is None or rank == prediction.rank,
        "the entropy floor is the one claimed": close(entropy_of(prediction.P, prediction.pi), prediction.entropy),
        "the proxy's nuclear norm is the one claimed": close(exactness.nuclear_norm, prediction.proxy_nuclear_norm),
        "whether the proxy is exact is as claimed": exact == prediction.proxy_is_exact
        and same_sentence(sentence, prediction.proxy_sentence),
        "the bounds on every solution are the ones claimed": bounds.rank_bound == claimed.rank_bound
        and np.allclose(bounds.slack_bound, claimed.slack_bound, rtol=1e-6, atol=0.0, equal_nan=True),
        "the warnings are those of the supports": list(prediction.warnings)
        == degenerate_support_warnings(sizes, prediction.reduction.V, groups),
        "the gap of the solutions compared is not below that of L_mm": prediction.spread is None
        or prediction.spread.gap >= prediction.certificate.relative_gap * (1 - 1e-6) - SAME,
    }


def read_reduction(arrays: SavedArrays) -> SupportReduction:
    """The merged pattern of a saved prediction."""
    S_red = arrays.wholes("S_red", (None, None), 0, 1, np.uint8)
    rows, columns = S_red.shape
    reduction = SupportReduction(
        S_red != 0,
        arrays.wholes("row_of", (None,), 0, rows - 1),
        arrays.wholes("column_of", (None,), -1, columns - 1),
    )
    if not reduction.V or not reduction.m or 0 in reduction.a or 0 in reduction.n:
        raise arrays.damaged("row_of and column_of must name every row and column of the merged pattern")
    inside = reduction.S_red.sum(axis=0)
    if (inside == 0).any() or (inside == rows).any():
        raise arrays.damaged("a column of the merged pattern S_red is empty or full")
    return reduction


def read_probabilities(arrays: SavedArrays, V: int, m: int) -> tuple[csc_array, Float]:
    """P and pi of a saved prediction."""
    P, pi = arrays.table("P_", np.float64, (V, m)), arrays.shares("pi", m)
    try:
        check_table(P, pi)
    except StatisticsError as error:
        raise arrays.damaged(str(error).rstrip(".")) from error
    return P, pi


def read_slack(arrays: SavedArrays, reduction: SupportReduction) -> Float:
    """Upper bounds on the slack of a saved prediction: NaN on support, at least 0 elsewhere."""
    slack = arrays.array("slack_bound", np.float64, reduction.S_red.shape)
    if not (np.isnan(slack) == reduction.S_red).all() or (slack < 0).any():
        raise arrays.damaged("slack_bound must be NaN on support and at least 0 elsewhere")
    return slack


def read_spread(saved: Entries) -> Spread:
    """How far apart solutions were found to be, from a manifest."""
    logits, tokens, contexts = (saved.within(name, 0.0) for name in ("logits", "token_gram", "context_gram"))
    return Spread(logits, tokens, contexts, saved.whole("solves", 1), saved.within("gap", 0.0))


def are_counts(P: csc_array, pi: Float, windows: int) -> bool:
    """Whether probabilities times shares times windows are whole numbers, as those of counted windows are."""
    counts = P.data * np.repeat(pi * windows, np.diff(P.indptr))
    return bool((np.abs(counts - np.rint(counts)) <= 1e-6 + 1e-9 * counts).all() and (counts > 0.5).all())
