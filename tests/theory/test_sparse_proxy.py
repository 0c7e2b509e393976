from __future__ import annotations

import numpy as np
import pytest
from feature_cases import from_counts, random_counts
from scipy.sparse import csc_array, random_array, vstack

from tokengeom.errors import ProblemError
from tokengeom.theory.closed_forms import proxy
from tokengeom.theory.proxy import predict_proxy


def test_the_truncated_svd_is_that_of_the_dense_proxy() -> None:
    stats = from_counts(random_counts(20, 50, 4, seed=1))
    found = predict_proxy(stats, components=6)
    U, s, Vt = np.linalg.svd(proxy(stats.S), full_matrices=False)
    assert np.allclose(found.singular_values, s[:6], rtol=1e-9)
    assert np.allclose(np.abs(np.diag(found.U.T @ U[:, :6])), 1.0, atol=1e-6)
    assert np.allclose(found.W @ found.H, (U[:, :6] * s[:6]) @ Vt[:6], atol=1e-6)
    assert found.captured == pytest.approx((s[:6] ** 2).sum() / (s**2).sum(), rel=1e-9)
    assert found.is_proxy
    assert "not the certified" in found.summary()


def test_a_corpus_sized_pattern_is_never_made_dense() -> None:
    # Dense it would take 8 GB; the test would not survive that.
    S = random_array((9_999, 100_000), density=2e-5, rng=np.random.default_rng(0), format="csc")
    S = vstack([csc_array(np.ones((1, 100_000))), S])
    found = predict_proxy(S, components=3)
    assert found.H.shape == (3, 100_000)


def test_bad_input_is_refused_in_words() -> None:
    with pytest.raises(ProblemError, match="components=5"):
        predict_proxy(np.eye(5), components=5)
    with pytest.raises(ProblemError, match="column 1"):
        predict_proxy(np.array([[1, 0, 1], [1, 0, 1], [0, 0, 1]]), components=1)
