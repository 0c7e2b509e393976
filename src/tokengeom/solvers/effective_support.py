"""Effective supports: one linear program for small data, facial reduction for large.

Small: HiGHS on ``max sum s  s.t.  0 <= s <= 1, s <= G x`` over coordinates x of decoders with equal
in-support logits; the program's own multipliers are at least 1 at every blocked pair, so that they prove the
answer.

Large: solve NTP-SVM; if a refutation comes back, its pairs with positive weight can be separated by no
harmless direction, so they join the supports; repeat. When NTP-SVM is solved, all remaining pairs are
separated strictly. Refutations add up to one proof, each weighted so that no earlier weight changes sign, and
alternating projections between "vanishes" and "clearly positive" keep its smallest weight from being lost in
rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linprog

from tokengeom.errors import ResourceError
from tokengeom.numerics import Bool
from tokengeom.problems.effective_support import EffectiveSupportProblem
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.supports import centre_on
from tokengeom.solvers.face_least_squares import fit_on_face
from tokengeom.solvers.least_distance import (
    MarginAnswer,
    equality_rows,
    margin_rows,
    multipliers_of_pairs,
    null_space,
)
from tokengeom.solvers.ntp_svm import orthonormal_factor, solve_ntp_svm

if TYPE_CHECKING:
    from tokengeom.numerics import Float
    from tokengeom.problems.base import Certificate

MOST_UNKNOWNS_PROGRAM = 600
MOST_PAIRS_PROGRAM = 1200
# A weight below this share of the largest is rounding, not a reason.
POSITIVE = 1e-7
CLEAR = 1e-4


@dataclass(frozen=True)
class EffectiveSupport:
    """Effective supports ``S``, NTP-SVM on them, and multipliers ``A`` that block the pairs in between."""

    S: Bool
    direction: MarginAnswer
    A: Float
    certificate: Certificate


def find_effective_support(S: Bool, H: Float, first: MarginAnswer, tolerance: float = 1e-9) -> EffectiveSupport:
    """Effective supports, given what NTP-SVM on the original supports answered."""
    problem = EffectiveSupportProblem(S, H)
    grown, answer, A = S, first, np.zeros(S.shape)
    if not first.separable and _fits_program(S, H):
        grown, A = _linear_program(S, H)
        answer = solve_ntp_svm(MarginProblem(grown, H), tolerance)
    while not answer.separable:
        grown, A = _add_refutation(S, grown, A, answer)
        answer = solve_ntp_svm(MarginProblem(grown, H), tolerance)
    A = _fatten(S, grown, A, H)
    certificate = problem.certify(answer.solution.x, A)
    return EffectiveSupport(grown, answer, A, certificate)


def _fits_program(S: Bool, H: Float) -> bool:
    return S.shape[0] * min(H.shape) <= MOST_UNKNOWNS_PROGRAM and int(np.sum(~S)) <= MOST_PAIRS_PROGRAM


def _linear_program(S: Bool, H: Float) -> tuple[Bool, Float]:
    R, _ = orthonormal_factor(H)
    R = R / float(np.max(np.linalg.norm(R, axis=0)))
    N = null_space(equality_rows(S, R), S.shape[0] * R.shape[0])
    G = margin_rows(S, R) @ N
    pairs, unknowns = G.shape
    cost = np.concatenate([np.zeros(unknowns), -np.ones(pairs)])
    rows = np.hstack([-G, np.eye(pairs)])
    bounds = [(None, None)] * unknowns + [(0.0, 1.0)] * pairs
    found = linprog(cost, A_ub=rows, b_ub=np.zeros(pairs), bounds=bounds, method="highs")
    if found.x is None:
        raise ResourceError(f"the linear program of the effective supports must solve; HiGHS said: {found.message}")
    blocked = found.x[unknowns:] < 0.5
    j, v = np.nonzero(~S.T)
    grown = S.copy()
    grown[v[blocked], j[blocked]] = True
    weights = np.where(blocked, np.maximum(-found.ineqlin.marginals, 0.0), 0.0)
    A = multipliers_of_pairs(S, R, weights)
    return grown, fit_on_face(grown, centre_on(grown, A), R).residual


def _add_refutation(S: Bool, grown: Bool, A: Float, answer: MarginAnswer) -> tuple[Bool, Float]:
    """Supports with the refuted pairs added, and one proof for the original supports."""
    dual = answer.solution.dual
    assert dual is not None  # a refutation is made of its multipliers
    new = dual / float(np.max(np.abs(dual)))
    added = ~grown & (new < -POSITIVE)
    old = grown & ~S
    rising = old & (new > 0)
    share = 1.0
    if rising.any():
        share = 0.5 * float(np.min(-A[rising] / new[rising]))
    return grown | added, A + share * new


def _fatten(S: Bool, grown: Bool, A: Float, H: Float, max_iterations: int = 50) -> Float:
    """Seek a proof for the same pairs whose smallest weight is a visible share of its largest."""
    blocked = grown & ~S
    if not blocked.any():
        return A
    R, _ = orthonormal_factor(H)
    best = A
    for _ in range(max_iterations):
        largest = float(np.max(-best[blocked]))
        if np.all(-best[blocked] >= CLEAR * largest):
            break
        raised = np.where(blocked, np.minimum(best, -2.0 * CLEAR * largest), best)
        best = fit_on_face(grown, centre_on(grown, raised), R).residual
    return best if float(np.max(best[blocked])) < 0.0 else A
