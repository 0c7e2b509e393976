from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import from_counts, random_counts, random_probabilities
from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Int
from tokengeom.theory.features import finite_part, project_on_F
from tokengeom.theory.predict import predict
from tokengeom_studies.common.known_patterns import all_subsets

COUNTS = random_counts(12, 30, 3, seed=0)


def test_logits_factors_and_norms_agree() -> None:
    f = predict(from_counts(COUNTS))
    assert f.L_in.shape == f.L_mm.shape == (12, 30)
    assert f.W.shape == (12, f.rank)
    assert f.H.shape == (f.rank, 30)
    assert f.lower_bound <= f.nuclear_norm <= f.proxy_nuclear_norm * (1 + 1e-9)
    assert f.certificate.relative_gap <= 1e-6
    assert f.singular_values.sum() == pytest.approx(f.nuclear_norm, rel=1e-5)
    assert np.linalg.norm(f.L_mm, "nuc") == pytest.approx(f.nuclear_norm, rel=1e-8)
    assert np.allclose(f.W @ f.H, f.L_mm, atol=1e-4)
    assert np.allclose(f.L_in, finite_part(COUNTS / COUNTS.sum(axis=0)), atol=1e-12)
    assert f.smallest_dim == f.rank
    assert f.suffices(f.rank)
    assert not f.suffices(f.rank - 1)
    assert "Rank" in f.summary()


def test_grams_are_the_square_roots_of_logit_products() -> None:
    f = predict(from_counts(COUNTS), tolerance=1e-9)
    assert np.allclose(f.token_gram @ f.token_gram, f.L_mm @ f.L_mm.T, atol=1e-5)
    assert np.allclose(f.context_gram @ f.context_gram, f.L_mm.T @ f.L_mm, atol=1e-5)
    assert np.allclose(np.diag(f.token_cosines), 1.0)


def test_the_direction_does_not_change_with_probabilities_inside_the_supports() -> None:
    rng = np.random.default_rng(3)
    other = np.where(COUNTS > 0, rng.integers(1, 50, COUNTS.shape), 0)
    a, b = predict(from_counts(COUNTS)), predict(from_counts(other))
    assert (a.L_mm == b.L_mm).all()
    assert not np.allclose(a.L_in, b.L_in)
    assert a.statistics_hash != b.statistics_hash


def test_contexts_with_equal_supports_have_the_same_direction() -> None:
    f = predict(from_counts(np.concatenate([COUNTS, COUNTS * 2], axis=1)))
    assert (f.context_groups[:30] == f.context_groups[30:]).all()
    assert np.allclose(f.H[:, :30], f.H[:, 30:])
    assert np.allclose(np.diag(f.context_cosines[:30, 30:]), 1.0)


def test_all_k_subsets_give_an_equiangular_tight_frame() -> None:
    f = predict(from_counts(all_subsets(6, 2).S.astype(int)))
    off = f.token_cosines[~np.eye(6, dtype=bool)]
    assert np.allclose(off, -1.0 / 5.0, atol=1e-9)
    assert f.rank == 5
    assert f.proxy_is_exact


def test_one_hot_supports_are_neural_collapse_only_with_equally_many_contexts_per_token() -> None:
    off = ~np.eye(6, dtype=bool)
    balanced = predict(from_counts(np.repeat(np.eye(6, dtype=int), 4, axis=1)))
    assert np.allclose(balanced.token_cosines[off], -0.2, atol=1e-6)
    contexts = [40, 20, 10, 5, 2, 1]
    unbalanced = predict(from_counts(np.repeat(np.eye(6, dtype=int), contexts, axis=1)))
    cosines = unbalanced.token_cosines[off]
    assert cosines.min() < -0.3
    assert cosines.max() > 0.1
    assert any("equally many contexts" in warning for warning in unbalanced.warnings)


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        (np.eye(5, dtype=int), "one-hot classification"),
        (np.ones((4, 6), dtype=int), "no geometry"),
        (np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0]]), "whole vocabulary as support"),
        (np.array([[1, 2, 3], [1, 1, 1], [0, 0, 0]]), "same support"),
    ],
)
def test_degenerate_supports_give_a_warning(counts: Int, says: str) -> None:
    f = predict(from_counts(counts))
    assert any(says in warning for warning in f.warnings)
    assert says in f.summary()


