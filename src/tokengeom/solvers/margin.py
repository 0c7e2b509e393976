"""The margin problem in any norm; those of the largest entry and of the sum of entries are linear programs for HiGHS.

::

    max g  s.t.  ||W|| <= 1,  in-support logits equal,  margin_jv(W) >= g   for every off-support pair

The optimum g is the largest margin and ``W / g`` the solution of the margin problem; g = 0 means that no decoder
separates. The entrywise max norm is a box; for the sum norm W is split into its positive and negative parts. The
multipliers of the program are those of the margin problem.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.core.numerics import Float
from tokengeom.problems.base import Solution
from tokengeom.problems.ntp_svm import FROBENIUS, MarginProblem
from tokengeom.solvers.least_distance import (
    MarginAnswer,
    difference_rows,
    equality_multipliers,
    in_support_pairs,
    margin_pairs,
    pair_multipliers,
)
from tokengeom.solvers.margin_newton import solve_singular_margin
from tokengeom.solvers.ntp_svm import column_lengths, solve_ntp_svm

SMALLEST_MARGIN = 1e-8
"""Per unit of norm and of the largest embedding; HiGHS is accurate to about 1e-9."""
START = 1e-4
"""Relative gap of the Frobenius solution from which the spectral and the nuclear norm start."""


def solve_margin_program(problem: MarginProblem) -> MarginAnswer:
    """The answer for ``problem.norm`` max or sum, with its certificate."""
    if problem.norm.name not in ("max", "sum"):
        raise ProblemError(f"Linear programs solve the norms max and sum; got norm={problem.norm.name!r}.")
    began = time.perf_counter()
    S, scale = problem.S, float(np.max(np.linalg.norm(problem.H, axis=0)))
    H = problem.H / scale
    E, M = (difference_rows(pairs, S.shape[0], H) for pairs in (in_support_pairs(S), margin_pairs(S)))
    W, program = _program(E, M, problem.norm.name)
    A = pair_multipliers(S, -program.ineqlin.marginals[: M.shape[0]])
    if len(program.eqlin.marginals):
        A = A + equality_multipliers(S, program.eqlin.marginals)
    gain = float(-program.fun)
    took = time.perf_counter() - began
    if gain <= SMALLEST_MARGIN:
        zero = np.zeros((S.shape[0], H.shape[0]))
        status = "not separable: the largest margin is 0"
        return MarginAnswer(False, Solution(zero, A, problem.refute(A), status, int(program.nit), took))
    decoder = W.reshape(S.shape[0], -1) / (gain * scale)
    certificate = problem.certify(decoder, A)
    return MarginAnswer(True, Solution(decoder, A, certificate, "optimal", int(program.nit), took))


def _program(E: sparse.csr_array, M: sparse.csr_array, norm: str) -> tuple[Float, Any]:
    size = M.shape[1]
    ones = sparse.csr_array(np.ones((M.shape[0], 1)))
    nothing = sparse.csr_array((E.shape[0], 1))
    parts = 1 if norm == "max" else 2
    signs = [1.0, -1.0][:parts]
    upper = sparse.hstack([-sign * M for sign in signs] + [ones], format="csr")
    limit = np.zeros(M.shape[0])
    bounds: Any = [(-1.0, 1.0)] * size + [(0.0, None)]
    if norm == "sum":
        total = sparse.csr_array(np.append(np.ones(2 * size), 0.0)[None, :])
        upper, limit = sparse.vstack([upper, total], format="csr"), np.append(limit, 1.0)
        bounds = [(0.0, None)] * (2 * size + 1)
    equal = sparse.hstack([sign * E for sign in signs] + [nothing], format="csr")
    cost = np.append(np.zeros(parts * size), -1.0)
    options: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    from scipy.optimize import linprog

    equalities = (equal, np.zeros(E.shape[0])) if E.shape[0] else (None, None)
    program: Any = linprog(cost, upper, limit, *equalities, bounds, method="highs", options=options)
    if program.x is None:
        raise ResourceError(f"The linear program of the margin could not be solved; HiGHS said: {program.message}")
    x = np.asarray(program.x[:-1])
    return (x if norm == "max" else x[:size] - x[size:]), program


def solve_margin(problem: MarginProblem, tolerance: float = 1e-6) -> MarginAnswer:
    """Smallest decoder in ``problem.norm`` that separates with margin 1, or the proof that none does.

    Separability does not depend on the norm, so the Frobenius problem decides it. ``tolerance`` is the relative gap to
    prove in the spectral and the nuclear norm; in the others the solution is exact up to rounding.
    """
    if problem.norm.name in ("spectral", "nuclear"):
        return _singular_margin(problem, tolerance)
    frobenius = solve_ntp_svm(MarginProblem(problem.S, problem.H, FROBENIUS))
    if problem.norm.name == "frobenius" or not frobenius.separable or not problem.has_margins:
        return frobenius
    return solve_margin_program(problem)


def _singular_margin(problem: MarginProblem, tolerance: float) -> MarginAnswer:
    """The answer for ``problem.norm`` spectral or nuclear, from a rough Frobenius solution.

    Embeddings of length 1 for the start: separability does not depend on their lengths.
    """
    lengths = column_lengths(problem.H)
    start = solve_ntp_svm(MarginProblem(problem.S, problem.H / lengths, FROBENIUS), START)
    solution = start.solution
    assert solution.dual is not None
    A = solution.dual / lengths
    if not start.separable:
        return MarginAnswer(False, replace(solution, dual=A, certificate=problem.refute(A)))
    if not problem.has_margins:
        return start
    return MarginAnswer(True, solve_singular_margin(problem, solution.x, A, tolerance))
