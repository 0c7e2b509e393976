from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csc_array

from feature_cases import random_probabilities
from gamma2_cases import semidefinite_point
from tokengeom import count
from tokengeom.problems.backend import Backend
from tokengeom.problems.gamma2 import Gamma2Logits
from tokengeom.problems.regularised_logits import RegularisedLogits
from tokengeom.solvers.gamma2_admm import Gamma2ADMM, first_weighted_state
from tokengeom.solvers.gamma2_factors import FactorFit, FittedFactors, fit_factors
from tokengeom.theory.at_loss import LossSettings
from tokengeom.theory.loss_path import LossPath

V, m, d = 7, 9, 5


def loss(device: str | None = None, largest_block: int | None = None, seed: int = 0) -> RegularisedLogits:
    backend = replace(Backend.on(device), largest_block=largest_block)
    pi = np.random.default_rng(seed).dirichlet(np.full(m, 5.0))
    return RegularisedLogits.from_probabilities(random_probabilities(V, m, seed), pi, 1.0, backend=backend)


def fitted(problem: RegularisedLogits, gap: float) -> FittedFactors:
    _, start = Gamma2ADMM(max_iterations=5)(Gamma2Logits(problem.at(0.02)))
    near = Gamma2ADMM(max_iterations=5)(Gamma2Logits(problem.at(0.02)), start)[0].x
    found = fit_factors(problem, near, 3.0, gap, accuracy=1e-4, smallest=1e-6)
    assert found is not None
    return found


def test_the_gradient_is_that_of_finite_differences() -> None:
    rng, fit = np.random.default_rng(1), FactorFit(loss(), 2.5)
    x = rng.standard_normal((V, d + 1)), rng.standard_normal((d + 1, m))
    _, gradient = fit(x)
    for side in (0, 1):
        step = rng.standard_normal(x[side].shape)
        ahead, behind = ([*x], [*x])
        ahead[side], behind[side] = x[side] + 1e-6 * step, x[side] - 1e-6 * step
        change = (fit((ahead[0], ahead[1]))[0] - fit((behind[0], behind[1]))[0]) / 2e-6
        assert float((gradient[side] * step).sum()) == pytest.approx(change, rel=1e-6)


@pytest.mark.parametrize("gap", [0.5, 0.1])
def test_fitted_factors_have_the_value_of_the_semidefinite_program_at_their_strength(gap: float) -> None:
    problem = loss()
    found = fitted(problem, gap)
    assert problem.loss_gap(found.factors.logits) == pytest.approx(gap, rel=1e-4)
    floor = -float((problem.P * problem.log_P).sum(axis=0) @ problem.pi)
    best = semidefinite_point(problem.P, problem.pi, found.lam) - floor
    assert Gamma2Logits(problem.at(found.lam)).value(found.factors) == pytest.approx(best, rel=2e-3)
    assert (found.r**2).sum() == pytest.approx(1.0)
    assert (found.c**2).sum() == pytest.approx(1.0)


def test_weights_of_fitted_factors_are_those_of_the_splitting() -> None:
    problem = loss()
    found = fitted(problem, 0.3)
    _, state = Gamma2ADMM(tolerance=1e-7)(Gamma2Logits(problem.at(found.lam)))
    assert state.r is not None
    assert state.c is not None
    assert np.allclose(found.r**2, state.r**2, atol=0.01)
    assert np.allclose(found.c**2, state.c**2, atol=0.01)


@pytest.mark.parametrize("share", [0.95, 0.5, 0.05])
def test_a_point_at_a_loss_is_proven_and_has_that_loss(share: float) -> None:
    problem = loss(seed=3)
    gap = share * problem.zero_gap
    start = first_weighted_state(Gamma2Logits(problem.at(0.05)))
    _, warm = Gamma2ADMM(max_iterations=10)(Gamma2Logits(problem.at(0.05)), start)
    found = Gamma2ADMM(tolerance=1e-4).at_loss(problem, warm, gap)
    assert found is not None
    point, solution, _ = found
    assert solution.converged
    assert problem.loss_gap(solution.x.logits) == pytest.approx(gap, rel=0.01)
    assert point.certify(solution.x, solution.dual).relative_gap <= 1.01e-4


def test_the_torch_backend_and_several_blocks_give_the_same_factors() -> None:
    here = fitted(loss(), 0.3)
    in_blocks = loss(largest_block=3 * V)
    assert len(in_blocks.layout) == 3
    for problem in (loss("cpu"), in_blocks):
        there = fitted(problem, 0.3)
        assert there.lam == pytest.approx(here.lam, rel=1e-3)
        assert np.allclose(there.r, here.r, atol=5e-3)


def test_a_loss_above_that_of_a_uniform_guess_is_not_found() -> None:
    problem = loss()
    _, warm = Gamma2ADMM(max_iterations=10)(Gamma2Logits(problem.at(0.05)))
    assert Gamma2ADMM().at_loss(problem, warm, 2.0 * problem.zero_gap) is None


def test_the_curvature_of_shares_saves_steps_on_the_stories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts of a text differ in frequency by factors of hundreds."""
    stats = count(context=3, top_contexts=400, vocabulary=104)
    settings, scale_steps = LossSettings(norm="gamma2", tolerance=1e-3), FactorFit.scale_steps
    made = []
    for scaled in (True, False):
        monkeypatch.setattr(FactorFit, "scale_steps", scale_steps if scaled else lambda fit, x: None)
        path = LossPath(stats.P, stats.pi, entropy=stats.entropy, settings=settings)
        found = [path.at(gap) for gap in (2.0, 0.5)]
        made.append(sum(int(at.status.split(", ")[1].split()[0]) for at in found))
    assert made[0] < 0.9 * made[1]


def test_a_row_of_many_tokens_that_never_follow_does_not_hinder_a_fit() -> None:
    """With the tokens of a large vocabulary that never follow any context, the same point is found."""
    stats, found = count(context=2, top_contexts=60, vocabulary=40), []
    for unseen in (0, 20_000):
        P = csc_array((stats.P.data, stats.P.indices, stats.P.indptr), shape=(stats.V + unseen, stats.m))
        path = LossPath(P, stats.pi, entropy=0.0, settings=LossSettings(norm="gamma2", tolerance=1e-3))
        found.append(path.at(2.5))
    few, many = (int(at.status.split(", ")[1].split()[0]) for at in found)
    assert found[1].certificate.relative_gap <= 1e-3
    assert many <= 3 * few
