"""Limits of random supports: Marchenko-Pastur, the excess of the proxy, and the conic formula of separability."""

from __future__ import annotations

from math import comb, pi

import numpy as np
import pytest
from scipy.special import ndtr

from tokengeom.extending import InputError
from tokengeom_studies.common.random_data import random_supports
from tokengeom_studies.common.random_limits import (
    marchenko_pastur,
    proxy_limit,
    separability_estimate,
    separability_limit,
)
from tokengeom_studies.common.solved_patterns import excess_of, solve_pattern


def test_the_quadrature_has_the_moments_of_the_marchenko_pastur_law() -> None:
    for ratio in (0.1, 0.5, 1.0):
        s, weights = marchenko_pastur(ratio)
        assert weights @ s**2 == pytest.approx(1.0, abs=1e-6)
        assert weights @ s**4 == pytest.approx(1.0 + ratio, abs=1e-6)
    # Half of a semicircle for square matrices.
    s, weights = marchenko_pastur(1.0)
    assert weights @ s == pytest.approx(8 / (3 * pi), abs=1e-4)


def test_the_limit_is_close_to_what_the_solver_finds() -> None:
    V, seeds = 96, 3
    limit = proxy_limit(0.25, 1.0)
    rows = [
        solve_pattern(random_supports(np.random.default_rng(seed), V, V, V // 4), "cpu", 1e-4) for seed in range(seeds)
    ]
    assert np.mean([excess_of(row) for row in rows]) == pytest.approx(limit.excess, rel=0.15)
    assert np.mean([row["effective_rank"] for row in rows]) / V == pytest.approx(limit.effective_rank, abs=0.02)
    assert np.mean([row["rank"] for row in rows]) / V == pytest.approx(limit.rank, abs=0.03)
    assert np.mean([row["cosine"] for row in rows]) == pytest.approx(limit.cosine, abs=5e-3)
    assert np.mean([row["positive"] for row in rows]) == pytest.approx(limit.positive, abs=0.02)


def test_tokens_and_contexts_can_change_places_and_dense_supports_have_less_excess() -> None:
    assert proxy_limit(0.125, 4.0).excess == pytest.approx(proxy_limit(0.125, 0.25).excess, rel=1e-9)
    excesses = [proxy_limit(density, 1.0).excess for density in (1 / 64, 1 / 8, 1 / 4, 1 / 2)]
    assert excesses == sorted(excesses, reverse=True)
    assert excesses[-1] > 0
    with pytest.raises(InputError, match="density"):
        proxy_limit(1.0, 1.0)


def by_level_probabilities(V: int, k: int) -> float:
    """The formula from level probabilities of order-restricted inference, by recursion and quadrature.

    ``pooled(p)``: probability that a root of weight k and p leaves all have one level in isotonic regression. The
    probabilities of all numbers of pooled leaves add up to 1, which gives one after the other.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()

    def below(count: int, weight: int) -> float:
        return float(weights @ ndtr(nodes / np.sqrt(weight)) ** count)

    pooled = [1.0]
    for n in range(1, V - k + 1):
        pooled.append(1.0 - sum(comb(n, p) * pooled[p] * below(n - p, k + p) for p in range(n)))
    n = V - k
    levels = [comb(n, p) * pooled[p] * below(n - p, k + p) for p in range(n + 1)]
    return sum((k + p - 1) * level for p, level in enumerate(levels)) / (V - 1)


@pytest.mark.parametrize(("V", "k"), [(2, 1), (3, 1), (5, 2), (8, 1), (8, 5)])
def test_the_conic_formula_agrees_with_level_probabilities(V: int, k: int) -> None:
    found = separability_limit(V, k, 40_000)
    assert found.ratio == pytest.approx(by_level_probabilities(V, k), abs=4 * found.error)


def test_two_tokens_have_the_mean_and_the_width_of_covers_count() -> None:
    assert by_level_probabilities(2, 1) == pytest.approx(0.5)
    # The smallest separating dimension is binomial there, with variance m/4.
    assert separability_limit(2, 1, 40_000).width == pytest.approx(0.5, abs=1e-3)


def test_the_estimate_without_draws_is_close_for_large_vocabularies() -> None:
    assert separability_estimate(200, 20) == pytest.approx(separability_limit(200, 20, 2_000).ratio, rel=0.02)
    with pytest.raises(InputError, match="between 1 and V-1"):
        separability_limit(3, 3)
