"""The smallest number of dimensions that separates given supports, bracketed with proofs on both sides."""

from __future__ import annotations

import time
from math import ceil, sqrt
from typing import Any

import numpy as np

from tokengeom.extending import Bool, Float, MarginProblem, ResourceError, separating_decoder, solve_ntp_svm
from tokengeom_studies.common.random_limits import separability_limit

SOLVED, FINE = 0.1, 1e-6
"""Tolerances of the solver: a decoder from the first is made exactly feasible; the second is tried where this fails."""


def separates(S: Bool, H: Float, max_iterations: int) -> tuple[bool | None, float]:
    """Whether embeddings H (d x m) separate supports S (V x m), proven, and the residual of a refutation.

    None where neither a decoder nor a refutation was found.
    """
    problem = MarginProblem(S, H)
    for tolerance in (SOLVED, FINE):
        try:
            answer = solve_ntp_svm(problem, tolerance=tolerance, max_iterations=max_iterations)
        except ResourceError:
            return None, 0.0
        if not answer.separable:
            proof = answer.solution.certificate
            return False, max(proof.primal_residual, proof.dual_residual)
        if separating_decoder(problem, answer.solution.x) is not None:
            return True, 0.0
    return None, 0.0


def bracket(S: Bool, H: Float, k: int, resolution: float, max_iterations: int) -> dict[str, Any]:
    """The smallest separating number of rows of H (m x m) lies in ``(low, high]``, at most ``resolution`` m wide.

    The search starts at the formula and doubles its steps until both ends are proven, so where it starts does not
    matter for the result. It stops at an undecided dimension; the bracket before it is kept.
    """
    began = time.perf_counter()
    V, m = S.shape
    limit = separability_limit(V, k)
    low, high, undecided, worst = 0, m, 0, 0.0
    step = max(1, ceil(2.0 * limit.width * sqrt(m)))
    d = min(max(round(limit.ratio * m + (V - 1) / 8), 1), m - 1)
    while high - low > max(1.0, resolution * m):
        answer, residual = separates(S, H[:d], max_iterations)
        worst = max(worst, residual)
        if answer is None:
            undecided = 1
            break
        low, high = (low, d) if answer else (d, high)
        if low == 0 or high == m:
            d = max(high - step, 1) if low == 0 else min(low + step, m - 1)
            step *= 2
        else:
            d = (low + high) // 2
        if not low < d < high:
            d = (low + high) // 2
    return {
        "low": low,
        "high": high,
        "undecided": undecided,
        "refutation_residual": worst,
        "seconds": time.perf_counter() - began,
    }


def separates_by_linear_program(S: Bool, H: Float) -> bool:
    """The same question as a linear program, ``max t`` over decoders with entries in [-1, 1], solved by HiGHS."""
    from scipy.optimize import linprog

    V, m = S.shape
    d = H.shape[0]
    equal, lower = [], []
    for j in range(m):
        first, *others = np.flatnonzero(S[:, j])
        for v in range(V):
            row = np.zeros((V, d))
            row[v], row[first] = row[v] + H[:, j], row[first] - H[:, j]
            if v in others:
                equal.append(np.append(row.ravel(), 0.0))
            elif not S[v, j]:
                lower.append(np.append(row.ravel(), 1.0))
    program = linprog(
        np.append(np.zeros(V * d), -1.0),
        A_ub=np.array(lower),
        b_ub=np.zeros(len(lower)),
        A_eq=np.array(equal) if equal else None,
        b_eq=np.zeros(len(equal)) if equal else None,
        bounds=[(-1.0, 1.0)] * (V * d) + [(0.0, 1.0)],
        method="highs",
    )
    return bool(program.x[-1] > 1e-7)
