"""Effective supports: one linear program for small data, facial reduction for large.

Small: HiGHS on ``max sum s  s.t.  0 <= s <= 1, s <= M x`` over coordinates x of decoders with equal in-support
logits. The program's own multipliers are at least 1 at every inseparable pair and prove the answer.

Large: solve NTP-SVM. If it is refuted, no direction that never increases the loss separates the pairs with positive
weight in the refutation, so they are added to the supports; repeat. When NTP-SVM is solved, all remaining pairs are
separated strictly. Refutations add up to one proof, each weighted so that no earlier weight changes sign; alternating
projections between "vanishes" and "clearly positive" keep its smallest weight above rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengeom.core.errors import ResourceError
from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.base import Certificate
from tokengeom.problems.linear_limit import EffectiveSupportProblem
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.supports import centre_on
from tokengeom.solvers.conjugate_gradients import fit_on_face
from tokengeom.solvers.least_distance import (
    MarginAnswer,
    equality_rows,
    margin_rows,
    multipliers_of_pairs,
    row_and_null_space,
)
from tokengeom.solvers.ntp_svm import orthonormal_factor, solve_ntp_svm

MOST_UNKNOWNS_PROGRAM = 600
MOST_PAIRS_PROGRAM = 1200
POSITIVE = 1e-7
"""A weight of a refutation below this share of the largest is rounding."""
CLEAR = 1e-4
"""Share of the largest weight that the smallest weight of a proof should reach."""


@dataclass(frozen=True)
class EffectiveSupport:
    """Effective supports ``S``, NTP-SVM on them, and multipliers ``A`` that prove the added pairs inseparable."""

    S: Bool
    direction: MarginAnswer
    A: Float
    certificate: Certificate


def find_effective_support(S: Bool, H: Float, first: MarginAnswer, tolerance: float = 1e-9) -> EffectiveSupport:
    """Effective supports, given the answer of NTP-SVM on the original supports."""
    problem = EffectiveSupportProblem(S, H)
    grown, answer, A = S, first, np.zeros(S.shape)
    is_small = S.shape[0] * min(H.shape) <= MOST_UNKNOWNS_PROGRAM and int(np.sum(~S)) <= MOST_PAIRS_PROGRAM
    if not first.separable and is_small:
        grown, A = _linear_program(S, H)
        answer = solve_ntp_svm(MarginProblem(grown, H), tolerance)
    while not answer.separable:
        grown, A = _add_refutation(S, grown, A, answer)
        answer = solve_ntp_svm(MarginProblem(grown, H), tolerance)
    A = _raise_smallest_weight(S, grown, A, H)
    certificate = problem.certify(answer.solution.x, A)
    return EffectiveSupport(grown, answer, A, certificate)


def _linear_program(S: Bool, H: Float) -> tuple[Bool, Float]:
    R, _ = orthonormal_factor(H)
    R = R / float(np.max(np.linalg.norm(R, axis=0)))
    _, N = row_and_null_space(equality_rows(S, R), S.shape[0] * R.shape[0])
    M = margin_rows(S, R) @ N
    pairs, unknowns = M.shape
    cost = np.concatenate([np.zeros(unknowns), -np.ones(pairs)])
    rows = np.hstack([-M, np.eye(pairs)])
    bounds = [(None, None)] * unknowns + [(0.0, 1.0)] * pairs
    from scipy.optimize import linprog

    program = linprog(cost, A_ub=rows, b_ub=np.zeros(pairs), bounds=bounds, method="highs")
    if program.x is None:
        raise ResourceError(f"The linear program of the supports could not be solved; HiGHS said: {program.message}")
    blocked = program.x[unknowns:] < 0.5
    j, v = np.nonzero(~S.T)
    grown = S.copy()
    grown[v[blocked], j[blocked]] = True
    weights = np.where(blocked, np.maximum(-program.ineqlin.marginals, 0.0), 0.0)
    A = multipliers_of_pairs(S, R, weights)
    return grown, fit_on_face(grown, centre_on(grown, A), R).residual


def _add_refutation(S: Bool, grown: Bool, A: Float, answer: MarginAnswer) -> tuple[Bool, Float]:
    """The supports with the refuted pairs added, and one proof for the original supports."""
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


def _raise_smallest_weight(S: Bool, grown: Bool, A: Float, H: Float, max_iterations: int = 50) -> Float:
    """A proof for the same pairs whose smallest weight is a clear share of its largest, where one is found."""
    added = grown & ~S
    if not added.any():
        return A
    R, _ = orthonormal_factor(H)
    best = A
    for _ in range(max_iterations):
        largest = float(np.max(-best[added]))
        if np.all(-best[added] >= CLEAR * largest):
            break
        raised = np.where(added, np.minimum(best, -2.0 * CLEAR * largest), best)
        best = fit_on_face(grown, centre_on(grown, raised), R).residual
    return best if float(np.max(best[added])) < 0.0 else A
