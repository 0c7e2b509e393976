"""Conditions and loss over the dimension, on a small recipe."""

from __future__ import annotations

from study_cases import failed, run_study
from tokengeom_studies.linear_dimension_sweep import SLOW

SMALL = {"seeds": 1, "V": 5, "m": 6, "support_size": 3, "n": 200, "ratios": [0.34, 1.0, 2.0]}


def test_both_conditions_hold_from_as_many_dimensions_as_contexts() -> None:
    table = run_study("linear-dimension-sweep", **SMALL, steps=500).tables["dimensions"]
    assert table["d"] == [2, 6, 12]
    assert table["compatible"] == [0.0, 1.0, 1.0]
    assert table["separable"][1:] == [1.0, 1.0]
    assert table["predicted_excess"][0] > 0.01
    assert table["predicted_excess"][1:] == [0.0, 0.0]


def test_too_few_steps_leave_the_loss_above_its_infimum() -> None:
    found = run_study("linear-dimension-sweep", **SMALL, steps=5)
    assert f"largest CE - infimum after training with a margin of at least {SLOW}, in nats" in failed(found)
