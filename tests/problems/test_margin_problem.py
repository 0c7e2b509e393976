"""Certificates of the linear-model problems reward the right answer only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from linear_cases import linear_data
from tokengeom.problems.instances import library, one_hot_orthonormal
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.ntp_svm import NORMS, MarginProblem, norm_named
from tokengeom.problems.supports import (
    centre_on,
    cone_levels,
    margins,
    project_on_dual_cone,
    repair_multipliers,
)


def test_the_known_solution_is_certified_and_a_shorter_one_is_not() -> None:
    data = one_hot_orthonormal(5)
    problem = MarginProblem(data.S, data.H)
    W = np.eye(5) - 0.2
    assert problem.certify(W, W).holds(1e-14)
    assert problem.certify(0.99 * W, W).primal_residual == pytest.approx(0.01)
    assert problem.certify(1.01 * W, W).relative_gap == pytest.approx(0.01 / 1.01)


def test_without_multipliers_nothing_is_proven() -> None:
    data = one_hot_orthonormal(3)
    certificate = MarginProblem(data.S, data.H).certify(np.eye(3), None)
    assert certificate.dual_residual == np.inf
    assert not certificate.holds(1.0)


@pytest.mark.parametrize("norm", NORMS.values(), ids=lambda norm: norm.name)
@given(data=linear_data())
@settings(max_examples=15, deadline=None)
def test_norm_and_dual_norm_satisfy_hoelder_with_equality_somewhere(norm, data: LinearData) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(data.m)
    X, Y = rng.standard_normal((2, data.V, data.d))
    assert abs(np.vdot(X, Y)) <= norm.value(X) * norm.dual(Y) * (1 + 1e-12)
    aligned = {
        "frobenius": Y,
        "max": np.sign(Y),
        "sum": np.where(np.abs(Y) == np.abs(Y).max(), np.sign(Y), 0),
        "spectral": (lambda u, s, v: u @ v)(*np.linalg.svd(Y, full_matrices=False)),
    }[norm.name]
    assert np.vdot(aligned, Y) == pytest.approx(norm.value(aligned) * norm.dual(Y), rel=1e-9)


def test_an_unknown_norm_is_named() -> None:
    with pytest.raises(ValueError, match="norm='nuclear'"):
        norm_named("nuclear")


@given(data=linear_data())
@settings(max_examples=40, deadline=None)
def test_cone_projections_are_orthogonal_and_stay_inside(data: LinearData) -> None:
    X = np.random.default_rng(data.V).standard_normal((data.V, data.m))
    a, T = cone_levels(X, data.S)
    inside = np.where(T, a, X)
    assert np.all(margins(inside, data.S) >= -1e-12)
    A, _ = project_on_dual_cone(X, data.S)
    assert np.allclose(A.sum(axis=0), 0, atol=1e-12)
    assert np.all(A[~data.S] <= 0)
    b, U = cone_levels(-X, data.S)
    other = np.where(U, b, -X)
    # Moreau: X = P_{C*}(X) - P_C(-X), the two parts orthogonal.
    assert np.allclose(A - other, X, atol=1e-12)
    assert abs(np.vdot(A, other)) <= 1e-10


@given(data=linear_data())
@settings(max_examples=20, deadline=None)
def test_repaired_multipliers_are_feasible_and_a_feasible_matrix_is_left_alone(data: LinearData) -> None:
    X = np.random.default_rng(data.V).standard_normal((data.V, data.m))
    A = repair_multipliers(X, data.S)
    assert np.allclose(A.sum(axis=0), 0, atol=1e-12)
    assert np.all(A[~data.S] <= 0)
    assert np.allclose(repair_multipliers(A, data.S), A, atol=1e-13)


def test_centring_is_a_projection() -> None:
    S = np.array([[True, False], [True, True], [False, True]])
    X = np.random.default_rng(0).standard_normal((3, 2))
    once = centre_on(S, X)
    assert np.allclose(centre_on(S, once), once)
    assert np.all(once[~S] == 0)


def test_the_library_knows_both_answers() -> None:
    assert {instance.separable for instance in library()} == {True, False}
    assert {instance.compatible for instance in library()} == {True, False}
