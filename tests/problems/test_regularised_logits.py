from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import random_probabilities
from tokengeom.core.errors import ProblemError
from tokengeom.problems.backend import Backend
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.solvers.logit_admm import LogitADMM


def problem(V: int, m: int, seed: int, lam: float) -> RegularisedLogits:
    pi = np.random.default_rng(seed).dirichlet(np.full(m, 5.0))
    return RegularisedLogits.from_probabilities(random_probabilities(V, m, seed, density=0.6), pi, lam)


@settings(max_examples=50, deadline=None)
@given(V=st.integers(2, 6), m=st.integers(1, 6), seed=st.integers(0, 10**6), power=st.integers(-10, 0))
def test_weak_duality_is_never_violated(V: int, m: int, seed: int, power: int) -> None:
    p = problem(V, m, seed, 10.0**power)
    rng = np.random.default_rng(seed + 1)
    L = rng.standard_normal((V, m)) * rng.choice([0.1, 1.0, 20.0])
    proof = p.certify(L, p.dual_change(L + rng.standard_normal((V, m))))
    assert proof.value >= proof.bound - 1e-12 * abs(proof.value)


@settings(max_examples=30, deadline=None)
@given(V=st.integers(2, 6), m=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_loss_gap_and_entropy_gain_equal_their_definitions(V: int, m: int, seed: int) -> None:
    p = problem(V, m, seed, 0.1)
    L = np.random.default_rng(seed).standard_normal((V, m))
    q = np.exp(L) / np.exp(L).sum(axis=0)
    log_p = np.log(np.where(p.P > 0, p.P, 1.0))
    kl = (p.P * (log_p - np.log(q))).sum(axis=0) @ p.pi
    assert p.loss_gap(L) == pytest.approx(kl, rel=1e-10)
    gain = (-(q * np.log(q)).sum(axis=0) + (p.P * log_p).sum(axis=0)) @ p.pi
    assert p.entropy_gain(p.dual_change(L))[0] == pytest.approx(gain, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_gradient_is_that_of_autograd_in_either_order_of_memory(order: str) -> None:
    import torch

    p, L = problem(7, 9, 3, 0.1), np.random.default_rng(4).standard_normal((7, 9)) * 3.0
    logits = torch.tensor(L, requires_grad=True)
    loss = -(torch.log_softmax(logits, 0) * torch.tensor(p.P)).sum(0) @ torch.tensor(p.pi)
    loss.backward()
    given_order = np.array(L, order=order)  # type: ignore[call-overload]
    gap, gradient = p.gap_and_gradient(given_order)
    entropy = -float((p.P * p.log_P).sum(0) @ p.pi)
    assert np.allclose(gradient, logits.grad.numpy(), rtol=1e-12, atol=1e-15)
    assert gap == pytest.approx(loss.item() - entropy, rel=1e-12)
    assert np.array_equal(given_order, L), "logits stay as they were given"


def test_a_tiny_loss_gap_keeps_its_digits() -> None:
    P = np.array([[0.5], [0.5], [0.0]])
    p = RegularisedLogits.from_probabilities(P, [1.0], 1.0)
    for R in (20.0, 40.0, 80.0):
        # q_off = e^{-R} / (2 + e^{-R}), and the gap is -log(1 - q_off).
        assert p.loss_gap(np.array([[0.0], [0.0], [-R]])) == pytest.approx(np.log1p(np.exp(-R) / 2), rel=1e-12)


@pytest.mark.parametrize("lam", [0.0, -1.0, np.nan, np.inf])
def test_a_strength_that_is_not_positive_is_refused(lam: float) -> None:
    with pytest.raises(ProblemError, match="lambda"):
        problem(3, 2, 0, lam)


def test_probabilities_and_shares_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ProblemError, match="sum 1"):
        RegularisedLogits.from_probabilities(np.ones((3, 2)), [0.5, 0.5], 0.1)
    with pytest.raises(ProblemError, match="pi"):
        RegularisedLogits.from_probabilities(np.eye(3), [1.0, 0.0, 0.0], 0.1)
    with pytest.raises(ProblemError, match="column 1"):
        RegularisedLogits.from_probabilities(np.array([[1.0, 0.0], [0.0, 0.0]]), [0.5, 0.5], 0.1)
    with pytest.raises(ProblemError, match="NaN"):
        problem(3, 2, 0, 0.1).certify(np.full((3, 2), np.nan), None)


def count_false_proofs(number: int, seed: int) -> int:
    """Duals near an optimal one, and wild ones, whose bound is above the value of known logits."""
    rng = np.random.default_rng(seed)
    false = 0
    for block in range(max(1, number // 500)):
        V, m = int(rng.integers(2, 7)), int(rng.integers(1, 7))
        p = problem(V, m, seed + block, 10.0 ** rng.integers(-12, 0))
        solution, _ = LogitADMM(tolerance=1e-11, max_iterations=400)(p)
        best = solution.certificate.value
        for _ in range(500):
            noise = rng.standard_normal((V, m)) * 10.0 ** rng.uniform(-16, 1)
            dual = solution.dual * (1.0 + rng.choice([0.0, 1e-12, 1e-3])) + noise * rng.choice([0.0, p.lam, 1.0])
            false += p.certify(solution.x, dual).bound > best
    return false


def test_no_perturbed_dual_proves_too_much() -> None:
    assert count_false_proofs(2_000, 0) == 0


@pytest.mark.slow
def test_none_of_100_000_perturbed_duals_proves_too_much() -> None:
    assert count_false_proofs(100_000, 1) == 0


@settings(max_examples=60, deadline=None)
@given(V=st.integers(2, 6), m=st.integers(1, 5), seed=st.integers(0, 10**6), size=st.sampled_from([1e-9, 1.0, 30.0]))
def test_a_repaired_dual_is_feasible_as_stored(V: int, m: int, seed: int, size: float) -> None:
    p = problem(V, m, seed, 0.1)
    change, _ = p.repair_dual(np.random.default_rng(seed).standard_normal((V, m)) * size)
    assert (p.P + change >= 0).all()
    assert np.abs(change.sum(axis=0)).max() <= 1e-14 * max(1.0, np.abs(change).max()) * V


def test_the_torch_backend_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    P, pi = random_probabilities(6, 5, 0, density=0.6), rng.dirichlet(np.full(5, 5.0))
    here = RegularisedLogits.from_probabilities(P, pi, 1e-3)
    there = RegularisedLogits.from_probabilities(P, pi, 1e-3, backend=Backend.on("cpu"))
    (one, _), (other, _) = LogitADMM(tolerance=1e-8)(here), LogitADMM(tolerance=1e-8)(there)
    assert np.allclose(one.x, there.backend.to_numpy(other.x), atol=1e-6)
    assert other.certificate.bound == pytest.approx(one.certificate.bound, rel=1e-9)
    assert there.certify(one.x, one.dual).bound == pytest.approx(one.certificate.bound, rel=1e-12)
