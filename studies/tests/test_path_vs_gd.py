"""The regularisation path and gradient descent, compared at equal loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom_studies.base import Findings
from tokengeom_studies.path_vs_gd import PathVsGd


def run(**changes: Any) -> Findings:
    small = {
        "V": 8, "contexts": 10, "support": 2, "dim": 24, "learning_rate": 0.3, "steps": 100_000, "ridges": [1e-2],
    }  # fmt: skip
    return run_study("path-vs-gd", **{**small, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []
    assert found.study == PathVsGd().name


def test_a_seed_determines_the_findings(found: Findings) -> None:
    again = run()
    assert again.sentence == found.sentence
    assert again.numbers == found.numbers


def test_the_direction_of_descent_turns_to_the_limit(found: Findings) -> None:
    cosines = np.asarray(found.tables["descent"]["direction_cosine"])
    assert cosines[-1] > cosines[len(cosines) // 2] > cosines[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"steps": 30}, "descent: last cos(L, L_mm)"),
        ({"ridge_steps": 30}, "descent with ridge: largest distance to L_lambda"),
    ],
)
def test_a_check_can_fail(changes: dict[str, Any], expected: str) -> None:
    assert expected in failed(run(**changes))
