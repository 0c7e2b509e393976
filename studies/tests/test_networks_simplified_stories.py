"""Transformer and unconstrained features on simplified stories, on a recipe that takes seconds."""

from __future__ import annotations

from typing import Any

import pytest

from study_cases import failed, run_study
from tokengeom_studies.base import Findings
from tokengeom_studies.networks_simplified_stories import NATURAL, REPEATS, TRANSFORMER, UFM

SMALL: dict[str, Any] = {
    "stories": 300, "context": 3, "contexts": 100, "vocabulary": 40, "layers": 1, "heads": 2, "steps": 100,
    "learning_rate": 1e-2, "draws": 20, "dim": 48, "ufm_steps": 500, "ufm_learning_rate": 1e-2,
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Findings:
    return run_study("networks-simplified-stories", **SMALL)


@pytest.mark.slow
def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []


@pytest.mark.slow
def test_both_models_are_compared_in_both_modes(found: Findings) -> None:
    runs = {f"{model}, {mode}" for model in (TRANSFORMER, UFM) for mode in (NATURAL, REPEATS)}
    assert set(found.tables["agreement"]["run"]) == runs
    assert set(found.tables["transformer_and_ufm"]["mode"]) == {NATURAL, REPEATS}


@pytest.mark.slow
def test_an_untrained_transformer_fails() -> None:
    missed = failed(run_study("networks-simplified-stories", **{**SMALL, "steps": 1}))
    assert "transformer, natural counts: loss gap" in missed
    assert "transformer, random repeats: SIM of contexts with L_mm" in missed
