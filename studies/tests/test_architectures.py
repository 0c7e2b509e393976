"""Five architectures on a recipe that takes seconds: every pair is compared, and the figure holds the tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom.extending import HeatmapPanel, architecture_named
from tokengeom_studies.architectures import AT_LOSS, LIMIT, NETWORKS, UFM
from tokengeom_studies.base import Findings

SMALL: dict[str, Any] = {
    "stories": 300, "context": 3, "contexts": 60, "vocabulary": 40, "layers": 1, "heads": 2, "steps": 120,
    "learning_rate": 1e-2, "draws": 20, "dim": 48, "ufm_steps": 500, "ufm_learning_rate": 1e-2,
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Findings:
    return run_study("architectures", **SMALL)


@pytest.mark.slow
def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []


def test_the_five_architectures_exist() -> None:
    assert len({type(architecture_named(name)) for name in NETWORKS}) == 5


@pytest.mark.slow
def test_every_pair_of_architectures_is_compared_once(found: Findings) -> None:
    table = found.tables["pairs"]
    models = [*NETWORKS, UFM]
    pairs = {frozenset(pair) for pair in zip(table["one"], table["other"], strict=True)}
    assert pairs == {frozenset((a, b)) for a in models for b in models if a != b}
    assert set(found.tables["agreement"]["model"]) == set(models)


@pytest.mark.slow
def test_the_sentence_counts_the_models_that_are_nearer_to_the_prediction_than_to_each_other(found: Findings) -> None:
    counts = []
    for panel in found.figures[0].panels:
        assert isinstance(panel, HeatmapPanel)
        values = panel.values
        others = [max(values[i, j] for j in range(6) if j != i) for i in range(6)]
        counts.append(sum(values[i, 6] > others[i] for i in range(6)))
    assert f"the contexts of {counts[0]} and the tokens of {counts[1]} agree with the prediction" in found.sentence


@pytest.mark.slow
def test_the_heat_map_holds_the_numbers_of_the_tables(found: Findings) -> None:
    panel = found.figures[0].panels[0]
    assert isinstance(panel, HeatmapPanel)
    values, names = panel.values, list(panel.x_names)
    assert names == [*panel.y_names, AT_LOSS, LIMIT]
    assert np.array_equal(values[:, :6], values[:, :6].T)
    assert np.array_equal(np.diag(values), np.ones(6))
    agreement = found.tables["agreement"]
    rows = zip(agreement["model"], agreement["number"], agreement["value"], strict=True)
    columns = {"gamma2_context_agreement": AT_LOSS, "limit_context_agreement": LIMIT}
    seen = 0
    for model, number, value in rows:
        if number in columns:
            assert values[names.index(model), names.index(columns[number])] == value
            seen += 1
    assert seen == 12
    pairs = found.tables["pairs"]
    for one, other, number, value in zip(*(pairs[key] for key in ("one", "other", "number", "value")), strict=True):
        if number == "context_agreement":
            assert values[names.index(one), names.index(other)] == value
