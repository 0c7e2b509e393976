"""Similarity numbers compared with scipy and closed forms, and their invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tokengeom.errors import ProblemError
from tokengeom.geometry.similarity import (
    centred_tokens,
    cosine,
    directional_similarity,
    linear_cka,
    logit_distance,
    pearson_off_diagonal,
    spearman_off_diagonal,
    structural_similarity,
)
from tokengeom.numerics import cosines, unit_columns

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


@given(SEEDS, st.integers(3, 12))
@settings(max_examples=30, deadline=None)
def test_correlations_of_off_diagonals_are_those_of_scipy(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    A, B = cosines(rng.standard_normal((3, n))), cosines(rng.standard_normal((4, n)))
    above = np.triu_indices(n, 1)
    assert pearson_off_diagonal(A, B) == pytest.approx(stats.pearsonr(A[above], B[above])[0], abs=1e-8)
    A, B = np.round(A, 1), np.round(B, 1)  # ties
    if min(np.ptp(A[above]), np.ptp(B[above])) > 0:
        assert spearman_off_diagonal(A, B) == pytest.approx(stats.spearmanr(A[above], B[above])[0], abs=ROUNDING)


def test_cka_is_the_alignment_of_centred_grams() -> None:
    rng = np.random.default_rng(2)
    A, B = rng.standard_normal((3, 9)), rng.standard_normal((5, 9))
    J = np.eye(9) - 1 / 9
    K, M = J @ A.T @ A @ J, J @ B.T @ B @ J
    expected = np.sum(K * M) / np.sqrt(np.sum(K * K) * np.sum(M * M))
    assert linear_cka(A, B) == pytest.approx(expected, abs=ROUNDING)


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_no_number_changes_under_rotation_scale_permutation_or_softmax_shift(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, V, m = 4, 6, 7
    W, H, T = rng.standard_normal((V, d)), rng.standard_normal((d, m)), rng.standard_normal((V, m))
    Y, Z = rng.standard_normal((3, m)), rng.standard_normal((3, V))
    R, order = orthogonal(d, rng), rng.permutation(m)

    def numbers(W: np.ndarray, H: np.ndarray, Y: np.ndarray, T: np.ndarray) -> list[float]:
        C, D = cosines(H), cosines(Y)
        tokens = centred_tokens(W)
        on_contexts = [f(C, D) for f in (structural_similarity, pearson_off_diagonal, spearman_off_diagonal)]
        on_tokens = [structural_similarity(cosines(tokens), cosines(Z)), linear_cka(tokens, Z)]
        return [*on_contexts, linear_cka(H, Y), *on_tokens, logit_distance(W @ H, T)]

    expected = pytest.approx(numbers(W, H, Y, T), abs=1e-9)
    assert numbers(W @ R, R.T @ H, Y, T) == expected
    assert numbers(3.0 * W, 0.2 * H, 5.0 * Y, 2.0 * T) == expected
    assert numbers(W, H[:, order], Y[:, order], T[:, order]) == expected
    assert numbers(W + rng.standard_normal(d), H, Y, T) == expected  # adds a constant to every column of W H
    assert numbers(W, H, Y, T + rng.standard_normal(m)) == expected


def test_logit_distance_of_equal_orthogonal_and_opposite_logits() -> None:
    L = np.array([[1.0, 0.0], [-1.0, 0.0]])
    M = np.array([[0.0, 1.0], [0.0, -1.0]])
    assert logit_distance(L, 7 * L + 3.0) == pytest.approx(0.0, abs=1e-15)
    assert logit_distance(L, M) == pytest.approx(np.sqrt(2.0))
    assert logit_distance(L, -L) == pytest.approx(2.0)


def test_logit_distance_falls_like_one_over_the_norm() -> None:
    rng = np.random.default_rng(3)
    L_in, L_mm = rng.standard_normal((5, 6)), rng.standard_normal((5, 6))
    R = np.array([1e3, 1e4, 1e5])
    distances = [logit_distance(L_in + r * L_mm, L_mm) for r in R]
    assert np.polyfit(np.log(R), np.log(distances), 1)[0] == pytest.approx(-1.0, abs=0.01)


def test_what_is_not_defined_is_nan() -> None:
    frame = cosines(np.eye(4) - 0.25)
    assert np.isnan(pearson_off_diagonal(frame, frame))
    assert np.isnan(spearman_off_diagonal(np.round(frame, 9), frame))
    assert np.isnan(cosine(np.zeros(3), np.ones(3)))
    assert np.isnan(logit_distance(np.ones((2, 2)), np.eye(2)))
    assert np.isnan(linear_cka(np.ones((2, 3)), np.eye(3)))
    assert cosine(np.ones(3), 2 * np.ones(3)) == pytest.approx(1.0)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"\(3, 3\) and \(4, 4\)"):
        structural_similarity(np.eye(3), np.eye(4))
    with pytest.raises(ProblemError, match=r"A \(2, 3\) and B \(2, 4\)"):
        linear_cka(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(ProblemError, match="square"):
        pearson_off_diagonal(np.ones((2, 3)), np.ones((2, 3)))
