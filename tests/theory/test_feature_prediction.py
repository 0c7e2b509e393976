from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from feature_cases import from_counts, random_counts
from scipy.sparse import csc_array

from tokengeom.errors import ProblemError, ResourceError
from tokengeom.numerics import cosines
from tokengeom.problems.instances import all_subsets
from tokengeom.theory.closed_forms import finite_part
from tokengeom.theory.features import predict_features

COUNTS = random_counts(12, 30, 3, seed=0)


def test_the_promised_names_hold_what_they_promise() -> None:
    f = predict_features(from_counts(COUNTS))
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
    f = predict_features(from_counts(COUNTS), tolerance=1e-9)
    assert np.allclose(f.token_gram @ f.token_gram, f.L_mm @ f.L_mm.T, atol=1e-5)
    assert np.allclose(f.context_gram @ f.context_gram, f.L_mm.T @ f.L_mm, atol=1e-5)
    assert np.allclose(np.diag(f.token_cosines), 1.0)


def test_the_direction_does_not_change_with_probabilities_inside_the_supports() -> None:
    rng = np.random.default_rng(3)
    other = np.where(COUNTS > 0, rng.integers(1, 50, COUNTS.shape), 0)
    a, b = predict_features(from_counts(COUNTS)), predict_features(from_counts(other))
    assert (a.L_mm == b.L_mm).all()
    assert not np.allclose(a.L_in, b.L_in)


def test_contexts_with_one_support_collapse_to_one_direction() -> None:
    f = predict_features(from_counts(np.concatenate([COUNTS, COUNTS * 2], axis=1)))
    assert (f.context_groups[:30] == f.context_groups[30:]).all()
    assert np.allclose(f.H[:, :30], f.H[:, 30:])
    assert np.allclose(np.diag(f.context_cosines[:30, 30:]), 1.0)


def test_all_k_subsets_give_an_equiangular_tight_frame() -> None:
    f = predict_features(from_counts(all_subsets(6, 2).S.astype(int)))
    off = f.token_cosines[~np.eye(6, dtype=bool)]
    assert np.allclose(off, -1.0 / 5.0, atol=1e-9)
    assert f.rank == 5
    assert f.proxy_is_exact


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        (np.eye(5, dtype=int), "neural collapse"),
        (np.ones((4, 6), dtype=int), "no geometry"),
        (np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0]]), "whole vocabulary as support"),
        (np.array([[1, 2, 3], [1, 1, 1], [0, 0, 0]]), "share one support"),
    ],
)
def test_degenerate_supports_are_warned_of_in_plain_words(counts: np.ndarray, says: str) -> None:
    f = predict_features(from_counts(counts))
    assert any(says in warning for warning in f.warnings)
    assert says in f.summary()


def test_full_supports_have_no_direction_and_no_nan() -> None:
    f = predict_features(from_counts(np.ones((4, 6), dtype=int)))
    assert f.nuclear_norm == 0.0
    assert f.rank == 0
    assert f.smallest_dim == 1
    assert (f.context_cosines == 0.0).all()
    assert (f.L_mm == 0.0).all()


def test_the_margin_bounds_hold_for_every_answer_found() -> None:
    counts = random_counts(8, 10, 2, seed=4)
    f = predict_features(from_counts(counts), tolerance=1e-7)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(10)
        other = predict_features(from_counts(counts[:, order]), tolerance=1e-7)
        L = other.reduction.reduce(other.L_mm)
        S = other.reduction.S_red
        level = np.where(S, L, 0).sum(axis=0) / S.sum(axis=0)
        slack = np.where(S, 0.0, level - L - 1.0)
        bound = np.where(S, np.inf, other.pinned.slack_bound)
        assert (slack <= bound + 1e-6).all()
    assert f.rank <= f.pinned.rank_bound
    assert 0.0 <= f.pinned.tight_share() <= 1.0


def test_bad_input_is_refused_in_words() -> None:
    stats = from_counts(COUNTS)
    holes = SimpleNamespace(P=stats.P, S=csc_array((COUNTS > 0) & (np.arange(30) != 4)), entropy=0.0)
    with pytest.raises(ProblemError, match="column 4"):
        predict_features(holes)
    with pytest.raises(ResourceError, match=r"GiB.*predict_proxy"):
        predict_features(stats, memory_limit=20_000)
    with pytest.raises(ProblemError, match="2 tokens"):
        predict_features(from_counts(np.ones((1, 3), dtype=int)))
    with pytest.raises(ProblemError, match="d=0"):
        predict_features(stats).suffices(0)
    with pytest.raises(ProblemError, match="tolerance"):
        predict_features(stats, tolerance=0.0)


def test_cosines_of_a_zero_column_are_zero() -> None:
    assert (cosines(np.array([[1.0, 0.0], [0.0, 0.0]])) == np.array([[1.0, 0.0], [0.0, 0.0]])).all()
