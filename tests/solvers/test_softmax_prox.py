"""The compiled proximal map of the loss solves its equations, from any start, with any number of threads."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import lambertw

from tokengeom.core.numerics import Float
from tokengeom.solvers.softmax_prox import solve


def problem(seed: int, V: int, m: int, strength: float) -> tuple[Float, Float, Float, Float, Float]:
    rng = np.random.default_rng(seed)
    a = rng.integers(1, 50, V).astype(float)
    P = rng.random((m, V)) * (rng.random((m, V)) < 0.3)
    P[:, 0] += 0.1
    P /= (P * a).sum(1, keepdims=True)
    return 3.0 * rng.normal(size=(m, V)), P, a, rng.uniform(0.5, 2.0, V), strength * rng.uniform(0.5, 2.0, m)


def solved(shift: Float, P: Float, a: Float, row: Float, column: Float, u: Float, level: Float) -> tuple[Float, ...]:
    u, level, change = u.copy(), level.copy(), np.empty_like(u)
    solve(shift, P, a, row, column, u, level, change)
    return u, level, change


def reference(shift: Float, P: Float, a: Float, kappa: Float) -> tuple[Float, float]:
    """One column by Lambert's W and a root finder: ``u + k e^u = c`` has the root ``c - W(k e^c)``."""
    base, off = np.where(P > 0, P, 1.0), P == 0

    def at(level: float) -> tuple[Float, float]:
        c = shift - level + kappa * np.where(off, 0.0, P)
        u = c - np.real(lambertw(kappa * base * np.exp(c)))
        return u, float(a @ (base * np.exp(u) - P))

    level = brentq(lambda t: at(t)[1], -60.0, 60.0, xtol=1e-14)
    return at(level)[0], level


@pytest.mark.parametrize("strength", [1e-3, 1.0, 100.0])
def test_roots_are_those_of_lamberts_function(strength: float) -> None:
    shift, P, a, row, column = problem(0, 40, 21, strength)
    start = np.minimum(shift, 0.0)
    u, level, change = solved(shift, P, a, row, column, start, np.zeros(21))
    for j in range(21):
        wanted, at = reference(shift[j], P[j], a, row * column[j])
        np.testing.assert_allclose(u[j], wanted, atol=1e-9)
        np.testing.assert_allclose(level[j], at, atol=1e-9)
    np.testing.assert_allclose(change, np.where(P > 0, P * np.expm1(u), np.exp(u)), rtol=1e-13)


@pytest.mark.parametrize("strength", [1e-12, 1.0, 1e12])
def test_equations_hold_at_any_strength_and_from_any_start(strength: float) -> None:
    shift, P, a, row, column = problem(1, 300, 17, strength)
    rng = np.random.default_rng(2)
    first = solved(shift, P, a, row, column, np.minimum(shift, 0.0), np.zeros(17))
    other = solved(shift, P, a, row, column, 5.0 * rng.normal(size=shift.shape), 5.0 * rng.normal(size=17))
    for u, level, change in (first, other):
        kappa = column[:, None] * row
        error = np.abs(u + kappa * change - (shift - level[:, None])) / (1.0 + kappa * np.abs(change) + np.abs(shift))
        assert error.max() < 1e-12
        assert np.abs(change @ a).max() < 1e-12
    np.testing.assert_allclose(first[0], other[0], rtol=1e-9, atol=1e-9)


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    shift, P, a, row, column = problem(3, 100, 33, 10.0)
    before = numba.get_num_threads()
    try:
        found = []
        for threads in (1, before):
            numba.set_num_threads(threads)
            found.append(solved(shift, P, a, row, column, np.minimum(shift, 0.0), np.zeros(33)))
    finally:
        numba.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
