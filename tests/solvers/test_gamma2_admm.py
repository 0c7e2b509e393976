from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

from feature_cases import random_probabilities
from gamma2_cases import semidefinite_point
from tokengeom.problems.backend import Backend
from tokengeom.problems.gamma2 import Gamma2Logits, MaxNormFactors
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.solvers.gamma2_admm import FIRST_RHO, Gamma2ADMM, Gamma2Loss, largest_lam
from tokengeom.solvers.gamma2_factors import Triplets
from tokengeom.solvers.logit_admm import LARGEST_DIVISOR, LogitADMM


def problem(V: int, m: int, seed: int, lam: float, device: str | None = None) -> Gamma2Logits:
    pi = np.random.default_rng(seed).dirichlet(np.full(m, 5.0))
    P = random_probabilities(V, m, seed)
    return Gamma2Logits(RegularisedLogits.from_probabilities(P, pi, lam, backend=Backend.on(device)))


@pytest.mark.parametrize(("V", "m", "seed", "lam"), [(5, 4, 0, 0.02), (6, 8, 1, 0.05), (9, 6, 2, 1e-3)])
def test_a_point_of_the_path_has_the_value_of_the_semidefinite_program(V: int, m: int, seed: int, lam: float) -> None:
    p = problem(V, m, seed, lam)
    solution, _ = Gamma2ADMM(tolerance=1e-6)(p)
    floor = -float((p.loss.P * p.loss.log_P).sum(axis=0) @ p.loss.pi)
    best = semidefinite_point(p.loss.P, p.loss.pi, lam) - floor
    assert solution.converged
    assert solution.certificate.value == pytest.approx(best, rel=1e-5)
    assert solution.certificate.bound <= best * (1 + 1e-6)


@pytest.mark.parametrize("held", ["rows", "columns", "both"])
@pytest.mark.parametrize(("V", "m", "seed", "lam"), [(5, 4, 0, 0.02), (6, 8, 1, 0.05), (9, 6, 2, 1e-3)])
def test_with_held_weights_the_value_is_that_of_the_semidefinite_program(
    V: int, m: int, seed: int, lam: float, held: str
) -> None:
    free, rng = problem(V, m, seed, lam), np.random.default_rng(seed + 10)
    p = None if held == "columns" else rng.dirichlet(np.ones(V))
    q = None if held == "rows" else rng.dirichlet(np.ones(m))
    given = replace(free, r=None if p is None else np.sqrt(p), c=None if q is None else np.sqrt(q))
    solution, _ = Gamma2ADMM(tolerance=1e-6)(given)
    floor = -float((free.loss.P * free.loss.log_P).sum(axis=0) @ free.loss.pi)
    best = semidefinite_point(free.loss.P, free.loss.pi, lam, p, q) - floor
    assert solution.converged
    assert solution.certificate.value == pytest.approx(best, rel=1e-5)
    assert solution.certificate.bound <= best * (1 + 1e-6)
    assert best < semidefinite_point(free.loss.P, free.loss.pi, lam) - floor
    # Weights of rows or columns in the dual do not count where the problem holds its own.
    assert solution.dual is not None
    other = replace(solution.dual, **({"r": np.ones(V)} if p is not None else {"c": np.ones(m)}))
    assert given.certify(solution.x, other).bound == solution.certificate.bound


def test_with_uniform_weights_on_both_sides_the_norm_is_nuclear() -> None:
    free = problem(6, 9, 3, 0.01)
    uniform = replace(free, r=np.full(6, 6**-0.5), c=np.full(9, 9**-0.5))
    nuclear, _ = LogitADMM(tolerance=1e-7)(free.loss.at(0.01 / 54**0.5))
    held, _ = Gamma2ADMM(tolerance=1e-7)(uniform)
    assert held.certificate.value == pytest.approx(nuclear.certificate.value, rel=1e-6)


@pytest.mark.parametrize("lam", [0.3, 1e-2, 1e-4, 1e-6, 1e-8])
def test_the_gap_is_proven_from_large_to_small_strengths(lam: float) -> None:
    solution, _ = Gamma2ADMM(tolerance=1e-4)(problem(20, 30, 0, lam))
    assert solution.converged
    assert solution.certificate.relative_gap <= 1.01e-4


def test_weights_sit_on_the_longest_rows_and_columns() -> None:
    solution, state = Gamma2ADMM(tolerance=1e-7)(problem(8, 12, 3, 0.05))
    assert state.r is not None
    assert state.c is not None
    for squared, weight in (((solution.x.W**2).sum(1), state.r**2), ((solution.x.H**2).sum(0), state.c**2)):
        assert weight.sum() == pytest.approx(1.0)
        assert np.all(squared[weight > 0.02] >= squared.max() * (1 - 1e-2))


