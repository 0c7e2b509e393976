"""Conjugate gradients against NumPy's dense solvers, and the two problems on a face."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from linear_cases import EXACT
from linear_instances import overparameterised
from tokengeom.core.numerics import Float
from tokengeom.problems.linear_limit import CompatibilitySystem
from tokengeom.problems.supports import centre_on
from tokengeom.solvers.conjugate_gradients import conjugate_gradients, fit_on_face, solve_on_face


def below(tolerance: float) -> Callable[[Float, Float], bool]:
    return lambda _, gradient: float(np.linalg.norm(gradient)) <= tolerance


def test_a_symmetric_system_is_solved_in_as_many_iterations_as_it_has_eigenvalues() -> None:
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    M = Q @ np.diag(np.repeat([1.0, 4.0, 9.0], 4)) @ Q.T
    b = rng.standard_normal(12)
    found = conjugate_gradients(lambda x: M @ x, b, stop=below(1e-12), flat=1e-15, max_iterations=50)
    assert np.allclose(found.x, np.linalg.solve(M, b), atol=EXACT)
    assert found.iterations == 3
    assert found.y is found.x


@pytest.mark.parametrize("shape", [(9, 5), (5, 9)], ids=["overdetermined", "underdetermined"])
def test_least_squares_give_the_solution_of_least_norm_and_its_dual(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((shape[0], 3)) @ rng.standard_normal((3, shape[1]))
    b = rng.standard_normal(shape[0])
    found = conjugate_gradients(
        lambda x: A @ x, b, transpose=lambda r: A.T @ r, stop=below(1e-13), flat=1e-28, max_iterations=50
    )
    assert np.allclose(found.x, np.linalg.lstsq(A, b, rcond=1e-10)[0], atol=EXACT)
    assert np.allclose(A.T @ found.y, found.x, atol=EXACT)


def test_least_squares_stop_at_the_last_correct_digit() -> None:
    """Without a way to stop, the recurrences of a solvable system would diverge after it is solved."""
    rng = np.random.default_rng(0)
    S = np.stack([np.isin(np.arange(20), rng.choice(20, 4, replace=False)) for _ in range(60)], axis=1)
    H = rng.standard_normal((40, 60))
    B = centre_on(S, rng.standard_normal((20, 40)) @ H)
    found = conjugate_gradients(
        lambda X: centre_on(S, X @ H),
        B,
        transpose=lambda r: r @ H.T,
        stop=lambda *_: False,
        flat=0.0,
        max_iterations=500,
    )
    assert np.linalg.norm(centre_on(S, found.x @ H) - B) < 1e-12 * np.linalg.norm(B)


def test_a_direction_without_curvature_ends_the_iteration() -> None:
    found = conjugate_gradients(lambda x: np.zeros_like(x), np.ones(3), stop=below(0.0), flat=1e-15, max_iterations=50)
    assert found.iterations == 0
    assert not found.x.any()


def test_a_stop_at_the_start_or_at_the_limit_leaves_the_step_so_far() -> None:
    M, b = np.diag([1.0, 2.0, 3.0]), np.ones(3)
    nothing = conjugate_gradients(lambda x: M @ x, b, stop=below(10.0), flat=0.0, max_iterations=50)
    assert nothing.iterations == 0
    one = conjugate_gradients(lambda x: M @ x, b, stop=below(0.0), flat=0.0, max_iterations=1)
    assert np.allclose(one.x, 0.5 * b)  # steepest descent: <b, b> / <b, M b> = 1/2


def test_a_fit_on_a_face_leaves_a_residual_that_no_decoder_can_reduce() -> None:
    data = overparameterised(0, V=6, d=5, m=9, size=3, n=100)
    B = CompatibilitySystem(data.S, data.P, data.H).target
    fit = fit_on_face(data.S, B, data.H)
    assert np.allclose(fit.Y @ data.H.T, fit.W, atol=EXACT)
    assert np.abs(fit.residual @ data.H.T).max() < 1e-12
    assert np.allclose(fit.residual, B - centre_on(data.S, fit.W @ data.H))


def test_multipliers_on_a_face_satisfy_its_equations() -> None:
    data = overparameterised(1, V=6, d=12, m=9, size=3, n=100)
    T = data.S | (np.random.default_rng(0).random(data.S.shape) < 0.3)
    target = centre_on(T, data.S.astype(float))
    for start in (np.zeros(T.shape), np.random.default_rng(1).standard_normal(T.shape)):
        A = solve_on_face(T, data.S, data.H, start, 1e-11)
        assert np.allclose(centre_on(T, A), A)
        assert np.abs(centre_on(T, A @ data.H.T @ data.H) - target).max() <= 1e-10


def test_a_face_on_which_nothing_can_be_solved_is_left_as_it_is() -> None:
    """One embedding, two labels: the residual is a direction that the embeddings do not see at all."""
    S, T = np.eye(2, dtype=bool), np.ones((2, 2), dtype=bool)
    assert not solve_on_face(T, S, np.array([[1.0, 1.0]]), np.zeros((2, 2)), 1e-10).any()
