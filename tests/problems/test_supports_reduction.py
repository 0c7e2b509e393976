from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array

from feature_cases import random_pattern
from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.core.numerics import Matrix
from tokengeom.problems.supports import reduce_support


@settings(max_examples=30, deadline=None)
@given(V=st.integers(2, 6), m=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_expanding_the_merged_pattern_gives_the_pattern_back(V: int, m: int, seed: int) -> None:
    S = random_pattern(V, m, seed)
    red = reduce_support(S)
    full = red.expand(red.S_red.astype(float)) > 0
    assert (full[:, ~S.all(axis=0)] == S[:, ~S.all(axis=0)]).all()
    assert ((red.column_of == -1) == S.all(axis=0)).all()
    assert red.a.sum() == V
    assert red.n.sum() == (~S.all(axis=0)).sum()


@settings(max_examples=30, deadline=None)
@given(V=st.integers(2, 6), m=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_sparse_and_dense_patterns_are_merged_alike(V: int, m: int, seed: int) -> None:
    S = random_pattern(V, m, seed)
    dense, sparse = reduce_support(S), reduce_support(csc_array(S.astype(float)))
    for name in ("S_red", "row_of", "column_of"):
        assert (getattr(dense, name) == getattr(sparse, name)).all()
    assert dense.equals(sparse)


def test_another_pattern_is_not_equal() -> None:
    S = random_pattern(6, 9, 1)
    other = S.copy()
    other[:, 0] = np.arange(6) == 2
    assert not reduce_support(S).equals(reduce_support(other))
    assert not reduce_support(S).equals(reduce_support(S[:, :8]))


def test_reducing_undoes_expanding() -> None:
    red = reduce_support(random_pattern(6, 20, 3))
    L = np.random.default_rng(0).standard_normal(red.S_red.shape)
    assert np.allclose(red.reduce(red.expand(L)), L, atol=1e-12)


def test_an_expanded_dual_keeps_its_spectral_norm() -> None:
    red = reduce_support(random_pattern(5, 30, 4))
    G = np.random.default_rng(0).standard_normal(red.S_red.shape)
    assert np.isclose(np.linalg.norm(red.expand_dual(G), 2), np.linalg.norm(G, 2), rtol=1e-12)


def test_merged_triplets_give_the_balanced_factors_of_all_logits() -> None:
    red = reduce_support(np.concatenate([random_pattern(6, 9, 5), np.ones((6, 1), dtype=bool)], axis=1))
    L = np.random.default_rng(0).standard_normal(red.S_red.shape)
    U, s, Vt = red.svd(L, 1e-12)
    W, H = red.token_factor(U, s), red.context_factor(s, Vt)
    assert np.allclose(W @ H, red.expand(L), atol=1e-12)
    assert np.allclose(W.T @ W, H @ H.T, atol=1e-12)
    assert np.allclose(s, np.linalg.svd(red.expand(L), compute_uv=False)[: s.size])
    assert (H[:, -1] == 0).all()


@pytest.mark.parametrize(
    ("S", "says"),
    [
        (np.array([[1, 0], [0, 0]]), "column 1"),
        (np.zeros((0, 3)), "shape"),
        (np.array([[np.nan, 1.0], [1.0, 0.0]]), "NaN"),
        (csc_array(np.array([[1, 0], [0, 0]])), "column 1"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(S: Matrix, says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        reduce_support(S)


def test_a_pattern_beyond_memory_is_refused_with_its_size_and_the_alternative() -> None:
    with pytest.raises(ResourceError, match=r"GiB.*predict_proxy"):
        reduce_support(csc_array(np.eye(50)), memory_limit=1000)
