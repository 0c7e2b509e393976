"""Transformers of several widths on a recipe that takes seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom_studies.base import Findings
from tokengeom_studies.small_d_network import SmallDNetwork

SMALL: dict[str, Any] = {
    "stories": 300, "context": 3, "contexts": 100, "vocabulary": 40, "layers": 1, "heads": 2, "steps": 100,
    "learning_rate": 1e-2, "draws": 20, "dims": [4, 48],
}  # fmt: skip


def run(**changes: Any) -> Findings:
    return run_study("small-d-network", **{**SMALL, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


@pytest.mark.slow
def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []
    assert found.study == SmallDNetwork().name


@pytest.mark.slow
def test_the_table_has_one_row_per_dimension(found: Findings) -> None:
    table = found.tables["dimensions"]
    assert table["d"] == [4, 48]
    assert np.diff(table["limit_context_agreement"])[0] > 0.1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dims": [48, 64]}, "number of d below the rank of L_mm"),
        ({"dims": [4, 8]}, "largest d over the rank of L_mm"),
        ({"steps": 1}, "loss gap at the largest d"),
    ],
)
def test_a_check_can_fail(changes: dict[str, Any], expected: str) -> None:
    assert expected in failed(run(**changes))
