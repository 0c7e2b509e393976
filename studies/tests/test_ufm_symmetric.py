"""Symmetric supports, where the geometry is known in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom.extending import HeatmapPanel
from tokengeom_studies.base import Findings
from tokengeom_studies.ufm_symmetric import UfmSymmetric


def run(**changes: Any) -> Findings:
    return run_study("ufm-symmetric", **{"subsets": [[5, 2]], "classes": 4, "copies": 2, "dim": 8, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []
    assert found.study == UfmSymmetric().name


def test_trained_tokens_form_the_frame_of_the_closed_form(found: Findings) -> None:
    panel = found.figures[0].panels[0]
    assert isinstance(panel, HeatmapPanel)
    assert panel.values == pytest.approx(np.full((5, 5), -0.25) + 1.25 * np.eye(5), abs=1e-2)


def test_a_seed_determines_the_findings(found: Findings) -> None:
    again = run()
    assert again.sentence == found.sentence
    assert again.numbers == found.numbers


def test_a_short_run_fails() -> None:
    missed = failed(run(steps=30))
    assert "NC1" in missed
    assert "tokens: distance from an equiangular frame" in missed
