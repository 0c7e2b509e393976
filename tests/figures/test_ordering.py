from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengeom.core.errors import InputError
from tokengeom.core.numerics import cosines
from tokengeom.figures.ordering import Order, order_groups


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 25), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_an_order_contains_every_item_and_keeps_groups_together(n: int, groups: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, groups, size=n)
    order = order_groups(labels, cosines(rng.standard_normal((3, n))))
    assert sorted(order.indices.tolist()) == list(range(n))
    ordered = labels[order.indices]
    changes = np.flatnonzero(np.diff(ordered)) + 1
    assert changes.size == np.unique(labels).size - 1
    assert set(order.breaks) <= set(changes.tolist())
    for group in np.unique(labels):
        positions = np.flatnonzero(ordered == group)
        if positions.size > 1:
            edges = {int(positions[0]), int(positions[-1]) + 1} - {0, n}
            assert edges <= set(order.breaks)


def test_shuffled_blocks_are_found_again() -> None:
    rng = np.random.default_rng(0)
    directions = np.repeat(np.linalg.qr(rng.standard_normal((6, 6)))[0], 5, axis=1) + 0.05 * rng.standard_normal(
        (6, 30)
    )
    shuffle = rng.permutation(30)
    order = order_groups(np.arange(shuffle.size), cosines(directions[:, shuffle]))
    block = shuffle[order.indices] // 5
    assert np.count_nonzero(np.diff(block)) == 5
    assert order.breaks == ()


def test_neighbouring_groups_are_close_in_angle() -> None:
    angles = np.linspace(0.0, np.pi, 40)
    shuffle = np.random.default_rng(1).permutation(40)
    points = np.stack([np.cos(angles), np.sin(angles)])[:, shuffle]
    steps = np.abs(np.diff(shuffle[order_groups(np.arange(shuffle.size), cosines(points)).indices]))
    assert steps.max() == 1


def test_cosines_that_are_nan_are_accepted() -> None:
    broken = np.full((4, 4), np.nan)
    assert sorted(order_groups([0, 1, 2, 1], broken).indices.tolist()) == [0, 1, 2, 3]


def test_thinning_keeps_the_ends_and_every_break_between_kept_groups() -> None:
    order = Order(np.arange(100), (10, 50, 90)).thinned(11)
    assert order.indices.tolist() == [0, 10, 20, 30, 40, 50, 59, 69, 79, 89, 99]
    assert order.breaks == (1, 5, 10)
    assert order.names([str(i) for i in range(100)])[1] == "10"


def test_a_matrix_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"3 items; got \(2, 2\)"):
        order_groups([0, 1, 2], np.eye(2))
