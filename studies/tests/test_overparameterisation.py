"""Sizes of networks: the number of parameters by formula, and loss and geometry against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom import NextTokenStatistics, TrainingSettings
from tokengeom.extending import InputError, LinePanel
from tokengeom_studies.base import Findings
from tokengeom_studies.overparameterisation import count_parameters

SMALL: dict[str, Any] = {
    "stories": 300, "context": 3, "contexts": 40, "vocabulary": 30, "layers": [1], "heads": 2, "dims": [4, 32],
    "steps": 100, "learning_rate": 1e-2, "draws": 20,
}  # fmt: skip


def run(**changes: Any) -> Findings:
    return run_study("overparameterisation", **{**SMALL, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


def small_statistics() -> NextTokenStatistics:
    contexts = np.array([[0, 1, 2], [2, 1, 0], [3, 3, 1]], np.int32)
    return NextTokenStatistics.from_counts(np.array([[1, 0, 2], [0, 3, 1]]), contexts=contexts)


@pytest.mark.parametrize(("dim", "layers"), [(4, 1), (6, 2)])
def test_parameters_of_an_mlp_are_those_of_its_matrices_and_its_norm(dim: int, layers: int) -> None:
    counted = count_parameters(small_statistics(), TrainingSettings(model="mlp", dim=dim, layers=layers))
    tokens, length, V, wide = 4, 3, 2, 4 * dim
    body = (length * dim + 1) * wide + (layers - 1) * (wide + 1) * wide + wide * dim + dim
    # The last d parameters of the body are the gain of its norm; the fifth token pads short contexts.
    assert counted == (tokens + 1) * dim + body + V * dim


def test_a_layer_of_a_transformer_has_attention_swiglu_and_two_norms() -> None:
    d, inner = 8, 24
    one, two = (
        count_parameters(small_statistics(), TrainingSettings(model="transformer", dim=d, layers=layers, heads=2))
        for layers in (1, 2)
    )
    assert two - one == 4 * d * d + 3 * d * inner + 2 * d


def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []


def test_the_figure_holds_the_numbers_of_the_table(found: Findings) -> None:
    table, panel = found.tables["sizes"], found.figures[0].panels[0]
    assert isinstance(panel, LinePanel)
    assert (panel.x_scale, panel.y_scale) == ("log", "log")
    drawn = {(float(x), float(y)) for curve in panel.curves for x, y in zip(curve.x, curve.y, strict=True)}
    assert drawn == set(zip(table["per_context"], table["loss_gap"], strict=True))
    assert all(np.all(np.diff(curve.x) > 0) for curve in panel.curves)


def test_parameters_are_given_per_context_and_per_window(found: Findings) -> None:
    table = found.tables["sizes"]
    ratio = np.asarray(table["parameters"]) / np.asarray(table["per_context"])
    assert ratio == pytest.approx(np.full(ratio.size, ratio[0]))
    assert f"On {ratio[0]:.0f} contexts" in found.sentence
    windows = np.asarray(table["parameters"]) / np.asarray(table["per_window"])
    assert f"({windows[0]:,.0f} windows" in found.sentence


def test_an_untrained_network_fails() -> None:
    lost = failed(run(steps=1))
    assert "largest network: loss gap" in lost
    assert "largest network: agreement of contexts, lower end of the interval above the floor" in lost
    assert "largest network: agreement of contexts gained in training" in lost


def test_a_single_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"at least two; got dims=\[8\]"):
        run(dims=[8])
