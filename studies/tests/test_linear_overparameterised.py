"""Ranges of the reference, and the optimizer of the reference runs."""

from __future__ import annotations

import pytest

from study_cases import failed, run_study
from tokengeom.extending import Adam
from tokengeom_studies.linear_overparameterised import QUANTITIES, REFERENCE, optimizer_named, widened


def test_a_reference_range_is_widened_by_the_stated_tolerance() -> None:
    assert widened("norm_W", (10.0, 20.0)) == pytest.approx((9.0, 22.0))
    assert widened("cosine", (0.9, 0.95)) == pytest.approx((0.895, 0.955))


def test_adam_has_the_betas_of_the_reference_runs() -> None:
    assert optimizer_named("adam") == Adam(betas=(0.9, 0.99))
    assert optimizer_named("ngd") == "ngd"


def test_every_quantity_of_every_optimizer_is_checked_and_short_runs_fail() -> None:
    found = run_study("linear-overparameterised", seeds=1, steps=5, margin_steps=5, learned=1, path_points=2)
    names = [f"{optimizer}: median {quantity}" for optimizer in REFERENCE for quantity in QUANTITIES]
    assert [check.name for check in found.numbers][: len(names)] == names
    assert set(failed(found)) >= {f"{optimizer}: median loss_gap" for optimizer in REFERENCE}
    assert "published" not in found.sentence
