"""The margin problem in the gamma_2 norm: contexts with equal supports have equal columns in some solutions only."""

from __future__ import annotations

from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest

from gamma2_cases import semidefinite_norm
from tokengeom.core.numerics import Bool, Float, cosines
from tokengeom.problems.gamma2 import Gamma2SVM, MaxNormFactors, WeightedDual
from tokengeom.problems.nuclear_svm import NuclearSVM
from tokengeom.solvers.gamma2_svm_admm import Gamma2MarginADMM
from tokengeom.solvers.nuclear_admm import NuclearADMM

SMALLEST = 3**0.5 / 2
"""Of all logits that separate all pairs of four tokens."""


def supports() -> Bool:
    """All pairs of four tokens, and the first token alone, twice: 4 x 8."""
    S = np.zeros((4, 8), dtype=bool)
    for j, pair in enumerate(combinations(range(4), 2)):
        S[list(pair), j] = True
    S[0, 6:] = True
    return S


def logits(first: list[float], second: list[float]) -> Float:
    """1/2 on a pair and -1/2 elsewhere; the columns of the two equal supports are given."""
    S = supports()
    return np.concatenate([S[:, :6] - 0.5, np.array([first, second]).T], axis=1)


def factors(L: Float) -> MaxNormFactors:
    """Tokens at the vertices of a simplex, of length 1, and the contexts that then give centred logits."""
    W = np.eye(4) - 0.25
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    return MaxNormFactors(W, 0.75 * W.T @ L)


def dual() -> WeightedDual:
    """The logits of the pairs; columns that prove nothing have next to no weight, since none may have none."""
    G, weights = logits([0.0] * 4, [0.0] * 4), np.array([1.0] * 6 + [1e-9] * 2)
    return WeightedDual(G, np.full(4, 0.5), np.sqrt(weights / weights.sum()))


@pytest.mark.parametrize(
    ("first", "second", "cosine"),
    [
        ([5 / 6, -1 / 6, -1 / 6, -1 / 2], [5 / 6, -1 / 2, -1 / 6, -1 / 6], 8 / 9),
        ([3 / 4, -1 / 4, -1 / 4, -1 / 4], [3 / 4, -1 / 4, -1 / 4, -1 / 4], 1.0),
    ],
)
def test_equal_supports_have_equal_columns_in_some_optimal_solutions_and_not_in_others(
    first: list[float], second: list[float], cosine: float
) -> None:
    L = logits(first, second)
    answer = factors(L)
    assert np.allclose(answer.logits, L)
    proof = Gamma2SVM(supports()).certify(answer, dual())
    assert max(proof.primal_residual, proof.relative_gap) <= 1e-8
    assert proof.value == pytest.approx(SMALLEST)
    for vectors in (L, answer.H):
        assert cosines(vectors)[6, 7] == pytest.approx(cosine)


def test_cvxpy_finds_the_same_smallest_norm_and_merging_does_not_change_it() -> None:
    S = supports()
    for pattern in (S, S[:, :7]):
        L, t, constraints = semidefinite_norm(*pattern.shape)
        for j, support in enumerate(pattern.T):
            inside, outside = np.flatnonzero(support), np.flatnonzero(~support)
            constraints += [L[z, j] == L[inside[0], j] for z in inside[1:]]
            constraints += [L[inside[0], j] - L[v, j] >= 1 for v in outside]
        assert cp.Problem(cp.Minimize(t), constraints).solve(solver="CLARABEL") == pytest.approx(SMALLEST, rel=1e-6)
        proof = Gamma2MarginADMM(tolerance=1e-3)(Gamma2SVM(pattern)).certificate
        assert proof.bound <= SMALLEST <= proof.value * (1 + 1e-12)
        assert proof.relative_gap <= 1e-3


def test_in_the_nuclear_norm_the_same_supports_have_equal_columns() -> None:
    # Solved without merging, from a start in which the two columns differ.
    problem = NuclearSVM.from_support(supports(), merge=False)
    start = logits([5 / 6, -1 / 6, -1 / 6, -1 / 2], [5 / 6, -1 / 2, -1 / 6, -1 / 6])
    solution = NuclearADMM(tolerance=1e-9)(problem, start=start)
    assert cosines(solution.x)[6, 7] == pytest.approx(1.0, abs=1e-6)
