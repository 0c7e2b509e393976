from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_cases import random_pattern
from tokengeom.core.errors import ProblemError
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom_studies.common.known_patterns import KnownInstance, catalogue, cyclic, one_hot


def problem(V: int, m: int, seed: int) -> NuclearSVM:
    S = random_pattern(V, m, seed, density=0.35)
    S[:, S.all(axis=0)] = np.eye(V, 1, dtype=bool)
    return NuclearSVM.from_support(S)


sizes = {"V": st.integers(2, 7), "m": st.integers(1, 14), "seed": st.integers(0, 10**6)}


@settings(max_examples=40, deadline=None)
@given(**sizes)
def test_weak_duality_is_never_violated_whatever_is_certified(V: int, m: int, seed: int) -> None:
    p = problem(V, m, seed)
    rng = np.random.default_rng(seed + 1)
    L, G = rng.standard_normal((2, *p.shape)) * rng.choice([0.01, 1.0, 30.0])
    proof = p.certify(L, G)
    assert proof.value >= proof.bound - 1e-10 * abs(proof.value)


@settings(max_examples=40, deadline=None)
@given(**sizes)
def test_the_projection_is_feasible_and_nearer_than_any_other_feasible_point(V: int, m: int, seed: int) -> None:
    p = problem(V, m, seed)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(p.shape) * 3.0
    Z, level = p.project(X)
    assert p.primal_violation(p.unscale(Z)) <= 1e-10
    for _ in range(5):
        other, _ = p.project(X + rng.standard_normal(p.shape))
        # The variational inequality of a projection on a convex set.
        assert ((X - Z) * (other - Z)).sum() <= 1e-8
    warm, _ = p.project(X, level + 5.0)
    assert np.allclose(warm, Z, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(**sizes)
def test_a_repaired_dual_satisfies_every_constraint_but_the_norm(V: int, m: int, seed: int) -> None:
    p = problem(V, m, seed)
    G, _ = p.repair_dual(np.random.default_rng(seed).standard_normal(p.shape))
    assert (G[~p.S] <= 0).all()
    assert np.abs((p.row_scale * G).sum(axis=0)).max() <= 1e-12
    again, change = p.repair_dual(G)
    assert change <= 1e-12
    assert np.allclose(again, G, atol=1e-12)


@pytest.mark.parametrize("known", catalogue(), ids=lambda known: known.name)
def test_known_instances_have_the_documented_singular_values(known: KnownInstance) -> None:
    s = np.linalg.svd(known.L_mm, compute_uv=False)
    s = s[s > 1e-9]
    assert np.allclose(np.sort(s), np.sort(known.singular_values), rtol=1e-10)
    assert NuclearSVM.from_support(known.S, merge=False).primal_violation(known.L_mm) <= 1e-12


def test_the_known_answer_is_certified_by_its_polar_factor() -> None:
    known = one_hot(6)
    p = NuclearSVM.from_support(known.S, merge=False)
    proof = p.certify(known.L_mm, known.L_mm)
    assert proof.relative_gap <= 1e-12
    assert proof.holds(1e-12)


def test_a_missing_dual_proves_nothing() -> None:
    p = NuclearSVM.from_support(np.eye(4))
    proof = p.certify(np.eye(4), None)
    assert proof.relative_gap == np.inf
    assert not proof.holds(1.0)


def test_answers_of_the_wrong_shape_or_not_finite_are_refused() -> None:
    p = NuclearSVM.from_support(np.eye(4))
    with pytest.raises(ProblemError, match="merge=False"):
        p.certify(np.zeros((4, 5)), None)
    with pytest.raises(ProblemError, match="NaN"):
        p.certify(np.full((4, 4), np.nan), None)


def test_a_cyclic_instance_without_a_known_answer_is_refused() -> None:
    with pytest.raises(ProblemError, match="off support"):
        cyclic(12, 5)
    with pytest.raises(ProblemError, match="k=0"):
        cyclic(5, 0)


@pytest.mark.parametrize("seed", range(3))
def test_the_projection_of_a_dual_is_that_of_cvxpy(seed: int) -> None:
    import cvxpy as cp

    rng = np.random.default_rng(seed)
    S = random_pattern(6, 5, seed)
    p = NuclearSVM.from_support(np.concatenate([S, S[:, :2]], axis=1)[[0, 0, 1, 2, 3, 4, 5]])
    given_G = rng.standard_normal(p.shape)
    found, level = p.project_dual(given_G)
    G = cp.Variable(p.shape)
    constraints = [p.row_scale.T @ G == 0, G[~p.S] <= 0]
    cp.Problem(cp.Minimize(cp.sum_squares(G - given_G)), constraints).solve(solver="CLARABEL")
    assert np.allclose(found, G.value, atol=1e-6)
    again, _ = p.project_dual(found, level)
    assert np.allclose(again, found, atol=1e-12)


def test_the_value_bounds_the_nuclear_norm_of_a_feasible_point_from_above() -> None:
    for seed in range(20):
        p = NuclearSVM.from_support(random_pattern(7, 12, seed))
        Z, _ = p.project(p.proxy() + 0.1 * np.random.default_rng(seed).standard_normal(p.shape))
        norm = float(np.linalg.svd(Z, compute_uv=False).sum())
        assert norm <= p.certify(p.unscale(Z), None).value <= norm * (1 + 1e-11)
