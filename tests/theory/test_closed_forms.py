from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom.errors import ProblemError
from tokengeom.problems.instances import KnownInstance, catalogue
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.statistics.next_token import NextTokenStatistics
from tokengeom.theory import closed_forms
from tokengeom.theory.closed_forms import (
    finite_part,
    project_off_F,
    project_on_F,
    proxy,
    proxy_exactness,
)
from tokengeom.theory.features import predict_features


def probabilities(V: int, m: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    P = rng.random((V, m)) * (rng.random((V, m)) < 0.5)
    P[rng.integers(V, size=m), np.arange(m)] += 0.1
    return P / P.sum(axis=0)


def test_the_finite_part_matches_a_hand_made_case() -> None:
    P = np.array([[0.5, 1.0], [0.25, 0.0], [0.25, 0.0], [0.0, 0.0]])
    expected = np.zeros((4, 2))
    expected[:3, 0] = np.array([2.0, -1.0, -1.0]) * np.log(2.0) / 3.0
    assert np.allclose(finite_part(P), expected, atol=1e-14)


@settings(max_examples=30, deadline=None)
@given(V=st.integers(2, 6), m=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_projections_are_those_on_the_span_of_in_support_differences(V: int, m: int, seed: int) -> None:
    S = probabilities(V, m, seed) > 0
    L = np.random.default_rng(seed).standard_normal((V, m))
    on, off = project_on_F(L, S), project_off_F(L, S)
    assert np.allclose(on + off, L, atol=1e-12)
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
def test_the_finite_part_solves_the_log_odds_and_ignores_a_shift(V: int, m: int, seed: int) -> None:
    P = probabilities(V, m, seed)
    L = finite_part(P)
    for j in range(m):
        inside = np.flatnonzero(P[:, j])
        odds = np.log(P[inside, j] / P[inside[0], j])
        assert np.allclose(L[inside, j] - L[inside[0], j], odds, atol=1e-12)
    assert np.allclose(project_on_F(L + 7.0, P > 0), L, atol=1e-12)


def test_every_margin_of_the_proxy_is_one() -> None:
    S = probabilities(6, 9, 1) > 0
    L = proxy(S)
    assert np.allclose(L.sum(axis=0), 0.0, atol=1e-12)
    assert NuclearSVM.from_support(S, merge=False).primal_violation(L[:, ~S.all(axis=0)]) <= 1e-12


@pytest.mark.parametrize("known", catalogue(), ids=lambda known: known.name)
def test_the_proxy_of_a_known_instance_is_found_exact(known: KnownInstance) -> None:
    exactness = proxy_exactness(NuclearSVM.from_support(known.S))
    assert exactness
    assert exactness.nuclear_norm == pytest.approx(known.nuclear_norm, rel=1e-10)
    assert "exact" in exactness.sentence


@settings(max_examples=25, deadline=None)
@given(V=st.integers(3, 7), m=st.integers(2, 14), seed=st.integers(0, 10**6))
def test_the_sign_test_agrees_with_the_solver(V: int, m: int, seed: int) -> None:
    p = NuclearSVM.from_support(probabilities(V, m, seed) > 0)
    exactness = proxy_exactness(p)
    best = NuclearADMM(tolerance=1e-9)(p).certificate
    if exactness.exact is True:
        assert exactness.nuclear_norm <= best.bound * (1 + 1e-8) + 1e-9
    elif exactness.exact is False:
        assert exactness.nuclear_norm > best.value * (1 + 1e-9)


def test_a_failed_sign_test_does_not_decide_when_the_rank_is_small() -> None:
    # Rank 4 with V - 1 = g = 5: U V^T is positive somewhere off support, and yet the proxy is optimal.
    S = np.array([
        [0, 1, 1, 0, 0], [0, 1, 0, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 1, 1, 1, 0],
    ])  # fmt: skip
    p = NuclearSVM.from_support(S)
    exactness = proxy_exactness(p)
    assert exactness.largest_entry > 0.1
    assert not exactness.decisive
    assert exactness.exact is None
    assert "cannot decide" in exactness.sentence
    assert NuclearADMM(tolerance=1e-9)(p).certificate.bound >= exactness.nuclear_norm * (1 - 1e-8)
    assert predict_features(NextTokenStatistics.from_counts(S)).proxy_is_exact


def test_the_gram_route_gives_the_verdict_of_the_svd(monkeypatch: pytest.MonkeyPatch) -> None:
    for S in [known.S for known in catalogue()] + [probabilities(7, 12, seed) > 0 for seed in range(5)]:
        p = NuclearSVM.from_support(S)
        monkeypatch.setattr(closed_forms, "SVD_SIDE", 10**6)
        by_svd = proxy_exactness(p)
        monkeypatch.setattr(closed_forms, "SVD_SIDE", 0)
        by_gram = proxy_exactness(p)
        assert by_gram.exact == by_svd.exact
        assert by_gram.rank == by_svd.rank
        assert by_gram.nuclear_norm == pytest.approx(by_svd.nuclear_norm, rel=1e-9)


def test_wrong_input_is_refused_in_words() -> None:
    with pytest.raises(ProblemError, match="NaN"):
        finite_part(np.array([[np.nan, 1.0], [1.0, 0.0]]))
    with pytest.raises(ProblemError, match="transposed"):
        project_on_F(np.zeros((2, 3)), np.ones((3, 2)))
    with pytest.raises(ProblemError, match="column 0"):
        proxy(np.array([[0, 1], [0, 1]]))
