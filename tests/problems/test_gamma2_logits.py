from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import random_probabilities
from tokengeom.core.errors import ProblemError
from tokengeom.problems.backend import Backend
from tokengeom.problems.gamma2 import Gamma2Logits, MaxNormFactors, WeightedDual
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.solvers.gamma2_admm import Gamma2ADMM


def problem(V: int, m: int, seed: int, lam: float) -> Gamma2Logits:
    pi = np.random.default_rng(seed).dirichlet(np.full(m, 5.0))
    return Gamma2Logits(RegularisedLogits.from_probabilities(random_probabilities(V, m, seed, 0.6), pi, lam))


@settings(max_examples=50, deadline=None)
@given(V=st.integers(2, 6), m=st.integers(1, 6), seed=st.integers(0, 10**6), power=st.integers(-10, 0))
def test_weak_duality_holds_for_any_factors_and_any_weights(V: int, m: int, seed: int, power: int) -> None:
    p = problem(V, m, seed, 10.0**power)
    rng = np.random.default_rng(seed + 1)
    factors = MaxNormFactors(rng.standard_normal((V, 3)), rng.standard_normal((3, m)) * rng.choice([0.1, 1.0, 20.0]))
    change = p.loss.dual_change(factors.logits + rng.standard_normal((V, m)))
    weights = (10.0 ** rng.uniform(-6, 1, V), 10.0 ** rng.uniform(-6, 1, m))
    r, c = (np.sqrt(weight / weight.sum()) for weight in weights)
    for norm in (p, replace(p, r=r), replace(p, c=c), replace(p, r=r, c=c)):
        proof = norm.certify(factors, WeightedDual(change, *weights))
        assert proof.value >= proof.bound - 1e-12 * abs(proof.value)


def test_the_norm_of_factors_is_the_largest_row_times_the_largest_column() -> None:
    factors = MaxNormFactors(np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 1.0]]))
    assert factors.norm(Backend.on()) == pytest.approx(10.0)
    assert factors.norm(Backend.on()) >= 10.0
    assert MaxNormFactors(np.zeros((2, 0)), np.zeros((0, 3))).norm(Backend.on()) == 0.0


def test_weights_are_normalised_and_zero_weights_are_refused() -> None:
    dual = WeightedDual(np.zeros((2, 2)), np.array([3.0, 4.0]), np.array([1.0, 0.0]))
    with pytest.raises(ProblemError, match="> 0"):
        dual.normalised(Backend.on())
    found = WeightedDual(np.zeros((2, 2)), dual.r, np.ones(2)).normalised(Backend.on())
    assert (found.r**2).sum() == pytest.approx(1.0)
    assert (found.r**2).sum() <= 1.0


def test_factors_that_are_not_finite_are_refused() -> None:
    p = problem(3, 2, 0, 0.1)
    with pytest.raises(ProblemError, match="finite"):
        p.certify(MaxNormFactors(np.full((3, 1), np.nan), np.ones((1, 2))), None)
    assert p.certify(MaxNormFactors(np.zeros((3, 1)), np.zeros((1, 2))), None).relative_gap == np.inf


def count_false_proofs(number: int, seed: int) -> int:
    """Duals and weights near optimal ones, and wild ones, whose bound is above the value of known factors."""
    rng = np.random.default_rng(seed)
    false = 0
    for block in range(max(1, number // 250)):
        V, m = int(rng.integers(2, 7)), int(rng.integers(1, 7))
        p = problem(V, m, seed + block, 10.0 ** rng.integers(-8, 0))
        solution, _ = Gamma2ADMM(tolerance=1e-9, max_iterations=300)(p)
        assert solution.dual is not None
        best = solution.certificate.value
        for _ in range(250):
            noise = rng.standard_normal((V, m)) * 10.0 ** rng.uniform(-16, 1)
            dual = solution.dual.matrix * (1.0 + rng.choice([0.0, 1e-12, 1e-3]))
            dual = dual + noise * rng.choice([0.0, p.loss.lam, 1.0])
            r = solution.dual.r * np.exp(rng.standard_normal(V) * rng.choice([0.0, 1e-3, 3.0]))
            c = solution.dual.c * np.exp(rng.standard_normal(m) * rng.choice([0.0, 1e-3, 3.0]))
            false += p.certify(solution.x, WeightedDual(dual, r, c)).bound > best
    return false


def test_no_perturbed_dual_proves_too_much() -> None:
    assert count_false_proofs(1_000, 0) == 0


@pytest.mark.slow
def test_none_of_100_000_perturbed_duals_proves_too_much() -> None:
    assert count_false_proofs(100_000, 1) == 0