def test_a_warm_start_at_a_far_strength_gives_the_same_value() -> None:
    near, far = problem(10, 14, 4, 1e-5), problem(10, 14, 4, 1e-1)
    _, state = Gamma2ADMM(tolerance=1e-3)(far)
    warm, _ = Gamma2ADMM(tolerance=1e-5)(near, state)
    cold, _ = Gamma2ADMM(tolerance=1e-5)(near)
    assert warm.certificate.value == pytest.approx(cold.certificate.value, rel=3e-5)


def test_the_largest_strength_is_where_logits_leave_zero() -> None:
    p = problem(6, 9, 5, 1.0)
    top = largest_lam(p)
    gradient = p.loss.pi * (1.0 / 6.0 - p.loss.P)
    whole = cp.Variable((15, 15), PSD=True)
    apart = [whole[:6, :6] == cp.diag(cp.diag(whole[:6, :6])), whole[6:, 6:] == cp.diag(cp.diag(whole[6:, 6:]))]
    best = cp.Problem(cp.Minimize(cp.trace(whole) / 2), [*apart, whole[:6, 6:] == gradient]).solve(solver="CLARABEL")
    assert best * (1 - 1e-6) <= top <= 1.15 * best
    zero = p.loss.zero_gap
    above, _ = Gamma2ADMM(tolerance=1e-6)(Gamma2Logits(p.loss.at(1.02 * top)))
    below, _ = Gamma2ADMM(tolerance=1e-6)(Gamma2Logits(p.loss.at(0.9 * best)))
    assert above.certificate.value == pytest.approx(zero, rel=1e-5)
    assert below.certificate.value < zero * (1 - 1e-4)


def test_the_certificate_rejects_perturbed_factors() -> None:
    p = problem(6, 8, 3, 1e-3)
    solution, _ = Gamma2ADMM(tolerance=1e-6)(p)
    noise = 0.05 * np.random.default_rng(0).standard_normal(solution.x.W.shape)
    assert p.certify(MaxNormFactors(solution.x.W + noise, solution.x.H), solution.dual).relative_gap > 1e-3


@pytest.mark.slow
def test_the_torch_backend_gives_the_same_numbers() -> None:
    (here, _), (there, _) = (Gamma2ADMM(tolerance=1e-6)(problem(7, 5, 0, 1e-3, device)) for device in (None, "cpu"))
    assert there.certificate.value == pytest.approx(here.certificate.value, rel=1e-6)
    assert there.certificate.bound == pytest.approx(here.certificate.bound, rel=1e-6)


def test_a_solve_stops_at_its_time_limit_with_what_is_proven_by_then() -> None:
    solution, _ = Gamma2ADMM(tolerance=1e-12, time_limit=0.0)(problem(10, 14, 4, 1e-5))
    assert not solution.converged
    assert solution.iterations == 1
    assert np.isfinite(solution.certificate.relative_gap)


def test_an_unfinished_point_says_so() -> None:
    solution, _ = Gamma2ADMM(tolerance=1e-12, max_iterations=3)(problem(6, 8, 3, 1e-1))
    assert not solution.converged
    assert "max_iterations" in solution.status


@pytest.mark.parametrize("shape", [(5, 8), (8, 5)])
def test_triplets_are_those_of_the_thresholded_matrix(shape: tuple[int, int]) -> None:
    M = np.random.default_rng(0).standard_normal(shape)
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    found = Triplets.of(Backend.on(), M, 1.0)
    assert np.allclose(found.X, U * np.maximum(s - 1.0, 0.0) @ Vt)
    assert np.allclose(np.sort(found.s)[::-1], (s - 1.0)[s > 1.0])
    assert np.allclose(Triplets.of(Backend.on(), M).X, M)


@pytest.mark.parametrize(("device", "memory"), [(None, None), ("cpu", 1)])
def test_blocks_of_columns_change_nothing_but_rounding(device: str | None, memory: int | None) -> None:
    backend = replace(Backend.on(device), largest_block=100, device_memory=memory)
    whole = problem(10, 40, 4, 1e-2)
    P, pi = whole.loss.P, whole.loss.pi
    p = Gamma2Logits(RegularisedLogits.from_probabilities(P, pi, 1e-2, backend=backend))
    assert len(p.loss.layout) == 4
    (one, _), (several, state) = (Gamma2ADMM(tolerance=1e-5)(each) for each in (whole, p))
    assert several.iterations == one.iterations
    assert several.certificate.value == pytest.approx(one.certificate.value, rel=1e-7)
    assert several.certificate.bound == pytest.approx(one.certificate.bound, rel=1e-7)
    assert np.allclose(backend.whole(several.x.logits), one.x.logits, atol=1e-4)
    assert largest_lam(p) == pytest.approx(largest_lam(whole), rel=1e-10)
    again, _ = Gamma2ADMM(tolerance=1e-5)(Gamma2Logits(p.loss.at(8e-3)), state)
    assert again.converged


