"""Unequal contexts: the same limit, reached more slowly."""

from __future__ import annotations

from typing import Any

import pytest

from study_cases import failed, run_study
from tokengeom_studies.base import Findings
from tokengeom_studies.zipf_imbalance import ZipfImbalance


def run(**changes: Any) -> Findings:
    small = {"V": 8, "contexts": 10, "support": 2, "dim": 32, "steps": 60_000, "exponents": [0.0, 1.5]}
    return run_study("zipf-imbalance", **{**small, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []
    assert found.study == ZipfImbalance().name


def test_a_seed_determines_the_findings(found: Findings) -> None:
    again = run()
    assert again.sentence == found.sentence
    assert again.numbers == found.numbers


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"steps": 60}, "descent: smallest cos(L, L_mm) of an exponent"),
        ({"smallest_lambda": 1e-4}, "1 - cos between exponents, smallest over middle lambda"),
        ({"exponents": [1.5, 0.0]}, "smallest ratio of steps from one exponent to the next"),
    ],
)
def test_a_check_can_fail(changes: dict[str, Any], expected: str) -> None:
    assert expected in failed(run(**changes))
