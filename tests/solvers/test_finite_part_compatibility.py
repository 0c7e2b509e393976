"""Compatibility, solved or refuted, against plain linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from linear_cases import CERTIFIED, EXACT, linear_data
from linear_instances import LinearInstance, linear_catalogue, overparameterised
from tokengeom.core.numerics import Float
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.linear_limit import CompatibilitySystem
from tokengeom.solvers import finite_part
from tokengeom.solvers.finite_part import solve_compatibility


def plain_system(data: LinearData) -> tuple[Float, Float]:
    """Every in-support pair against the first token: rows over ``vec(W)`` and right-hand sides."""
    rows, right = [np.zeros(data.V * data.d)], [0.0]
    for j in range(data.m):
        first, *rest = np.flatnonzero(data.S[:, j])
        for z in rest:
            row = np.zeros((data.V, data.d))
            row[z], row[first] = data.H[:, j], -data.H[:, j]
            rows.append(row.ravel())
            right.append(np.log(data.P[z, j] / data.P[first, j]))
    return np.array(rows), np.array(right)


@given(data=linear_data())
@settings(max_examples=60, deadline=None)
def test_the_answer_and_the_least_norm_are_those_of_plain_least_squares(data: LinearData) -> None:
    system = CompatibilitySystem(data.S, data.P, data.H)
    answer = solve_compatibility(system)
    A, b = plain_system(data)
    x = np.linalg.lstsq(A, b, rcond=1e-12)[0]
    solvable = bool(np.linalg.norm(A @ x - b) <= 1e-8 * max(1.0, float(np.linalg.norm(b))))
    assert answer.compatible is solvable
    if solvable:
        assert np.allclose(answer.solution.x.ravel(), x, atol=1e-8 * max(1.0, float(np.abs(x).max())))
        assert answer.solution.certificate.holds(CERTIFIED)
    else:
        Y = answer.solution.dual
        assert Y is not None
        assert np.abs(Y @ data.H.T).max() <= 1e-10 * np.abs(Y).max() * np.abs(data.H).max()
        assert abs(np.vdot(Y, system.target)) > 1e-8 * np.linalg.norm(Y)
        assert np.all(Y[~data.S] == 0)


@pytest.mark.parametrize("instance", linear_catalogue(), ids=lambda instance: instance.name)
def test_known_instances_are_decided_correctly(instance: LinearInstance) -> None:
    data = instance.data
    assert solve_compatibility(CompatibilitySystem(data.S, data.P, data.H)).compatible is instance.compatible


def test_dense_and_iterative_solutions_agree() -> None:
    data = overparameterised(0, V=8, d=20, m=25, size=4, n=100)
    system = CompatibilitySystem(data.S, data.P, data.H)
    dense = solve_compatibility(system)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finite_part, "MOST_DENSE_ENTRIES", 0)
        iterative = solve_compatibility(system)
    assert dense.compatible is iterative.compatible is True
    assert np.allclose(dense.solution.x, iterative.solution.x, atol=EXACT)
    assert iterative.solution.certificate.holds(CERTIFIED)


def test_a_refutation_names_only_the_contexts_in_conflict() -> None:
    rng = np.random.default_rng(0)
    H = rng.standard_normal((4, 4))
    H = np.hstack([H, H[:, :1]])
    S = np.ones((3, 5), dtype=bool)
    P = rng.dirichlet(np.ones(3), size=5).T
    answer = solve_compatibility(CompatibilitySystem(S, P, H))
    assert not answer.compatible
    assert answer.solution.dual is not None
    assert np.flatnonzero(np.abs(answer.solution.dual).max(axis=0) > 1e-12).tolist() == [0, 4]


def test_large_data_are_refuted_by_the_residual() -> None:
    data = overparameterised(0, V=40, d=20, m=200, size=10, n=2000)
    system = CompatibilitySystem(data.S, data.P, data.H)
    answer = solve_compatibility(system)
    assert not answer.compatible
    assert answer.solution.dual is not None
    certificate = system.refute(answer.solution.dual)
    assert certificate.primal_residual < 1e-10
    assert certificate.value > 1e-3
