from __future__ import annotations

from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_array
from scipy.special import logsumexp
from threadpoolctl import threadpool_info

from tokengeom.core import numerics
from tokengeom.core.numerics import (
    SparseProduct,
    blas_threads_for,
    centre_columns,
    column_norms,
    cosines,
    dense,
    excess_exponential,
    log_sum_exp,
    reliability_of_mean,
    unit_columns,
    x_log_x,
)


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_log_sum_exp_agrees_with_scipy(seed: int, scale: float) -> None:
    x = np.random.default_rng(seed).normal(size=(5, 7)) * scale
    np.testing.assert_allclose(log_sum_exp(x), logsumexp(x, axis=0), rtol=1e-13, atol=1e-13)


def test_log_sum_exp_of_an_empty_sum_is_minus_infinity() -> None:
    assert log_sum_exp(np.full((3, 1), -np.inf))[0] == -np.inf


def test_a_sparse_product_is_the_product_of_its_factors() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(4, 3)), rng.integers(0, 2, size=(3, 6)).astype(np.float64)
    M = SparseProduct(csc_array(A), csc_array(B))
    assert (M.shape, M.T.shape) == ((4, 6), (6, 4))
    np.testing.assert_allclose(M.toarray(), A @ B, atol=1e-14)
    np.testing.assert_allclose(M @ np.arange(6.0), A @ B @ np.arange(6), atol=1e-13)
    np.testing.assert_allclose(M.T @ A, (A @ B).T @ A, atol=1e-13)
    norms = np.linalg.norm(A @ B, axis=0)
    np.testing.assert_allclose(column_norms(csc_array(A @ B)), norms, atol=1e-14)
    assert (column_norms(M) >= norms - 1e-14).all()


def test_centred_columns_have_mean_zero() -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)) + 5
    np.testing.assert_allclose(centre_columns(x).sum(axis=0), 0, atol=1e-14)


def test_cosines_are_those_of_unit_columns_and_zero_for_a_zero_column() -> None:
    x = np.array([[3.0, 0.0, 1.0], [4.0, 0.0, 0.0]])
    np.testing.assert_allclose(unit_columns(x), [[0.6, 0.0, 1.0], [0.8, 0.0, 0.0]])
    np.testing.assert_allclose(cosines(x), [[1.0, 0.0, 0.6], [0.0, 0.0, 0.0], [0.6, 0.0, 1.0]], atol=1e-15)


def test_x_log_x_is_zero_at_zero() -> None:
    np.testing.assert_allclose(x_log_x(np.array([0.0, 1.0, 0.5])), [0, 0, 0.5 * np.log(0.5)])


@pytest.mark.parametrize("u", [1e-150, 1e-8, -1e-8, 9.9e-3, -1e-2, 0.5, -3.0, 20.0])
def test_excess_exponential_keeps_its_digits(u: float) -> None:
    getcontext().prec = 400
    exact = Decimal(u).exp() - 1 - Decimal(u)
    assert float(excess_exponential(np.array(u))) == pytest.approx(float(exact), rel=1e-13)


def test_dense_and_sparse_matrices_become_the_same_array() -> None:
    x = [[1, 0], [2, 3]]
    for given_as in (x, np.array(x), csc_array(np.array(x))):
        found = dense(given_as)
        assert found.dtype == np.float64
        assert found.tolist() == [[1.0, 0.0], [2.0, 3.0]]


def blas_threads() -> set[int]:
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


def test_small_products_use_one_thread_and_large_ones_as_many_as_before() -> None:
    before = blas_threads()
    with blas_threads_for(104, 400):
        assert blas_threads() == {1}
    assert blas_threads() == before
    with blas_threads_for(4096, 16384):
        assert blas_threads() == before


def test_without_threadpoolctl_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "_controller", lambda: None)
    before = blas_threads()
    with blas_threads_for(2, 2):
        assert blas_threads() == before


def test_reliability_of_a_mean_is_its_correlation_with_another_mean() -> None:
    """Rows x + noise: rho = v / (v + s^2); one row says nothing of its own noise."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(20_000)
    first, second = (x + 2.0 * rng.standard_normal((5, x.size)) for _ in range(2))
    reliability, error = reliability_of_mean(first)
    assert reliability == pytest.approx(5 / 9, abs=0.02)
    assert reliability == pytest.approx(np.corrcoef(first.mean(axis=0), second.mean(axis=0))[0, 1], abs=0.02)
    assert error == pytest.approx(2.0 / np.sqrt(5), rel=0.01)
    assert np.isnan(reliability_of_mean(first[:1])).all()
    assert np.isnan(reliability_of_mean(first[:, :1])).all()
    assert reliability_of_mean(np.array([[1.0, 2.0], [2.0, 1.0]]))[0] == 0.0
