"""Unconstrained features on small random supports."""

from __future__ import annotations

from typing import Any

import pytest

from study_cases import failed, run_study
from tokengeom_studies.base import Findings
from tokengeom_studies.ufm_synthetic import CONTEXT_SIMILARITY, LOSS_GAP


def run(**changes: Any) -> Findings:
    return run_study("ufm-synthetic", **{"draws": 1, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


def test_one_draw_of_the_papers_setting_passes(found: Findings) -> None:
    assert failed(found) == []
    table = found.tables["draws"]
    assert table["loss_gap"][0] <= LOSS_GAP
    assert table["context_similarity"][0] >= CONTEXT_SIMILARITY
    assert "1 of 1 draws meet both targets" in found.sentence


def test_a_short_run_fails() -> None:
    short = run(steps=600)
    assert "median loss gap" in failed(short)
    assert "0 of 1 draws" in short.sentence