@pytest.mark.parametrize("gap", [0.1, 1e-3, 1e-6])
def test_the_strength_that_follows_the_loss_is_that_of_the_point_with_this_loss(gap: float) -> None:
    p = problem(20, 30, 0, 1.0)
    lam, state, made = Gamma2ADMM().near_loss(p.loss, 10.0 * gap, None, gap)
    assert 10 <= made <= 40
    point = Gamma2Logits(p.loss.at(lam))
    cold, _ = Gamma2ADMM(tolerance=1e-4)(point)
    assert p.loss.loss_gap(cold.x.logits) == pytest.approx(gap, rel=0.03)
    warm, _ = Gamma2ADMM(tolerance=1e-4)(point, state)
    assert warm.converged
    assert warm.certificate.value == pytest.approx(cold.certificate.value, rel=2e-4)


def test_rho_at_a_low_loss_is_that_of_the_middle_direction_of_the_supports() -> None:
    loss = problem(21, 30, 0, 1.0).loss
    _, state, _ = Gamma2ADMM().near_loss(loss, 1e-7, None, 1e-6)
    # Weights are uniform and no rows are merged, so a centred column sums to 0.
    S = (loss.P > 0).astype(float)
    s = np.linalg.svd((S - S.mean(axis=0)) / (21 * 30) ** 0.5, compute_uv=False)
    s = np.sort(s[s > 1e-6 * s[0]])
    assert state.rho * s[s.size // 2] == pytest.approx(FIRST_RHO / LARGEST_DIVISOR)


@pytest.mark.parametrize("lam", [1e-2, 1e-4, 1e-6])
def test_from_high_to_low_losses_a_proof_takes_at_most_three_times_the_iterations_of_the_nuclear_norm(
    lam: float,
) -> None:
    p = problem(60, 150, 2, lam)
    nuclear, _ = LogitADMM(tolerance=1e-3)(p.loss.at(lam / (60 * 150) ** 0.5))
    solution, _ = Gamma2ADMM(tolerance=1e-3)(p)
    assert solution.converged
    assert solution.iterations <= 3 * nuclear.iterations


def test_at_a_loss_near_its_floor_rare_tokens_and_contexts_do_not_hold_up_a_proof() -> None:
    """Weights of rare ones that are short fall towards 0, and their logits are slow where nothing holds the weights."""
    rng, tokens, contexts = np.random.default_rng(2), 60, 200
    pi = np.arange(1.0, contexts + 1.0) ** -0.8
    pi /= pi.sum()
    frequencies = np.arange(1.0, tokens + 1.0) ** -1.1
    mean = 0.6 * frequencies / frequencies.mean()
    counts = np.array([rng.multinomial(max(3, int(4000 * share)), rng.dirichlet(mean)) for share in pi]).T
    P = counts[counts.sum(axis=1) > 0] / counts.sum(axis=0)
    p = Gamma2Logits(RegularisedLogits.from_probabilities(P, pi, 1e-9))
    nuclear, _ = LogitADMM(tolerance=1e-4)(p.loss.at(1e-9 / P.size**0.5))
    solution, _ = Gamma2ADMM(tolerance=1e-4)(p)
    assert solution.converged
    assert solution.iterations <= 3 * nuclear.iterations


def test_factors_are_cut_where_their_value_is_smallest() -> None:
    p = problem(8, 12, 3, 1e-3)
    solution, state = Gamma2ADMM(tolerance=1e-2)(p)
    term = Gamma2Loss(p, state)
    term.reweight(state.r, state.c)
    triplets = Triplets.of(p.loss.backend, term.loss.problem.weighted(p.loss.layout.split(solution.x.logits)))
    whole = triplets.factors(state.r, state.c)
    value, factors, _ = term._cut(triplets)
    assert p.value(factors) == value
    rows, columns = ((whole.W**2).sum(axis=1), (whole.H[0] ** 2).sum(axis=0))
    grid = []
    for square in float(triplets.s.sum()) * (1.0 + np.geomspace(1e-5, 1.0, 200)):
        short = (np.minimum(square / lengths, 1.0) ** 0.5 for lengths in (rows, columns))
        grid.append(p.value(whole.shortened(*short)))
    assert value <= min(p.value(whole), 1.01 * min(grid))
