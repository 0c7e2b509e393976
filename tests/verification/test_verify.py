"""What the checks of all kinds share."""

from __future__ import annotations

import math

import pytest

from tokengeom.verification.verify import same


@pytest.mark.parametrize(
    ("claimed", "again"),
    [
        ({"a": [1.0, None]}, {"a": (1.0 + 1e-9, math.nan)}),
        ("rank 3, gap 2.01e-3", "rank 3, gap 2.02e-3"),
        (["off by 3e-16"], ["off by 1e-12"]),
        (3, 3),
        (None, None),
    ],
)
def test_what_differs_by_rounding_is_the_same(claimed: object, again: object) -> None:
    assert same(claimed, again)


@pytest.mark.parametrize(
    ("claimed", "again"),
    [
        ({"a": 1.0}, {"a": 1.0, "b": 2.0}),
        ([1.0], [1.0, 2.0]),
        (1.0, 1.00001),
        (1.0, "1.0"),
        (1.0, math.nan),
        (3, 4),
        ("rank 3", "rank 4"),
        ("it agrees", "it does not agree"),
        (True, None),
        (1.0, True),
        (1, True),
    ],
)
def test_what_differs_by_more_is_not(claimed: object, again: object) -> None:
    assert not same(claimed, again)
