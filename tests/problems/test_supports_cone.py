"""Centring on supports, and projections on the cone of margins and on its dual."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from linear_cases import linear_data
from tokengeom.problems.linear_data import LinearData
from tokengeom.problems.supports import centre_on, cone_levels, margins, project_on_dual_cone, repair_multipliers


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
def test_repaired_multipliers_are_feasible_and_feasible_ones_do_not_change(data: LinearData) -> None:
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
