from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from tokengeom.numerics import centre_columns, excess_exponential, log_sum_exp, x_log_x


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_log_sum_exp_agrees_with_scipy(seed: int, scale: float) -> None:
    x = np.random.default_rng(seed).normal(size=(5, 7)) * scale
    np.testing.assert_allclose(log_sum_exp(x), logsumexp(x, axis=0), rtol=1e-13, atol=1e-13)


def test_log_sum_exp_of_nothing_is_minus_infinity() -> None:
    assert log_sum_exp(np.full((3, 1), -np.inf))[0] == -np.inf


def test_centred_columns_have_mean_zero() -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)) + 5
    np.testing.assert_allclose(centre_columns(x).sum(axis=0), 0, atol=1e-14)


def test_x_log_x_is_zero_at_zero() -> None:
    np.testing.assert_allclose(x_log_x(np.array([0.0, 1.0, 0.5])), [0, 0, 0.5 * np.log(0.5)])


@pytest.mark.parametrize("u", [1e-150, 1e-8, -1e-8, 9.9e-3, -1e-2, 0.5, -3.0, 20.0])
def test_excess_exponential_keeps_its_digits(u: float) -> None:
    from decimal import Decimal, getcontext

    getcontext().prec = 400
    exact = Decimal(u).exp() - 1 - Decimal(u)
    assert float(excess_exponential(np.array(u))) == pytest.approx(float(exact), rel=1e-13)
