"""The smallest separating dimension: bisection, Cover's count, and the median."""

from __future__ import annotations

import numpy as np

from tokengeom.extending import MarginProblem, solve_ntp_svm
from tokengeom_studies.common.random_data import random_supports
from tokengeom_studies.separability_threshold import Threshold, cover, smallest_dimension, support_sizes


def test_bisection_finds_what_trying_every_dimension_finds() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        V = 2 + seed % 3
        S, H = random_supports(rng, V, 7, 1 + seed % (V - 1) if V > 2 else 1), rng.standard_normal((7, 7))
        tried = [solve_ntp_svm(MarginProblem(S, H[:d])).separable for d in range(1, 8)]
        assert tried == sorted(tried)
        assert smallest_dimension(S, H) == 1 + tried.index(True)


def test_covers_count_has_its_known_values() -> None:
    # Half at d = m/2, all at d >= m; 3 points on a line are separable through 0 for 2 of 8 sign patterns.
    assert [cover(d, 10) for d in (5, 10, 12)] == [0.5, 1.0, 1.0]
    assert cover(1, 3) == 0.25


def test_half_is_the_first_dimension_at_which_half_are_separable() -> None:
    found = Threshold(V=3, size=1, m=10, dimensions=np.array([3.0, 4.0, 6.0, 9.0]))
    assert found.half == 0.4
    assert found.probability(4) == 0.5
    assert found.probability(3) < 0.5
    assert found.cover is None


def test_support_sizes_go_from_one_to_all_but_one() -> None:
    assert support_sizes(2, 5) == [1]
    assert support_sizes(5, 9) == [1, 2, 3, 4]
    assert support_sizes(20, 3) == [1, 10, 19]
