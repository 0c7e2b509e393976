"""Margin problem in any of the four norms: one door."""

from __future__ import annotations

from tokengeom.problems.norms import FROBENIUS
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.solvers.least_distance import MarginAnswer
from tokengeom.solvers.margin_program import solve_margin_program
from tokengeom.solvers.ntp_svm import solve_ntp_svm
from tokengeom.solvers.spectral_barrier import solve_spectral_margin


def solve_margin(problem: MarginProblem) -> MarginAnswer:
    """Smallest decoder in ``problem.norm`` that separates with margin 1, or the proof that none does.

    Separability does not depend on the norm, so the Frobenius problem answers it for all.
    """
    frobenius = solve_ntp_svm(MarginProblem(problem.S, problem.H, FROBENIUS))
    if problem.norm.name == "frobenius" or not frobenius.separable or not problem.has_margins:
        return frobenius
    if problem.norm.name == "spectral":
        return MarginAnswer(True, solve_spectral_margin(problem))
    return solve_margin_program(problem)
