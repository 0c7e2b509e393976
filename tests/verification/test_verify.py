"""What the checks of all kinds share."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from tokengeom import NextTokenStatistics
from tokengeom.core.errors import InputError
from tokengeom.results.manifests import MANIFEST
from tokengeom.verification.verify import same, verify


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


def test_a_manifest_that_is_not_a_plain_file_is_refused(tmp_path: Path) -> None:
    NextTokenStatistics.from_counts([[1, 0], [1, 2]]).save(tmp_path / "results" / "inside")
    assert verify(tmp_path / "results")
    os.mkfifo(tmp_path / "results" / MANIFEST)
    with pytest.raises(InputError, match="must be a plain file; it is something else"):
        verify(tmp_path / "results")


@pytest.mark.parametrize("given", ["stats", True, None])
def test_results_beside_are_a_list(given: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="beside must be a list of folders"):
        verify(tmp_path, beside=given)
