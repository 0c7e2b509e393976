"""How far items moved: the definition, and what is listed."""

from __future__ import annotations

import numpy as np
import pytest

from movement_cases import brute_force
from tokengeom.comparison import movement as module
from tokengeom.comparison.movement import moved_numbers


@pytest.mark.parametrize("block", [1, 60, 10**6])
def test_moved_numbers_are_the_definition_in_blocks_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    first, second, units = rng.normal(size=(5, 40)), rng.normal(size=(7, 40)), rng.integers(0, 12, 40)
    monkeypatch.setattr(module, "BLOCK_ENTRIES", block)
    moved = moved_numbers(first, second, units)
    np.testing.assert_allclose(moved, brute_force(first, second, units), atol=1e-12)
    turned = np.linalg.qr(rng.normal(size=(7, 7)))[0] @ second * rng.uniform(0.5, 2.0, 40)
    np.testing.assert_allclose(moved_numbers(first, turned, units), moved, atol=1e-12)
    np.testing.assert_array_equal(moved_numbers(second, first, units), moved)
    np.testing.assert_array_equal(moved_numbers(first, first, units), np.zeros(40))


def test_an_item_whose_cosines_do_not_vary_moved_by_0_or_1() -> None:
    first, units = np.eye(3), np.arange(3)
    np.testing.assert_array_equal(moved_numbers(first, first, units), [0, 0, 0])
    second = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.5]])
    np.testing.assert_array_equal(moved_numbers(first, second, units), [1, 1, 1])
    np.testing.assert_array_equal(moved_numbers(0 * first, 0 * first, units), [0, 0, 0])
    np.testing.assert_array_equal(moved_numbers(first, second, np.zeros(3, np.int64)), [0, 0, 0])