def test_full_supports_have_no_direction_and_no_nan() -> None:
    f = predict(from_counts(np.ones((4, 6), dtype=int)))
    assert f.nuclear_norm == 0.0
    assert f.rank == 0
    assert f.smallest_dim == 1
    assert (f.context_cosines == 0.0).all()
    assert (f.L_mm == 0.0).all()


def test_the_margin_bounds_hold_for_every_solution_found() -> None:
    counts = random_counts(8, 10, 2, seed=4)
    f = predict(from_counts(counts), tolerance=1e-7)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(10)
        other = predict(from_counts(counts[:, order]), tolerance=1e-7)
        L = other.reduction.reduce(other.L_mm)
        S = other.reduction.S_red
        level = np.where(S, L, 0).sum(axis=0) / S.sum(axis=0)
        slack = np.where(S, 0.0, level - L - 1.0)
        bound = np.where(S, np.inf, other.solution_bounds.slack_bound)
        assert (slack <= bound + 1e-6).all()
    assert f.rank <= f.solution_bounds.rank_bound
    assert 0.0 <= f.solution_bounds.tight_share() <= 1.0


def test_a_dimension_below_one_is_refused() -> None:
    with pytest.raises(ProblemError, match="d=0"):
        predict(from_counts(COUNTS)).suffices(0)


def test_the_repr_is_short_and_the_statistics_are_kept() -> None:
    stats = from_counts(COUNTS)
    f = predict(stats)
    assert repr(f).startswith("FeaturePrediction(contexts=30, tokens=12, nuclear norm of L_mm=")
    assert len(repr(f)) < 150
    assert f.stats is stats
    assert f.statistics_hash == f.to_dict()["statistics_hash"] == stats.hash


def test_the_finite_part_matches_a_hand_made_case() -> None:
    P = np.array([[0.5, 1.0], [0.25, 0.0], [0.25, 0.0], [0.0, 0.0]])
    expected = np.zeros((4, 2))
    expected[:3, 0] = np.array([2.0, -1.0, -1.0]) * np.log(2.0) / 3.0
    assert np.allclose(finite_part(P), expected, atol=1e-14)


@settings(max_examples=30, deadline=None)
@given(V=st.integers(2, 6), m=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_projections_are_those_on_the_span_of_in_support_differences(V: int, m: int, seed: int) -> None:
    S = random_probabilities(V, m, seed) > 0
    L = np.random.default_rng(seed).standard_normal((V, m))
    on = project_on_F(L, S)
    assert np.allclose(project_on_F(on, S), on, atol=1e-12)
    # An independent projector: least squares on the spanning vectors, column by column.
    for j in range(m):
        inside = np.flatnonzero(S[:, j])
        basis = np.zeros((V, inside.size - 1))
        for c, z in enumerate(inside[1:]):
            basis[inside[0], c], basis[z, c] = 1.0, -1.0
        fitted = basis @ np.linalg.lstsq(basis, L[:, j], rcond=None)[0] if inside.size > 1 else np.zeros(V)
        assert np.allclose(on[:, j], fitted, atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(V=st.integers(2, 6), m=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_the_finite_part_has_the_log_odds_and_does_not_depend_on_a_shift(V: int, m: int, seed: int) -> None:
    P = random_probabilities(V, m, seed)
    L = finite_part(P)
    for j in range(m):
        inside = np.flatnonzero(P[:, j])
        odds = np.log(P[inside, j] / P[inside[0], j])
        assert np.allclose(L[inside, j] - L[inside[0], j], odds, atol=1e-12)
    assert np.allclose(project_on_F(L + 7.0, P > 0), L, atol=1e-12)


def test_probabilities_and_logits_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ProblemError, match="NaN"):
        finite_part(np.array([[np.nan, 1.0], [1.0, 0.0]]))
    with pytest.raises(ProblemError, match="transposed"):
        project_on_F(np.zeros((2, 3)), np.ones((3, 2)))
