"""The splitting loop: threshold, acceleration, balance of residuals, and a solve of a problem with a known answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom.core.errors import ProblemError
from tokengeom.core.numerics import Float
from tokengeom.problems.backend import Backend
from tokengeom.problems.columns import Columns, Layout
from tokengeom.solvers.logit_admm import LogitADMM
from tokengeom.solvers.nuclear_admm import NuclearADMM
from tokengeom.solvers.splitting import (
    AbstractSplitting,
    AbstractTerm,
    Bounds,
    Iterate,
    Threshold,
    rebalanced,
)


@settings(max_examples=30, deadline=None)
@given(V=st.integers(1, 8), m=st.integers(1, 8), tau=st.floats(0.01, 4.0), seed=st.integers(0, 10**6))
def test_the_threshold_is_that_of_an_svd(V: int, m: int, tau: float, seed: int) -> None:
    M = np.random.default_rng(seed).standard_normal((V, m))
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    shrunk = np.maximum(s - tau, 0.0)
    found = Threshold(Backend.on())(M, tau)
    assert np.allclose(found.X, (U * shrunk) @ Vt, atol=1e-6)
    assert found.nuclear_norm == pytest.approx(shrunk.sum(), abs=1e-6)
    assert found.rank == (shrunk > 0).sum()
    assert found.spectral_norm == pytest.approx(s[0])


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("turned", [False, True])
def test_the_threshold_about_earlier_eigenvectors_has_an_error_of_second_order(
    device: str | None, turned: bool
) -> None:
    rng, backend = np.random.default_rng(0), Backend.on(device)
    M, move = rng.standard_normal((2, 300, 320))
    M, move = (M.T, move.T) if turned else (M, move)
    tau, errors = float(np.median(np.linalg.svd(M, compute_uv=False))), []
    for size in (1e-3, 1e-4):
        threshold = Threshold(backend)
        threshold(backend.asarray(M), tau)
        moved = backend.asarray(M + size * move)
        near = threshold(moved, tau, accuracy=1e-2)
        assert threshold.decompositions == 1, "no second decomposition"
        exact = Threshold(backend)(moved, tau)
        errors.append(backend.norm(near.X - exact.X) / backend.norm(exact.X))
        assert near.nuclear_norm == pytest.approx(exact.nuclear_norm, rel=10 * size)
    assert errors[0] < 1e-3
    assert errors[1] < errors[0] / 20, "ten times nearer, far more than ten times as exact"


def test_the_threshold_is_exact_where_accuracy_is_not_enough_or_the_matrix_is_small() -> None:
    rng = np.random.default_rng(1)
    M, far = rng.standard_normal((2, 300, 310))
    threshold = Threshold(Backend.on())
    threshold(M, 1.0)
    for other, accuracy in ((far, 1e-2), (far + 1e-3 * M, 1e-9), (far + 1e-3 * M, 0.0)):
        found = threshold(other, 1.0, accuracy)
        assert np.allclose(found.X, Threshold(Backend.on())(other, 1.0).X, atol=1e-8)
    assert threshold.decompositions == 4
    small = Threshold(Backend.on())
    for _ in range(2):
        small(M[:20], 1.0, 1e-2)
    assert small.decompositions == 2


def test_checks_are_further_apart_while_the_gap_is_far_from_the_tolerance() -> None:
    rng = np.random.default_rng(2)
    term = SquaredDistance(rng.standard_normal((6, 9)))
    solver = AbstractSplitting(tolerance=1e-13, check_every=1, memory=0, relaxation=0.05, max_iterations=100)
    seen: list[int] = []
    solver.iterate(term, state(np.zeros((6, 9))), 1.0, lambda iteration, _, __: seen.append(iteration))
    steps = np.diff(seen)
    assert steps.max() == 3
    assert seen[0] == 1
    assert seen[-1] == 100, "the last iteration is checked"


def state(w: Float) -> Columns:
    columns = Columns(Layout.of(Backend.on(), *w.shape))
    columns[0] = w
    return columns


class SquaredDistance(AbstractTerm):
    """``f(X) = ||X - M||^2 / 2``: then ``min f + ||X||_*`` is the threshold of M at 1, and G = M - X its dual."""

    def __init__(self, M: Float) -> None:
        self.M = M
        self.checks = 0

    def prox(self, k: int, w: Float, rho: float) -> Float:
        return np.asarray((self.M + rho * w) / (1.0 + rho))

    def bounds(self, at: Iterate) -> Bounds:
        self.checks += 1
        Z = at.Z[0]
        value = 0.5 * np.sum((Z - self.M) ** 2) + np.linalg.norm(Z, "nuc")
        G = self.M - Z
        G = G / max(1.0, float(np.linalg.norm(G, 2)))
        return Bounds(float(value), state(Z), float(np.vdot(self.M, G) - 0.5 * np.sum(G**2)), state(G))


@pytest.mark.parametrize("memory", [0, 5])
def test_the_loop_solves_to_the_proven_gap(memory: int) -> None:
    M = np.random.default_rng(0).standard_normal((5, 8)) * 2.0
    solver = AbstractSplitting(tolerance=1e-10, memory=memory, check_every=3)
    seen: list[float] = []
    run = solver.iterate(SquaredDistance(M), state(np.zeros((5, 8))), 0.3, lambda _, __, gap: seen.append(gap))
    wanted = Threshold(Backend.on())(M, 1.0).X
    assert run.gap <= 1e-10
    assert np.allclose(run.best.answer[0], wanted, atol=1e-4)
    assert np.allclose(run.best.dual[0], M - wanted, atol=1e-4)
    assert seen == sorted(seen, reverse=True), "the best value and the best bound are kept"


def test_an_out_of_balance_penalty_is_corrected_without_changing_the_answer() -> None:
    M = np.random.default_rng(1).standard_normal((6, 6)) * 2.0
    solver = AbstractSplitting(tolerance=1e-8, check_every=2)
    answers = []
    for rho in (1e-3, 1e3):
        run = solver.iterate(SquaredDistance(M), state(np.zeros((6, 6))), rho)
        assert run.rho != rho
        answers.append(run.best.answer[0])
    assert np.allclose(answers[0], answers[1], atol=1e-3)


def test_a_solve_stops_at_the_iteration_limit_and_at_the_time_limit() -> None:
    term = SquaredDistance(np.eye(4))
    few = AbstractSplitting(tolerance=1e-15, max_iterations=4).iterate(term, state(np.ones((4, 4))), 1e-4)
    assert few.iterations == 4
    assert term.checks == 2, "the gap is computed at the first iteration and at the last"
    short = AbstractSplitting(tolerance=1e-15, time_limit=0.0).iterate(term, state(np.ones((4, 4))), 1e-4)
    assert short.iterations == 1
    assert np.isfinite(short.gap)


@pytest.mark.parametrize("solver", [NuclearADMM, LogitADMM])
@pytest.mark.parametrize(
    "setting", [{"tolerance": 0.0}, {"relaxation": 2.0}, {"memory": -1}, {"check_every": 0}, {"max_iterations": 0}]
)
def test_settings_that_cannot_work_are_refused(solver: type[AbstractSplitting], setting: dict[str, float]) -> None:
    with pytest.raises(ProblemError, match=next(iter(setting))):
        solver(**setting)  # type: ignore[arg-type]


def test_rho_moves_only_when_residuals_are_out_of_balance_and_by_a_bounded_factor() -> None:
    assert rebalanced(1.0, 1.0, 1.0) == 1.0
    assert rebalanced(1.0, 3.0, 1.0) == 1.0
    assert rebalanced(1.0, 1e6, 1.0) == pytest.approx(2.5)
    assert rebalanced(1.0, 1.0, 1e6) == pytest.approx(0.4)
