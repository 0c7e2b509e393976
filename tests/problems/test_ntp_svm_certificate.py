"""NTP-SVM: its certificate accepts the right answer only, and each norm has its dual."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from linear_cases import linear_data
from linear_instances import linear_catalogue, one_hot_orthonormal
from tokengeom.core.numerics import Float
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.ntp_svm import NORMS, MarginProblem, Norm, norm_named


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


def polar_factor(Y: Float) -> Float:
    U, _, Vt = np.linalg.svd(Y, full_matrices=False)
    return np.asarray(U @ Vt)


def leading_part(Y: Float) -> Float:
    U, _, Vt = np.linalg.svd(Y, full_matrices=False)
    return np.outer(U[:, 0], Vt[0])


@pytest.mark.parametrize("norm", NORMS.values(), ids=lambda norm: norm.name)
@given(data=linear_data())
@settings(max_examples=15, deadline=None)
def test_norm_and_dual_norm_satisfy_hoelder_with_equality_for_an_aligned_matrix(norm: Norm, data: LinearData) -> None:
    rng = np.random.default_rng(data.m)
    X, Y = rng.standard_normal((2, data.V, data.d))
    assert abs(np.vdot(X, Y)) <= norm.value(X) * norm.dual(Y) * (1 + 1e-12)
    aligned = {
        "frobenius": Y,
        "max": np.sign(Y),
        "sum": np.where(np.abs(Y) == np.abs(Y).max(), np.sign(Y), 0),
        "spectral": polar_factor(Y),
        "nuclear": leading_part(Y),
    }[norm.name]
    assert np.vdot(aligned, Y) == pytest.approx(norm.value(aligned) * norm.dual(Y), rel=1e-9)


def test_an_unknown_norm_is_named() -> None:
    with pytest.raises(ValueError, match="norm='taxi'"):
        norm_named("taxi")


def test_the_catalogue_holds_both_answers_to_both_conditions() -> None:
    assert {instance.separable for instance in linear_catalogue()} == {True, False}
    assert {instance.compatible for instance in linear_catalogue()} == {True, False}
