"""Effective supports: the linear program, facial reduction and an independent formulation for HiGHS agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from linear_cases import linear_data
from linear_instances import overparameterised, plane
from tokengeom.core.numerics import Bool, Float
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.linear_limit import EffectiveSupportProblem
from tokengeom.problems.ntp_svm import MarginProblem
from tokengeom.solvers import effective_support
from tokengeom.solvers.effective_support import find_effective_support
from tokengeom.solvers.ntp_svm import solve_ntp_svm


def oracle(S: Bool, H: Float) -> Bool:
    """The program of docs/theory.md 2.2 over W itself, written constraint by constraint."""
    V, m = S.shape
    d = H.shape[0]
    pairs = [(j, v) for j in range(m) for v in range(V) if not S[v, j]]
    equalities, inequalities = [], []
    for j in range(m):
        tokens = np.flatnonzero(S[:, j])
        for z in tokens[1:]:
            row = np.zeros((V, d))
            row[z], row[tokens[0]] = H[:, j], -H[:, j]
            equalities.append(np.append(row.ravel(), np.zeros(len(pairs))))
    for index, (j, v) in enumerate(pairs):
        row = np.zeros((V, d))
        row[v], row[np.flatnonzero(S[:, j])[0]] = H[:, j], -H[:, j]
        inequalities.append(np.append(row.ravel(), np.eye(len(pairs))[index]))
    found = linprog(
        np.append(np.zeros(V * d), -np.ones(len(pairs))),
        A_ub=np.array(inequalities),
        b_ub=np.zeros(len(pairs)),
        A_eq=np.array(equalities) if equalities else None,
        b_eq=np.zeros(len(equalities)) if equalities else None,
        bounds=[(None, None)] * (V * d) + [(0, 1)] * len(pairs),
    )
    grown = S.copy()
    for (j, v), slack in zip(pairs, found.x[V * d :], strict=True):
        grown[v, j] = slack < 0.5
    return grown


@given(data=linear_data(most_tokens=5, most_contexts=6, most_dimensions=4))
@settings(max_examples=30, deadline=None)
def test_the_answer_is_that_of_an_independent_program_and_is_proven(data: LinearData) -> None:
    first = solve_ntp_svm(MarginProblem(data.S, data.H))
    found = find_effective_support(data.S, data.H, first)
    if data.S.all():
        assert np.array_equal(found.S, data.S)
        return
    assert np.array_equal(found.S, oracle(data.S, data.H))
    assert found.certificate.value == found.certificate.bound == np.count_nonzero(~found.S)
    assert max(found.certificate.primal_residual, found.certificate.dual_residual) < 1e-8


@given(data=linear_data(most_tokens=5, most_contexts=6, most_dimensions=4))
@settings(max_examples=30, deadline=None)
def test_facial_reduction_finds_what_the_program_finds(data: LinearData) -> None:
    first = solve_ntp_svm(MarginProblem(data.S, data.H))
    program = find_effective_support(data.S, data.H, first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(effective_support, "MOST_UNKNOWNS_PROGRAM", 0)
        reduction = find_effective_support(data.S, data.H, first)
    assert np.array_equal(program.S, reduction.S)
    assert reduction.certificate.dual_residual < 1e-8


def test_separable_data_keep_their_supports() -> None:
    data = plane((90, 210, 330))
    first = solve_ntp_svm(MarginProblem(data.S, data.H))
    found = find_effective_support(data.S, data.H, first)
    assert np.array_equal(found.S, data.S)
    assert not found.A.any()


def test_a_wrong_claim_is_not_certified() -> None:
    data = plane((90, 180, 0))
    first = solve_ntp_svm(MarginProblem(data.S, data.H))
    found = find_effective_support(data.S, data.H, first)
    problem = EffectiveSupportProblem(data.S, data.H)
    assert problem.certify(found.direction.solution.x, np.zeros(data.S.shape)).relative_gap > 0
    assert problem.certify(-found.direction.solution.x, found.A).primal_residual > 0.5
    assert problem.certify(found.direction.solution.x, None).dual_residual == np.inf


def test_facial_reduction_of_large_data_has_one_proof() -> None:
    data = overparameterised(0, V=50, d=80, m=300, size=10, n=20_000)
    first = solve_ntp_svm(MarginProblem(data.S, data.H))
    found = find_effective_support(data.S, data.H, first)
    assert found.S.all()
    assert found.certificate.value == found.certificate.bound == 0
    assert found.certificate.dual_residual < 1e-9
