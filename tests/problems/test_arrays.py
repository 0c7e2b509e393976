from __future__ import annotations

import numpy as np
import pytest

from tokengeom.problems.arrays import Arrays


@pytest.mark.parametrize("device", [None, "cpu"])
def test_both_libraries_give_the_same_numbers(device: str | None) -> None:
    arrays = Arrays.on(device)
    X = np.random.default_rng(0).standard_normal((4, 7))
    x = arrays.asarray(X)
    s = np.linalg.svd(X, compute_uv=False)[::-1]
    assert np.allclose(arrays.to_numpy(arrays.singular_values(x)), s, rtol=1e-10)
    assert np.allclose(arrays.to_numpy(arrays.fast_singular_values(x.T)), s, rtol=1e-7)
    assert arrays.norm(x) == pytest.approx(np.linalg.norm(X))
    assert arrays.dot(x, 2.0 * x) == pytest.approx(2.0 * (X**2).sum())
    assert arrays.dot(x.T, x.T) == pytest.approx((X**2).sum())
    assert (arrays.to_numpy(arrays.at_least(x, 0.0)) == np.maximum(X, 0.0)).all()
    assert (arrays.to_numpy(arrays.at_most(x, 0.0)) == np.minimum(X, 0.0)).all()
    assert arrays.to_numpy(arrays.full((2, 2), 3.0)).tolist() == [[3.0, 3.0], [3.0, 3.0]]
    mask = arrays.asarray(X > 0)
    assert arrays.to_numpy(mask).dtype == np.bool_
    assert float(arrays.as_float(mask).sum()) == (X > 0).sum()
    arrays.synchronise()
