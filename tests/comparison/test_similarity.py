"""Similarity numbers compared with scipy and closed forms, and their invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from geometry_cases import structural_similarity
from tokengeom.comparison.similarity import (
    cosine,
    directional_agreement,
    directional_similarity,
)
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import centre_columns, cosines, unit_columns

ROUNDING = 1e-10  # sums of a few thousand products of size 1
SEEDS = st.integers(0, 2**32 - 1)


def orthogonal(d: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def test_sim_is_the_structural_term_of_ssim() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((7, 7)), rng.standard_normal((7, 7))
    C = np.cov(A.ravel(), B.ravel(), bias=True)
    assert structural_similarity(A, B) == pytest.approx(
        (C[0, 1] + 1e-5) / (np.sqrt(C[0, 0] * C[1, 1]) + 1e-5), abs=1e-14
    )
    assert structural_similarity(A, A) == pytest.approx(1.0, abs=1e-14)
    v = A.var()
    assert structural_similarity(A, -A) == pytest.approx((-v + 1e-5) / (v + 1e-5), abs=1e-14)


@given(SEEDS, st.integers(2, 12), st.integers(1, 6), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_sim_from_factors_is_sim_of_the_cosine_matrices(seed: int, m: int, p: int, q: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((p, m)), rng.standard_normal((q, m))
    expected = structural_similarity(cosines(X), cosines(Y))
    assert directional_similarity(unit_columns(X), unit_columns(Y)) == pytest.approx(expected, abs=1e-9)


def test_items_without_a_predicted_direction_are_left_out() -> None:
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((3, 6)), rng.standard_normal((4, 6))
    X[:, 2] = 0.0
    kept = [0, 1, 3, 4, 5]
    expected = structural_similarity(cosines(X[:, kept]), cosines(Y[:, kept]))
    assert directional_similarity(unit_columns(X), unit_columns(Y)) == pytest.approx(expected, abs=ROUNDING)
    assert np.isnan(directional_similarity(np.zeros((0, 6)), unit_columns(Y)))


@given(SEEDS, st.integers(6, 14), st.integers(1, 16), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_agreement_from_factors_is_scipys_correlation_over_pairs_of_different_groups(
    seed: int, m: int, p: int, q: int
) -> None:
    rng = np.random.default_rng(seed)
    X, Y, groups = rng.standard_normal((p + 1, m)), rng.standard_normal((q + 1, m)), rng.integers(0, 4, m)
    groups[:2] = 0, 1
    X[:, 3] = 0.0
    kept = np.delete(np.arange(m), 3)
    x, y = cosines(X)[np.ix_(kept, kept)], cosines(Y)[np.ix_(kept, kept)]
    for labels in (groups, None):
        of = np.arange(m) if labels is None else labels
        apart = of[kept][:, None] != of[kept][None, :]
        found = directional_agreement(unit_columns(X), unit_columns(Y), labels)
        assert found == pytest.approx(stats.pearsonr(x[apart], y[apart])[0], abs=1e-7)


def test_agreement_that_is_not_defined_is_nan() -> None:
    rng = np.random.default_rng(0)
    Y = unit_columns(rng.standard_normal((3, 5)))
    assert np.isnan(directional_agreement(unit_columns(np.eye(5) - 0.2), Y)), "a simplex frame does not vary"
    assert np.isnan(directional_agreement(Y, Y, np.zeros(5, int))), "one group has no pairs"
    assert np.isnan(directional_agreement(np.zeros((0, 5)), Y))
    assert directional_agreement(Y, Y) == pytest.approx(1.0)


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_no_number_changes_under_rotation_scale_permutation_or_softmax_shift(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, V, m = 4, 6, 7
    W, H = rng.standard_normal((V, d)), rng.standard_normal((d, m))
    Y, Z = rng.standard_normal((3, m)), rng.standard_normal((3, V))
    R, order = orthogonal(d, rng), rng.permutation(m)

    def numbers(W: np.ndarray, H: np.ndarray, Y: np.ndarray) -> list[float]:
        tokens, contexts, predicted = (unit_columns(X) for X in (centre_columns(W).T, H, Y))
        return [
            structural_similarity(cosines(H), cosines(Y)),
            directional_similarity(predicted, contexts),
            directional_agreement(predicted, contexts),
            directional_agreement(unit_columns(Z), tokens),
        ]

    expected = pytest.approx(numbers(W, H, Y), abs=1e-9)
    assert numbers(W @ R, R.T @ H, Y) == expected
    assert numbers(3.0 * W, 0.2 * H, 5.0 * Y) == expected
    assert numbers(W, H[:, order], Y[:, order]) == expected
    assert numbers(W + rng.standard_normal(d), H, Y) == expected  # adds a constant to every column of W H


def test_what_is_not_defined_is_nan() -> None:
    assert np.isnan(cosine(np.zeros(3), np.ones(3)))
    assert cosine(np.ones(3), 2 * np.ones(3)) == pytest.approx(1.0)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"\(3, 3\) and \(4, 4\)"):
        cosine(np.eye(3), np.eye(4))
