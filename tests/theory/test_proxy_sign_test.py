"""The sign test of the proxy: exact, not exact or undecided, against closed forms and the solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import from_counts, random_pattern
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.theory import proxy as proxy_module
from tokengeom.theory.predict import predict
from tokengeom.theory.proxy import proxy_exactness
from tokengeom_studies.common.known_patterns import KnownInstance, catalogue


@pytest.mark.parametrize("known", catalogue(), ids=lambda known: known.name)
def test_the_proxy_of_a_known_instance_is_found_exact(known: KnownInstance) -> None:
    exactness = proxy_exactness(NuclearSVM.from_support(known.S))
    assert exactness
    assert exactness.nuclear_norm == pytest.approx(known.nuclear_norm, rel=1e-10)
    assert "exact" in exactness.sentence


@settings(max_examples=25, deadline=None)
@given(V=st.integers(3, 7), m=st.integers(2, 14), seed=st.integers(0, 10**6))
def test_the_sign_test_agrees_with_the_solver(V: int, m: int, seed: int) -> None:
    p = NuclearSVM.from_support(random_pattern(V, m, seed, density=0.5))
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
    assert predict(from_counts(S)).proxy_is_exact


def test_the_gram_matrix_gives_the_verdict_of_the_svd(monkeypatch: pytest.MonkeyPatch) -> None:
    for S in [known.S for known in catalogue()] + [random_pattern(7, 12, seed, density=0.5) for seed in range(5)]:
        p = NuclearSVM.from_support(S)
        monkeypatch.setattr(proxy_module, "SVD_SIDE", 10**6)
        by_svd = proxy_exactness(p)
        monkeypatch.setattr(proxy_module, "SVD_SIDE", 0)
        by_gram = proxy_exactness(p)
        assert by_gram.exact == by_svd.exact
        assert by_gram.rank == by_svd.rank
        assert by_gram.nuclear_norm == pytest.approx(by_svd.nuclear_norm, rel=1e-9)
