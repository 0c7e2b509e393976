"""Brackets of the smallest separating dimension against trying every dimension and against a linear program."""

from __future__ import annotations

import numpy as np

from tokengeom.extending import Bool, Float
from tokengeom_studies.common.random_data import random_supports
from tokengeom_studies.common.separating_dimension import bracket, separates, separates_by_linear_program


def smallest_dimension(S: Bool, H: Float) -> int:
    """The fewest leading coordinates that separate, trying each number of them."""
    return next(d for d in range(1, H.shape[0] + 1) if separates_by_linear_program(S, H[:d]))


def test_a_bracket_of_width_1_is_the_smallest_dimension() -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        V, m = 2 + seed % 4, 9
        k = 1 + seed % (V - 1)
        S, H = random_supports(rng, V, m, k), rng.standard_normal((m, m))
        found = bracket(S, H, k, 0.0, 15_000)
        assert (found["low"], found["high"]) == (smallest_dimension(S, H) - 1, smallest_dimension(S, H))
        assert found["undecided"] == 0


def test_a_coarse_bracket_contains_the_smallest_dimension() -> None:
    rng = np.random.default_rng(1)
    S, H = random_supports(rng, 4, 24, 2), rng.standard_normal((24, 24))
    found = bracket(S, H, 2, 0.2, 15_000)
    assert found["low"] < smallest_dimension(S, H) <= found["high"]
    assert 1 < found["high"] - found["low"] <= 0.2 * 24


def test_the_answers_are_those_of_a_linear_program() -> None:
    answers = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        S, H = random_supports(rng, 4, 8, 1 + seed % 3), rng.standard_normal((3 + seed % 5, 8))
        answer, residual = separates(S, H, 15_000)
        assert answer == separates_by_linear_program(S, H)
        assert residual <= 1e-9
        answers.append(answer)
    assert set(answers) == {True, False}
