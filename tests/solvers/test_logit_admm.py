from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import random_probabilities
from tokengeom.problems.backend import Backend
from tokengeom.problems.columns import mapped
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.solvers.logit_admm import LogitADMM, RegularisedLoss, WarmStart


def problem(V: int, m: int, seed: int, lam: float) -> RegularisedLogits:
    pi = np.random.default_rng(seed).dirichlet(np.full(m, 5.0))
    return RegularisedLogits.from_probabilities(random_probabilities(V, m, seed), pi, lam)


@settings(max_examples=60, deadline=None)
@given(
    V=st.integers(2, 7), m=st.integers(1, 6), seed=st.integers(0, 10**6), power=st.integers(-13, 1),
    size=st.sampled_from([0.1, 3.0, 40.0]), rho=st.sampled_from([1e-3, 0.1, 10.0]),
)  # fmt: skip
def test_the_proximal_map_satisfies_its_optimality_condition_down_to_1e_13(
    V: int, m: int, seed: int, power: int, size: float, rho: float
) -> None:
    p = problem(V, m, seed, 10.0**power)
    x = np.random.default_rng(seed).standard_normal((V, m)) * size
    loss = RegularisedLoss(p)
    for _ in range(2):  # from a cold start, then from its own roots
        Z = loss.prox(0, x, rho)
        change = loss.change[0]
        assert np.abs(p.pi * change / p.lam + rho * (Z - x)).max() <= 1e-9 * max(1.0, size, rho * size)
        assert np.abs(change.sum(axis=0) * p.pi / p.lam).max() <= 1e-9 * max(1.0, rho * size)
    direct = p.dual_change(Z)
    assert np.allclose(direct, change, atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_point_of_the_path_is_that_of_cvxpy(seed: int) -> None:
    lam = 0.02
    p = problem(5, 4, seed, lam)
    solution, _ = LogitADMM(tolerance=1e-9)(p)
    L = cp.Variable((5, 4))
    loss = sum(p.pi[j] * (cp.log_sum_exp(L[:, j]) - p.P[:, j] @ L[:, j]) for j in range(4))
    best = cp.Problem(cp.Minimize(loss + lam * cp.normNuc(L))).solve(solver="CLARABEL")
    floor = -float((p.P * p.log_P).sum(axis=0) @ p.pi)
    assert solution.certificate.value + floor == pytest.approx(best, rel=1e-6)
    assert np.allclose(solution.x, L.value, atol=1e-3)


def test_the_certificate_rejects_perturbed_logits() -> None:
    p = problem(6, 8, 3, 1e-3)
    solution, _ = LogitADMM(tolerance=1e-8)(p)
    assert solution.certificate.relative_gap <= 1e-8
    noise = np.random.default_rng(0).standard_normal(p.P.shape)
    assert p.certify(solution.x + 0.05 * noise, solution.dual).relative_gap > 1e-4


def test_adding_a_constant_to_the_start_of_a_column_changes_no_answer() -> None:
    p = problem(6, 8, 3, 1e-2)
    solution, state = LogitADMM(tolerance=1e-8)(p)
    again, _ = LogitADMM(tolerance=1e-8)(p, WarmStart(mapped(lambda Z: Z + 3.0, state.Z), state.Y, state.rho))
    assert again.certificate.value == pytest.approx(solution.certificate.value, rel=1e-7)


def test_an_unfinished_point_says_so() -> None:
    solution, _ = LogitADMM(tolerance=1e-14, max_iterations=2)(problem(6, 8, 3, 1e-4))
    assert not solution.converged
    assert "max_iterations" in solution.status


@pytest.mark.parametrize(("device", "memory"), [(None, None), ("cpu", None), ("cpu", 1)])
def test_blocks_of_columns_change_nothing_but_rounding(device: str | None, memory: int | None) -> None:
    backend = replace(Backend.on(device), largest_block=100, device_memory=memory)
    P, pi = random_probabilities(12, 40, 1), np.random.default_rng(1).dirichlet(np.full(40, 5.0))
    solver = LogitADMM(tolerance=1e-8)
    (one, first), (several, second) = (
        solver(RegularisedLogits.from_probabilities(P, pi, 1e-3, backend=on)) for on in (None, backend)
    )
    assert several.converged
    assert several.iterations == one.iterations
    assert np.allclose(backend.whole(several.x), one.x, atol=1e-6)
    assert several.certificate.bound == pytest.approx(one.certificate.bound, rel=1e-8)
    # A next point starts where the last ended, in blocks too.
    there, here = (
        solver(RegularisedLogits.from_probabilities(P, pi, 8e-4, backend=on), state)[0]
        for on, state in ((None, first), (backend, second))
    )
    assert here.iterations == there.iterations
    assert here.certificate.value == pytest.approx(there.certificate.value, rel=1e-8)


def test_a_proximal_map_that_starts_far_from_its_root_needs_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    p, rng = problem(6, 8, 0, 1e-3), np.random.default_rng(0)
    loss = RegularisedLoss(p)
    x = rng.standard_normal((6, 8))
    loss.prox(0, 300.0 * x, 0.1)
    monkeypatch.setattr("tokengeom.solvers.logit_admm.NEWTON_STEPS", 60)
    Z = loss.prox(0, x, 0.1)
    assert np.abs(p.pi * loss.change[0] / p.lam + 0.1 * (Z - x)).max() <= 1e-9


@pytest.mark.parametrize("shape", [(5, 8), (8, 5)])
def test_a_change_whose_few_large_singular_values_are_cut_is_feasible_and_proves_more_than_a_scaled_one(
    shape: tuple[int, int],
) -> None:
    p = problem(*shape, 1, 0.02)
    solution, _ = LogitADMM(tolerance=1e-9)(p)
    loss, best = RegularisedLoss(p), solution.certificate.bound
    loss.cuts = True
    # One direction of the optimal logits is left out, so that one singular value is too large.
    U, s, Vt = np.linalg.svd(solution.x, full_matrices=False)
    k = int((s > 0.1 * s[0]).sum()) - 1
    loss.change[0] = p.dual_change(solution.x - 0.3 * s[k] * np.outer(U[:, k], Vt[k]))
    _, scaled, above = loss._scaled(loss.change)
    change, bound = loss.feasible_change()
    assert above > 0.01
    assert scaled < bound <= best * (1 + 1e-9)
    assert np.linalg.svd(p.scaled_dual(change[0]), compute_uv=False)[0] <= p.lam * (1 + 1e-12)
    assert p.proven_bound(change)[0] == pytest.approx(bound, rel=1e-6)
    assert best - bound < 0.5 * (best - scaled)
