"""The set of all solutions of NTP-SVM*, compared with closed forms, cvxpy and its own definition."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom_studies.common.solution_sets import PATTERNS, SolutionSet, automorphisms, supports

CIRCLE = (np.arange(5)[:, None] - np.arange(5)) % 5 < 2
SQUARE = ((2, 2), 2, 0, [[1, 2, 4, 5], [2], [0, 3, 5, 6]])


@pytest.fixture(scope="module")
def circle() -> SolutionSet:
    return SolutionSet.of(CIRCLE, starts=3)


def margins(L: np.ndarray, S: np.ndarray) -> np.ndarray:
    level = np.where(S, L, 0.0).sum(axis=0) / S.sum(axis=0)
    return np.where(S, np.inf, level - L)


def test_the_circle_has_one_free_direction_and_its_solutions_are_proven(circle: SolutionSet) -> None:
    assert circle.dimension == 1
    assert circle.spread > 0.1
    assert circle.gap <= 1e-9
    # The opposite token of each run has a margin that is not 1 in all solutions.
    assert circle.slack.size == 5


def test_every_selected_solution_is_feasible_and_optimal(circle: SolutionSet) -> None:
    best = circle.largest_margins()
    assert best is not None
    for L in (circle.smallest_frobenius(), circle.analytic_centre(), best, circle.symmetric(), circle.returned):
        assert margins(L, CIRCLE).min() == pytest.approx(1.0, abs=1e-5)
        assert np.linalg.svd(L, compute_uv=False).sum() == pytest.approx(circle.lower_bound, rel=1e-5)
        assert circle.excess(L) <= 1e-5


def test_the_largest_margins_of_the_circle_are_those_of_a_pentagon(circle: SolutionSet) -> None:
    pentagon = np.cos(2 * np.pi * (np.arange(5)[:, None] - np.arange(5) - 0.5) / 5)
    pentagon /= pentagon[0, 0] - pentagon[2, 0]
    best = circle.largest_margins()
    assert best is not None
    assert np.allclose(best, pentagon, atol=1e-3)


def test_the_smallest_frobenius_norm_is_that_of_cvxpy(circle: SolutionSet) -> None:
    cp = pytest.importorskip("cvxpy")
    L = cp.Variable((5, 5))
    level = [L[j, j] for j in range(5)]
    constraints = [cp.normNuc(L) <= circle.lower_bound * (1 + 1e-7)]
    for j in range(5):
        constraints += [L[z, j] == level[j] for z in np.flatnonzero(CIRCLE[:, j])]
        constraints += [level[j] - L[v, j] >= 1 for v in np.flatnonzero(~CIRCLE[:, j])]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(L)), constraints)
    problem.solve(solver="SCS", eps=1e-7)
    assert np.sum(circle.smallest_frobenius() ** 2) == pytest.approx(problem.value, rel=1e-3)


def test_the_analytic_centre_has_the_largest_rank_and_lies_between(circle: SolutionSet) -> None:
    best = circle.largest_margins()
    assert best is not None
    ranks = [np.linalg.matrix_rank(L, 1e-2) for L in (circle.analytic_centre(), best)]
    assert ranks == [4, 2]
    sizes = [np.linalg.norm(L) for L in (circle.smallest_frobenius(), circle.analytic_centre(), best)]
    assert sizes == sorted(sizes)


def test_a_unique_solution_has_no_free_direction() -> None:
    found = SolutionSet.of(np.eye(4, dtype=np.bool_), starts=2)
    assert found.dimension == 0
    assert found.slack.size == 0
    assert found.largest_margins() is None
    assert np.allclose(found.smallest_frobenius(), np.eye(4) - 0.25, atol=1e-4)


def test_automorphisms_leave_the_supports_as_they_are() -> None:
    found = list(automorphisms(CIRCLE))
    # Rotations and reflections of a pentagon.
    assert len(found) == 10
    for rows, columns in found:
        assert (CIRCLE[np.ix_(rows, columns)] == CIRCLE).all()
    S = supports(*SQUARE)
    assert all((S[np.ix_(rows, columns)] == S).all() for rows, columns in automorphisms(S))


def test_the_symmetric_solution_does_not_change_under_automorphisms() -> None:
    S = supports(*SQUARE)
    found = SolutionSet.of(S, starts=1)
    L = found.symmetric()
    for rows, columns in list(automorphisms(S))[:5]:
        assert np.allclose(L[np.ix_(rows, columns)], L, atol=1e-8)


def test_all_patterns_have_distinct_tokens_and_contexts() -> None:
    assert len(PATTERNS) >= 20
    for one in PATTERNS:
        S = supports(*one)
        assert S.any(axis=0).all()
        assert not S.all(axis=0).any()
        assert len({row.tobytes() for row in S}) == S.shape[0]
        assert len({column.tobytes() for column in S.T}) == S.shape[1]


def test_supports_of_a_cyclic_group_are_its_orbit() -> None:
    assert (np.sort(supports((5,), 1, 0, [[0, 1]]).sum(axis=1)) == 2).all()
    S = supports((3,), 2, 1, [[0, 4, 6]])
    assert S.shape == (7, 3)
    assert S[6].all()
    assert (S[:3].sum(axis=0) == 1).all()
