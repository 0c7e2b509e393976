from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom.problems.arrays import Arrays
from tokengeom.solvers.splitting import singular_value_threshold


@settings(max_examples=30, deadline=None)
@given(
    V=st.integers(1, 8), m=st.integers(1, 8), tau=st.floats(0.01, 4.0), seed=st.integers(0, 10**6)
)  # fmt: skip
def test_the_threshold_is_that_of_an_svd(V: int, m: int, tau: float, seed: int) -> None:
    M = np.random.default_rng(seed).standard_normal((V, m))
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    shrunk = np.maximum(s - tau, 0.0)
    found = singular_value_threshold(Arrays.on(), M, tau)
    assert np.allclose(found.X, (U * shrunk) @ Vt, atol=1e-6)
    assert found.nuclear_norm == pytest.approx(shrunk.sum(), abs=1e-6)
    assert found.rank == (shrunk > 0).sum()
