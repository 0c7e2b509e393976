from __future__ import annotations

import numpy as np
import pytest

from tokengeom.errors import ProblemError
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.theory.uniqueness import measure_spread, solution_bounds

SOLVER = NuclearADMM(tolerance=1e-8)


def test_a_unique_solution_is_found_from_every_start() -> None:
    spread = measure_spread(NuclearSVM.from_support(np.eye(5)), SOLVER)
    assert spread.looks_unique
    assert spread.logits <= 1e-3
    assert "agree" in spread.sentence


def test_tight_margins_are_proven_tight_where_the_dual_is_negative() -> None:
    p = NuclearSVM.from_support(np.eye(5))
    bounds = solution_bounds(p, SOLVER(p))
    assert bounds.tight_share(1e-4) == 1.0
    assert bounds.rank_bound == 4


def test_a_margin_bound_is_the_gap_divided_by_the_dual() -> None:
    # Weighted with the dual, the slacks of a solution sum to at most the gap.
    S = np.random.default_rng(1).random((7, 9)) < 0.4
    S[0, ~S.any(axis=0)] = True
    p = NuclearSVM.from_support(np.concatenate([S, S[:, :4]], axis=1))
    solution = NuclearADMM(tolerance=1e-3)(p)
    bound = solution_bounds(p, solution).slack_bound
    assert solution.dual is not None
    weight = -solution.dual * p.row_scale * p.column_scale
    used = ~p.S & (weight > 0)
    gap = solution.certificate.value - solution.certificate.bound
    assert np.allclose(bound[used] * weight[used], gap, rtol=1e-9)
    assert np.isnan(bound[p.S]).all()
    best = SOLVER(p).x
    level = np.where(p.S, best, 0.0).sum(axis=0) / p.S.sum(axis=0)
    assert (weight * np.where(used, level - best - 1.0, 0.0)).sum() <= gap * (1 + 1e-9)


def test_the_five_cycle_has_many_solutions_and_the_sentence_says_so() -> None:
    five_cycle = (np.arange(5)[:, None] - np.arange(5)) % 5 < 2
    p = NuclearSVM.from_support(five_cycle)
    spread = measure_spread(p, SOLVER, solves=4)
    assert spread.gap <= 1e-8
    assert not spread.looks_unique
    assert "not unique" in spread.sentence
    assert solution_bounds(p, SOLVER(p)).tight_share(1e-3) < 1.0


def test_one_solve_cannot_have_a_spread() -> None:
    with pytest.raises(ProblemError, match="solves=1"):
        measure_spread(NuclearSVM.from_support(np.eye(3)), SOLVER, solves=1)
