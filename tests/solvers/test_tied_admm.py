"""The splitting of tied features in the gamma_2 norm: brute force, the case without ties, blocks and torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csc_array, eye_array

from feature_cases import random_probabilities
from tokengeom.core.numerics import Float
from tokengeom.problems.backend import Backend
from tokengeom.problems.gamma2 import Gamma2Logits
from tokengeom.problems.regularised_logits import Merging
from tokengeom.problems.tied_logits import TiedLogits
from tokengeom.solvers.gamma2_admm import Gamma2ADMM
from tokengeom.solvers.tied_admm import TiedADMM, Ties

V, m = 7, 12


def tied(Phi: Float | csc_array, backend: Backend | None = None) -> TiedLogits:
    P, pi = csc_array(random_probabilities(V, m, 3)), np.random.default_rng(3).dirichlet(np.full(m, 5.0))
    return TiedLogits.of(P, pi, csc_array(Phi), Merging.of_tokens(P), backend or Backend.on())


def features() -> Float:
    """Shared features, one that no context has, one of both signs, and those of the contexts themselves."""
    rng = np.random.default_rng(0)
    shared = (rng.random((4, m)) < 0.4) * 1.0
    return np.vstack([shared, np.zeros((1, m)), rng.standard_normal((1, m)), np.eye(m)])


def test_the_nearest_pair_is_that_of_least_squares() -> None:
    rng, problem = np.random.default_rng(1), tied(features())
    F, ties = problem.Phi.shape[0], Ties(problem)
    c = rng.uniform(0.2, 1.0, F)
    ties.reweight(c)
    K = problem.Phi.toarray() * (ties.e.T / c[:, None])
    assert (K**2).sum(axis=0) == pytest.approx(np.ones(m))
    x, z = rng.standard_normal((F, V)), rng.standard_normal((m, V))
    for share in (1.0, 0.1):
        X, U = ties.nearest(x, z, rng.standard_normal((m, V)), 1e-12, share)
        assert np.allclose(X, np.linalg.solve(np.eye(F) + K @ K.T / share, x + K @ z / share))
        assert np.allclose(ties.times(X), z - share * U)


@pytest.mark.parametrize("lam", [0.1, 1e-2, 1e-5])
def test_without_ties_it_is_the_splitting_of_logits(lam: float) -> None:
    problem = tied(eye_array(m, format="csc")).at(lam)
    solution, _ = TiedADMM(tolerance=1e-3)(problem)
    plain, _ = Gamma2ADMM(tolerance=1e-4)(Gamma2Logits(problem.loss))
    assert solution.converged
    for one, other in ((solution, plain), (plain, solution)):
        assert one.certificate.bound <= other.certificate.value
    assert solution.certificate.value == pytest.approx(plain.certificate.value, rel=2e-3)


@pytest.mark.parametrize("loss_gap", [0.3, 1e-3, 1e-6])
def test_points_are_proven_at_high_and_low_losses(loss_gap: float) -> None:
    solver, Phi = TiedADMM(tolerance=2e-3, max_iterations=600), np.vstack([features()[:4], np.eye(m)])
    problem, state, made = solver.near_loss(tied(Phi), loss_gap)
    solution, _ = solver(problem, state)
    assert solution.converged
    assert made + solution.iterations < 400
    assert problem.loss_gap(solution.x) == pytest.approx(loss_gap, rel=0.2)


def test_blocks_of_contexts_and_torch_give_the_same() -> None:
    values = []
    for backend in (Backend.on(), replace(Backend.on(), largest_block=30), Backend.on("cpu")):
        problem = tied(features(), backend).at(0.01)
        solution, _ = TiedADMM(tolerance=1e-3)(problem)
        assert solution.converged
        values.append((solution.certificate.value, solution.certificate.bound))
    assert np.allclose(values, values[0], rtol=2e-3)
