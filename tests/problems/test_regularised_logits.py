from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import random_probabilities
from tokengeom.errors import ProblemError
from tokengeom.problems.regularised_logits import RegularisedLogits


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
    assert p.entropy_gain(p.dual_change(L)) == pytest.approx(gain, rel=1e-9, abs=1e-12)


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
