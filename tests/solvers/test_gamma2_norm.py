from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard

from gamma2_cases import semidefinite_gamma2, semidefinite_norm
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float
from tokengeom.problems.gamma2 import MaxNormFactors
from tokengeom.solvers.gamma2_norm import _upper, balance, gamma2_norm


def middle(L: Float, tolerance: float = 1e-4) -> float:
    low, high = gamma2_norm(L, tolerance)
    assert 0 <= low <= high
    assert high - low <= 1e-3 * high
    return 0.5 * (low + high)


@pytest.mark.parametrize(
    ("L", "known"),
    [
        (hadamard(8).astype(float), 8**0.5),
        (np.ones((5, 7)), 1.0),
        (np.eye(6), 1.0),
        (np.zeros((3, 4)), 0.0),
        (np.outer([1.0, -3.0, 2.0], [0.5, -0.1, 0.0, 0.2]), 1.5),
    ],
)
def test_known_norms_lie_between_the_bounds(L: Float, known: float) -> None:
    low, high = gamma2_norm(L)
    assert low <= known <= high
    assert high - low <= 1e-3 * max(high, 1e-300)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_bounds_hold_the_value_of_the_semidefinite_program(seed: int) -> None:
    L = np.random.default_rng(seed).standard_normal((5, 7))
    low, high = gamma2_norm(L, 1e-5)
    best = semidefinite_gamma2(L)
    assert low <= best * (1 + 1e-6)
    assert high >= best * (1 - 1e-6)
    assert high - low <= 1e-4 * high


@settings(max_examples=20, deadline=None)
@given(V=st.integers(1, 8), m=st.integers(1, 8), rank=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_the_norm_does_not_change_with_signs_repeated_rows_or_the_transpose(
    V: int, m: int, rank: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((V, rank)) @ rng.standard_normal((rank, m))
    low, high = gamma2_norm(L)
    signs = rng.choice([-1.0, 1.0], V)[:, None] * L
    for same in (signs, np.vstack([L, L[:1]]), L.T, L[rng.permutation(V)]):
        other_low, other_high = gamma2_norm(same)
        assert max(low, other_low) <= min(high, other_high) * (1 + 1e-9)
    assert middle(-3.0 * L) == pytest.approx(3.0 * middle(L), rel=2e-3)
    # Between the largest entry and the smaller of the largest row norm and column norm.
    assert high >= np.abs(L).max() * (1 - 1e-9)
    assert low <= min(np.linalg.norm(L, axis=0).max(), np.linalg.norm(L, axis=1).max()) * (1 + 1e-9)


def test_a_shift_of_columns_changes_nothing_and_never_raises_the_norm() -> None:
    rng = np.random.default_rng(0)
    L = rng.standard_normal((9, 12))
    low, high = gamma2_norm(L, shift=True)
    moved_low, moved_high = gamma2_norm(L + 5.0 * rng.standard_normal(12), shift=True)
    assert max(low, moved_low) <= min(high, moved_high)
    assert high - low <= 1e-3 * high
    block, t, constraints = semidefinite_norm(9, 12)
    shift = cp.Variable((1, 12))
    best = cp.Problem(cp.Minimize(t), [*constraints, block == L + np.ones((9, 1)) @ shift]).solve(solver="CLARABEL")
    assert low <= best * (1 + 1e-6)
    assert high >= best * (1 - 1e-6)
    assert low <= gamma2_norm(L)[1]
    assert gamma2_norm(np.ones((4, 3)) * [1.0, 2.0, 3.0], shift=True) == (0.0, 0.0)


def test_the_factors_reproduce_the_matrix_and_attain_the_upper_bound() -> None:
    L = np.random.default_rng(1).standard_normal((6, 9))
    found = balance(L, np.ones(6), np.ones(9), tolerance=1e-3)
    W, H = found.factors.W, found.factors.H
    assert np.allclose(W @ H, L, atol=1e-10)
    attained = np.linalg.norm(W, axis=1).max() * np.linalg.norm(H, axis=0).max()
    assert attained <= found.high <= attained * (1 + 1e-9)


def test_the_upper_bound_counts_what_the_factors_leave() -> None:
    L = np.eye(4)
    part = MaxNormFactors(L[:, :3], L[:3])
    assert _upper(L, part) >= 1.0 + 1.0 - 1e-12
    assert _upper(L, MaxNormFactors(L, L)) == pytest.approx(1.0)


def test_what_is_not_a_finite_matrix_is_refused() -> None:
    for wrong in (np.ones(3), np.full((2, 2), np.nan), np.ones((0, 3))):
        with pytest.raises(ProblemError, match="finite matrix"):
            gamma2_norm(wrong)
