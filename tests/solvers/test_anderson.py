"""Anderson acceleration: exact on small linear problems, safe on others."""

from __future__ import annotations

import numpy as np

from tokengeom.core.numerics import Float
from tokengeom.problems.backend import Backend
from tokengeom.solvers.anderson import AndersonMemory


def iterate(memory: AndersonMemory, A: Float, b: Float, steps: int) -> float:
    w = np.zeros_like(b)
    for _ in range(steps):
        w = memory.advance(w, A @ w + b - w)
    return float(np.linalg.norm(A @ w + b - w))


def test_acceleration_solves_a_linear_fixed_point_in_as_many_steps_as_it_has_dimensions() -> None:
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    A = Q @ np.diag([0.99, 0.9, 0.5, -0.3]) @ Q.T
    b = rng.standard_normal((4, 1))
    plain = iterate(AndersonMemory(Backend.on(), 0), A, b, 12)
    fast = iterate(AndersonMemory(Backend.on(), 5), A, b, 12)
    assert fast < 1e-3 * plain


def test_a_residual_that_grows_clears_the_memory_and_gives_the_plain_step() -> None:
    memory = AndersonMemory(Backend.on(), 5)
    w = np.ones((2, 2))
    memory.advance(w, 0.1 * w)
    memory.advance(1.1 * w, 0.05 * w)
    assert len(memory.matrix.dF) == 1
    assert np.allclose(memory.advance(w, 10.0 * w), 11.0 * w)
    assert memory.rejected == 1
    assert not memory.matrix.dF


def test_the_memory_keeps_its_size_and_its_gram_matrix_is_that_of_the_differences() -> None:
    memory = AndersonMemory(Backend.on(), 2)
    rng = np.random.default_rng(0)
    for i in range(6):
        memory.advance(rng.standard_normal((3, 3)), rng.uniform(0.5, 0.6, (3, 3)) / (1 + 0.1 * i))
        products = [[float((a[0] * b[0]).sum()) for b in memory.matrix.dF] for a in memory.matrix.dF]
        assert np.allclose(memory.gram, np.reshape(products, memory.gram.shape))
    assert len(memory.matrix.dF) == 2
