from __future__ import annotations

import numpy as np
import pytest

from tokengeom.core.errors import ProblemError
from tokengeom.problems.backend import Array
from tokengeom.problems.base import Solution
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory.predict import predict
from tokengeom.theory.uniqueness import Spread, measure_spread, path_direction, solution_bounds

SOLVER = NuclearADMM(tolerance=1e-8)
CIRCLE = (np.arange(5)[:, None] - np.arange(5)) % 5 < 2
"""Runs of 2 tokens on a circle of 5."""


def spread_of(p: NuclearSVM, solves: int = 2) -> Spread:
    return measure_spread(p, SOLVER, SOLVER(p), solves=solves)


def test_a_unique_solution_is_found_from_every_start() -> None:
    spread = spread_of(NuclearSVM.from_support(np.eye(5)), 3)
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
    p = NuclearSVM.from_support(CIRCLE)
    spread = spread_of(p, 4)
    assert spread.gap <= 1e-8
    assert not spread.looks_unique
    assert "not unique" in spread.sentence
    assert solution_bounds(p, SOLVER(p)).tight_share(1e-3) < 1.0


def test_the_returned_solution_is_among_those_compared() -> None:
    p = NuclearSVM.from_support(CIRCLE)
    returned = SOLVER(p)
    start = 0.1 * np.random.default_rng(5).standard_normal(p.shape)
    # A solver that ignores its start finds one solution, however often it is called.
    constant = SOLVER(p, start=start)
    apart = float(np.linalg.norm(p.scale(returned.x - constant.x)) / np.linalg.norm(p.scale(returned.x)))
    assert apart > 0.05

    class Constant:
        def __call__(self, *_: object, **__: object) -> Solution[Array, Array]:
            return constant

    spread = measure_spread(p, Constant(), returned, solves=2)  # type: ignore[arg-type]
    assert spread.logits == pytest.approx(apart)
    assert not spread.looks_unique


def test_predict_reports_that_the_circle_has_several_solutions() -> None:
    found = predict(NextTokenStatistics.from_counts(CIRCLE.astype(np.int64)))
    assert found.spread is not None
    assert not found.spread.looks_unique
    assert "L_mm is not unique" in found.summary()
    assert found.solution_bounds.sentence in found.summary()


def test_a_spread_needs_a_solve() -> None:
    p = NuclearSVM.from_support(np.eye(3))
    with pytest.raises(ProblemError, match="solves=0"):
        measure_spread(p, SOLVER, SOLVER(p), solves=0)


def test_what_every_solution_of_the_circle_has_in_common() -> None:
    """The neighbours of a run have margin 1 in every solution, the opposite token in some only."""
    p = NuclearSVM.from_support(CIRCLE)
    solution = SOLVER(p)
    bounds = solution_bounds(p, solution)
    offset = (np.arange(5)[:, None] - np.arange(5)) % 5
    assert (bounds.tight(1e-3) == np.isin(offset, (2, 4))).all()
    assert "67% of the margins are 1" in bounds.sentence
    assert f"rank at most {bounds.rank_bound}" in bounds.sentence
    # Every other solution lies between the unit singular vectors of the dual of this one.
    assert solution.dual is not None
    U, g, _ = np.linalg.svd(solution.dual)
    outside = U[:, g < 1.0 - 1e-3]
    for seed in range(3):
        other = SOLVER(p, start=np.random.default_rng(seed).standard_normal(p.shape))
        a, s, _ = np.linalg.svd(p.scale(other.x))
        gap = solution.certificate.value - solution.certificate.bound
        gap += other.certificate.value - other.certificate.bound
        assert (s * ((outside.T @ a) ** 2).sum(axis=0)).sum() <= 2.0 * gap / (1.0 - (1.0 - 1e-3) ** 2)


def test_with_equal_counts_the_path_moves_to_the_solution_of_the_circle_with_the_largest_margins() -> None:
    """A regular pentagon, in closed form: of all solutions it has the largest margin over the opposite token."""
    found = predict(NextTokenStatistics.from_counts(CIRCLE.astype(np.int64)))
    path = found.limit_of_path()
    pentagon = np.cos(2 * np.pi * (np.arange(5)[:, None] - np.arange(5) - 0.5) / 5)
    pentagon /= pentagon[0, 0] - pentagon[2, 0]
    assert np.allclose(path.direction, pentagon, atol=1e-6)
    assert path.direction[0, 0] - path.direction[3, 0] == pytest.approx((1 + 5**0.5) / 2)
    assert path.rank == 2
    assert abs(path.excess) <= 1e-9
    assert path.distance == pytest.approx(0.36284, abs=1e-4)
    assert not path.is_returned
    assert "moves towards another solution" in path.sentence
    assert "may differ" in path.sentence


def test_with_unequal_counts_the_path_turns_away_from_the_largest_margins() -> None:
    counts = CIRCLE * np.array([[1, 1, 1, 1, 4], [2, 1, 1, 1, 1], [1, 3, 1, 1, 1], [1, 1, 4, 1, 1], [1, 1, 1, 2, 1]])
    found = predict(NextTokenStatistics.from_counts(counts), spread_solves=0)
    points = found.path([1e-1, 1e-2, 1e-4, 1e-6, 1e-8], tolerance=1e-7)
    pentagon = np.cos(2 * np.pi * (np.arange(5)[:, None] - np.arange(5) - 0.5) / 5)
    away, excess = [], []
    for last in (3, 4, 5):
        moved = path_direction(points[:last], pentagon, CIRCLE, found.lower_bound)
        away.append(moved.distance)
        excess.append(moved.excess)
    # The direction comes nearer to a solution, and it is another one.
    assert excess[0] > excess[1] > excess[2] > 0.0
    assert away[0] < away[1] < away[2]
    assert away[2] > 0.2


def test_the_path_moves_towards_a_unique_solution() -> None:
    counts = np.repeat(np.eye(4, dtype=np.int64), [4, 2, 1, 1], axis=1) * np.arange(1, 9)
    path = predict(NextTokenStatistics.from_counts(counts)).limit_of_path()
    assert path.is_returned
    assert path.distance <= 0.02
    assert path.excess >= 0.0
    assert path.loss_gaps == pytest.approx((1e-4, 1e-6), rel=0.02)
    assert "moves towards L_mm" in path.sentence


def test_a_path_that_does_not_grow_has_no_direction() -> None:
    found = predict(NextTokenStatistics.from_counts(CIRCLE.astype(np.int64)))
    point = found.at(1e-2)
    with pytest.raises(ProblemError, match="no direction"):
        path_direction([point, point], found.L_mm, CIRCLE, found.lower_bound)
