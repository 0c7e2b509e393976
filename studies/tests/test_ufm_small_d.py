"""Unconstrained features with fewer dimensions than the predicted rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom_studies.base import Findings
from tokengeom_studies.ufm_small_d import _smallest_with_all_larger


def run(**changes: Any) -> Findings:
    small = {"V": 12, "supports": 8, "copies": 3, "dims": [1, 2, 3, 4, 5, 6, 7, 8, 12, 32]}
    return run_study("ufm-small-d", **{**small, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dims": [6, 12, 32]}, "loss gap without ridge at the smallest d"),
        ({"steps": 60}, "largest excess at d >= rank L_lambda"),
    ],
)
def test_a_check_can_fail(changes: dict[str, Any], expected: str) -> None:
    assert expected in failed(run(**changes))


def test_no_dimension_beats_the_convex_optimum() -> None:
    findings = run(dims=[1, 8, 32], steps=500)
    assert min(findings.tables["dimensions"]["excess"]) > -1e-5


def test_the_smallest_sufficient_dimension_holds_for_all_larger_ones() -> None:
    dims = [1, 2, 4, 8]
    assert _smallest_with_all_larger(dims, np.array([True, False, True, True])) == 4
    assert _smallest_with_all_larger(dims, np.array([True] * 4)) == 1
    assert _smallest_with_all_larger(dims, np.array([False, True, False, True])) == 8
    assert _smallest_with_all_larger(dims, np.array([True, True, True, False])) is None
