"""NTP-SVM in the Frobenius norm by the method that fits the size and the rank; every answer is certified.

========================================  ==================================================================
embeddings of rank m, few pairs            block principal pivoting: milliseconds, exact to rounding
any rank, small V r and few pairs          least distance programming: exact, proves either answer
everything else                            accelerated gradient: dual and refutation in turn, until one proves
========================================  ==================================================================
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tokengeom.core.errors import ResourceError
from tokengeom.core.numerics import Float, blas_threads_for
from tokengeom.problems.base import Certificate, Solution
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.problems.supports import centre_on, in_support_spread, margins
from tokengeom.solvers.accelerated_gradient import refute_by_least_violation, solve_accelerated_dual
from tokengeom.solvers.block_pivoting import solve_by_block_pivoting
from tokengeom.solvers.conjugate_gradients import conjugate_gradients
from tokengeom.solvers.least_distance import MarginAnswer, solve_least_distance

MOST_PAIRS_PIVOTING = 2500
MOST_UNKNOWNS_DIRECT = 700
MOST_PAIRS_DIRECT = 1500
REFUTED = 1e-9
"""Margin up to which a refutation is accepted, relative to sums without cancellation."""
EQUAL = 1e-8
"""Largest difference of in-support logits of a feasible decoder, in units of its margin."""


def orthonormal_factor(H: Float) -> tuple[Float, Float]:
    """``R, U`` of ``H = U R``: U d x r orthonormal, R r x m of full rank r; the problem depends on ``W U`` alone."""
    U, singular, right = np.linalg.svd(H, full_matrices=False)
    tiny = max(H.shape) * np.finfo(np.float64).eps * float(singular[0])
    r = int(np.count_nonzero(singular > tiny))
    return np.asarray(singular[:r, None] * right[:r]), np.asarray(U[:, :r])


def column_lengths(H: Float) -> Float:
    """Length of each embedding, 1 for an embedding of 0."""
    lengths = np.linalg.norm(H, axis=0)
    return np.where(lengths > 0.0, lengths, 1.0)


def separating_decoder(problem: MarginProblem, W: Float) -> Float | None:
    """W made feasible: in-support logits made equal by the smallest change, then the smallest margin scaled to 1.

    None where the margin is not positive. A decoder that is returned proves that the data are separable.
    """
    S, H = problem.S, problem.H
    if int(S.sum()) > S.shape[1]:
        R = H / column_lengths(H)
        small = 1e-15 * float(np.linalg.norm(W))
        for _ in range(2):
            unequal = conjugate_gradients(
                lambda X: centre_on(S, X @ R),
                centre_on(S, W @ R),
                transpose=lambda residual: np.asarray(residual @ R.T),
                stop=lambda residual, _: bool(np.linalg.norm(residual) <= small),
                flat=1e-30,
                max_iterations=500,
            )
            W = W - unequal.x
    L = W @ H
    smallest = float(np.min(margins(L, S)))
    if not smallest > 0.0 or in_support_spread(L, S) > EQUAL * smallest:
        return None
    return W / smallest


def solve_ntp_svm(problem: MarginProblem, tolerance: float = 1e-9, max_iterations: int = 50_000) -> MarginAnswer:
    """W_mm with its certificate, or the proof that the data are not separable.

    If ``max_iterations`` do not suffice, a decoder that separates is returned with the gap that it proves; without one,
    separability is undecided, which is an error.
    """
    if not problem.has_margins:
        return _nothing_to_separate(problem)
    with blas_threads_for(*problem.S.shape):
        return _solve(problem, tolerance, max_iterations)


def _solve(problem: MarginProblem, tolerance: float, max_iterations: int) -> MarginAnswer:
    pairs = int(np.count_nonzero(~problem.S))
    if pairs <= MOST_PAIRS_PIVOTING:
        solution = solve_by_block_pivoting(problem)
        if solution is not None and solution.certificate.holds(tolerance):
            return MarginAnswer(True, solution)
    R, U = orthonormal_factor(problem.H)
    if R.shape[0] * problem.S.shape[0] <= MOST_UNKNOWNS_DIRECT and pairs <= MOST_PAIRS_DIRECT:
        answer = solve_least_distance(problem, R, U)
        # A margin close to rounding is left to the methods below, which prove or refute it.
        if answer.solution.certificate.holds(tolerance if answer.separable else REFUTED):
            return answer
    return _alternate(problem, R, U, tolerance, max_iterations)


def _alternate(problem: MarginProblem, R: Float, U: Float, tolerance: float, max_iterations: int) -> MarginAnswer:
    """Dual and refutation in turn, with doubling budgets; embeddings of rank m are always separable."""
    reduced = MarginProblem(problem.S, R)
    refutable = R.shape[0] < R.shape[1]
    A, W = None, np.zeros((problem.S.shape[0], R.shape[0]))
    budget, spent = 1000, 0
    # Data far from separable are refuted within 50 iterations, which costs little to try first.
    if refutable:
        refutation, W = refute_by_least_violation(reduced, W, 50)
        if refutation is not None:
            return _refuted(problem, refutation, 50)
    while spent < max_iterations:
        solution = solve_accelerated_dual(reduced, tolerance, budget, A)
        spent += budget
        if solution.converged:
            return MarginAnswer(True, _lift(problem, solution, U))
        A = solution.dual
        if refutable:
            refutation, W = refute_by_least_violation(reduced, W, budget)
            if refutation is not None:
                return _refuted(problem, refutation, spent)
        budget *= 2
    decoder = separating_decoder(reduced, solution.x)
    if decoder is not None:
        status = f"separable; stopped after {max_iterations} iterations: raise max_iterations, or accept this gap"
        unfinished = Solution(decoder, solution.dual, solution.certificate, status, spent, solution.seconds, False)
        return MarginAnswer(True, _lift(problem, unfinished, U))
    raise ResourceError(
        f"Separability must be proven or refuted within {max_iterations} iterations; the best bounds are "
        f"||W_mm|| >= {solution.certificate.bound:.6g} with a constraint residual of "
        f"{solution.certificate.primal_residual:.2g}. The data are close to the threshold of separability: raise "
        "max_iterations."
    )


def _lift(problem: MarginProblem, solution: Solution[Float, Float], U: Float) -> Solution[Float, Float]:
    W = solution.x @ U.T
    certificate = problem.certify(W, solution.dual)
    return replace(solution, x=W, certificate=certificate)


def _refuted(problem: MarginProblem, A: Float, iterations: int) -> MarginAnswer:
    zero = np.zeros((problem.S.shape[0], problem.H.shape[0]))
    status = "not separable: a convex combination of the constraints vanishes"
    return MarginAnswer(False, Solution(zero, A, problem.refute(A), status, iterations, 0.0))


def _nothing_to_separate(problem: MarginProblem) -> MarginAnswer:
    zero = np.zeros((problem.S.shape[0], problem.H.shape[0]))
    status = "no token is off support: there are no margin constraints"
    exact = Certificate(0.0, 0.0, 0.0, 0.0)
    return MarginAnswer(True, Solution(zero, np.zeros(problem.S.shape), exact, status, 0, 0.0))
