from __future__ import annotations

import numpy as np
import pytest

from tokengeom.core.errors import ProblemError, ResourceError
from tokengeom.problems.backend import Backend


@pytest.mark.parametrize("device", [None, "cpu"])
def test_numpy_and_torch_give_the_same_numbers(device: str | None) -> None:
    backend = Backend.on(device)
    X = np.random.default_rng(0).standard_normal((4, 7))
    x = backend.asarray(X)
    s = np.linalg.svd(X, compute_uv=False)[::-1]
    assert s.sum() <= backend.proven_nuclear_norm(x) <= s.sum() * (1 + 1e-12)
    assert np.allclose(backend.to_numpy(backend.fast_singular_values(x.T)), s, rtol=1e-7)
    assert backend.norm(x) == pytest.approx(np.linalg.norm(X))
    assert (backend.to_numpy(backend.at_least(x, 0.0)) == np.maximum(X, 0.0)).all()
    assert (backend.to_numpy(backend.at_most(x, 0.0)) == np.minimum(X, 0.0)).all()
    assert backend.to_numpy(backend.full((2, 2), 3.0)).tolist() == [[3.0, 3.0], [3.0, 3.0]]
    mask = backend.asarray(X > 0)
    assert backend.to_numpy(mask).dtype == np.bool_
    assert float(backend.as_float(mask).sum()) == (X > 0).sum()
    assert not backend.on_gpu
    backend.synchronise()


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("shape", [(4, 7), (7, 4)])
def test_the_polar_factor_is_that_of_an_svd_and_leaves_out_the_null_space(
    device: str | None, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((shape[0], 3)) @ rng.standard_normal((3, shape[1]))
    backend = Backend.on(device)
    polar, s = backend.polar_factor(backend.asarray(X))
    U, values, Vt = np.linalg.svd(X, full_matrices=False)
    assert np.allclose(backend.to_numpy(polar), U[:, :3] @ Vt[:3], atol=1e-7)
    assert np.allclose(backend.to_numpy(s), values[:3][::-1], rtol=1e-9)


def test_a_device_that_does_not_exist_is_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ProblemError, match="device='tpu'"):
        Backend.on("tpu")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ResourceError, match="cuda"):
        Backend.on("cuda")


@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_proven_spectral_norm_is_an_upper_bound_and_tight(device: str | None) -> None:
    backend, rng = Backend.on(device), np.random.default_rng(0)
    for _ in range(200):
        shape = (int(rng.integers(1, 40)), int(rng.integers(1, 60)))
        x = rng.standard_normal(shape) * 10.0 ** rng.uniform(-12, 3) * 10.0 ** rng.uniform(-6, 0, shape[1])
        norm = float(np.linalg.svd(x, compute_uv=False)[0])
        proven = backend.proven_spectral_norm(backend.asarray(x))
        assert norm <= proven <= norm * (1 + 1e-11)
    assert backend.proven_spectral_norm(backend.asarray(np.zeros((3, 4)))) == 0.0


def test_the_proven_spectral_norm_of_a_known_matrix() -> None:
    """An orthogonal matrix times a number, whose norm is known exactly."""
    Q = np.array([[3.0, -4.0], [4.0, 3.0]])
    assert 5.0 <= Backend.on().proven_spectral_norm(Q) <= 5.0 * (1 + 1e-13)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_proven_nuclear_norm_is_an_upper_bound_and_keeps_small_singular_values(device: str | None) -> None:
    backend, rng = Backend.on(device), np.random.default_rng(0)
    for _ in range(100):
        rows, columns = int(rng.integers(1, 40)), int(rng.integers(1, 60))
        x = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(-9, 0, columns)
        norm = float(np.linalg.svd(x, compute_uv=False).sum())
        assert norm <= backend.proven_nuclear_norm(backend.asarray(x)) <= norm * (1 + 1e-7)
    assert backend.proven_nuclear_norm(backend.asarray(np.zeros((3, 4)))) == 0.0
    # Half of the digits of these are lost in the Gram matrix: the eigenvalues alone would be wrong by 1e-8 each.
    Q = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    x = (Q * np.concatenate([[1.0], np.full(29, 1e-9)])) @ Q.T
    assert 1.0 + 29e-9 - 1e-15 <= backend.proven_nuclear_norm(backend.asarray(x)) <= 1.0 + 29e-9 + 1e-11


@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_diagonal_is_overwritten(device: str | None) -> None:
    backend = Backend.on(device)
    A = backend.full((3, 3), 1.0)
    backend.set_diagonal(A, backend.asarray(np.arange(3.0)))
    assert backend.to_numpy(A).tolist() == [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 2.0]]
