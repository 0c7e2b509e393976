"""Numbers that are sums over contexts, compared with dense logits."""

from __future__ import annotations

import numpy as np
import pytest

from tokengeom.comparison import logit_numbers
from tokengeom.comparison.agreement import assess, permutation_orders
from tokengeom.comparison.logit_numbers import FiniteLogits, LogitNumbers
from tokengeom.comparison.similarity import CollapseNumbers, cosine, subspace_collapse
from tokengeom.core.factors import Factors
from tokengeom.core.numerics import Float, centre_columns
from tokengeom.theory.features import finite_part, project_on_F


def two_factors(rng: np.random.Generator) -> tuple[Factors, Factors]:
    run, target = (Factors(rng.standard_normal((5, 4)), rng.standard_normal((4, 8))) for _ in range(2))
    return run, target


def logit_cosine(L: Float, M: Float) -> float:
    return cosine(centre_columns(L), centre_columns(M))


@pytest.mark.parametrize("in_parts", [False, True])
def test_permuted_logits_are_those_of_the_permuted_contexts(in_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_parts:
        monkeypatch.setattr(logit_numbers, "MOST_DENSE", 0)
        monkeypatch.setattr(logit_numbers, "CHUNK", 5)
    rng = np.random.default_rng(7)
    P = rng.dirichlet(np.ones(3), size=8).T
    P = np.vstack([P, np.zeros((2, 8))])[rng.permuted(np.tile(np.arange(5), (8, 1)), axis=1).T, np.arange(8)]
    run, target = two_factors(rng)
    numbers = LogitNumbers(run, {"": target}, np.arange(8), FiniteLogits.of(P))
    orders = permutation_orders(rng, 8, 4)
    found = numbers.permuted(orders)
    for k, order in enumerate(orders):
        L = (run.W @ run.H)[:, order]
        assert found["", "logit_cosine"][k] == pytest.approx(logit_cosine(L, target.W @ target.H), rel=1e-10)
        expected = np.linalg.norm(project_on_F(L, P > 0) - finite_part(P))
        assert found["", "finite_distance"][k] == pytest.approx(expected, rel=1e-10)


def test_selected_logits_are_those_of_the_selected_contexts() -> None:
    rng = np.random.default_rng(8)
    run, target = two_factors(rng)
    numbers = LogitNumbers(run, {"": target}, np.array([0, 0, 1, 1, 2, 3, 4, 5]))
    left_out = assess(numbers, permutations=0, seed=0).left_out["", "logit_cosine"]
    for g in range(6):
        kept = numbers.units != g
        expected = logit_cosine((run.W @ run.H)[:, kept], (target.W @ target.H)[:, kept])
        assert left_out[g] == pytest.approx(expected, rel=1e-10)


def test_a_bias_is_part_of_the_logits() -> None:
    rng = np.random.default_rng(9)
    run, target = two_factors(rng)
    biased = Factors(run.W, run.H, rng.standard_normal(5))
    found = LogitNumbers(biased, {"": target}, np.arange(8)).values()["", "logit_cosine"]
    assert found == pytest.approx(logit_cosine(biased.logits, target.logits), rel=1e-10)


def test_zero_logits_have_no_cosine() -> None:
    run = Factors(np.ones((5, 2)), np.ones((2, 8)))  # equal in every column
    target = Factors(np.eye(5, 2), np.ones((2, 8)))
    assert np.isnan(LogitNumbers(run, {"": target}, np.arange(8)).values()["", "logit_cosine"])


def test_collapse_is_that_of_the_selected_or_reassigned_contexts() -> None:
    rng = np.random.default_rng(3)
    H, labels = rng.standard_normal((6, 40)), np.repeat(np.arange(10), 4)
    numbers = CollapseNumbers(Factors(np.eye(6), H), labels)
    assessed = assess(numbers, permutations=100, seed=0)
    one = assessed.agreements()["", "collapse"]
    assert one.value == pytest.approx(subspace_collapse(H, labels))
    assert one.low < one.value < one.high
    assert one.null < np.mean(assessed.permuted["", "collapse"]), "the 5th percentile, because lower is better"
    for g in range(10):
        expected = subspace_collapse(H[:, labels != g], labels[labels != g])
        assert assessed.left_out["", "collapse"][g] == pytest.approx(expected, rel=1e-10)
    orders = permutation_orders(rng, 40, 3)
    expected_scores = [subspace_collapse(H, labels[order]) for order in orders]
    assert numbers.permuted(orders)["", "collapse"] == pytest.approx(expected_scores)
