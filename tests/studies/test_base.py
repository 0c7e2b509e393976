"""What every study rests on: checks that can fail, findings, and recipes that refuse what they do not know."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tokengeom.errors import InputError
from tokengeom.studies.base import Check, Findings, all_studies, find_study


@pytest.mark.parametrize(
    ("value", "low", "high", "passed"),
    [
        (1.0, 0.0, 2.0, True),
        (0.0, 0.0, 2.0, True),
        (2.0, 0.0, 2.0, True),
        (-0.1, 0.0, 2.0, False),
        (2.1, 0.0, 2.0, False),
        (5.0, 0.0, None, True),
        (-5.0, None, 0.0, True),
        (5.0, None, 0.0, False),
        (math.nan, 0.0, 2.0, False),
        (math.nan, None, None, False),
        (math.inf, 0.0, None, True),
    ],
)
def test_a_check_passes_exactly_inside_its_range(
    value: float, low: float | None, high: float | None, passed: bool
) -> None:
    assert Check("number", value, low, high).passed is passed


def test_a_verdict_on_a_number_of_numpy_can_be_written_as_json() -> None:
    check = Check("number", np.float64(1.0), low=0.0)
    assert json.loads(json.dumps({**vars(check), "passed": check.passed}))["passed"] is True


def test_findings_pass_only_if_every_check_does() -> None:
    good, bad = Check("good", 1.0, low=0.0), Check("bad", 1.0, high=0.0)
    assert Findings("1 of 1.", [good]).passed
    assert not Findings("1 of 2.", [good, bad]).passed


def test_a_study_is_found_by_its_name_and_an_unknown_one_is_named() -> None:
    for name, study in all_studies().items():
        assert find_study(name).name == study.name
    with pytest.raises(InputError, match=r"no study 'linear-3d'.*linear-2d"):
        find_study("linear-3d")


def test_an_unknown_size_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'linear-2d' has no size 'huge'; it has: small, paper"):
        find_study("linear-2d").recipe("huge")


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no setting 'step'; its settings are: .*steps"):
        find_study("linear-2d").recipe("small", step=3)


def test_changes_replace_single_settings_and_leave_the_recipe_alone() -> None:
    study = find_study("linear-2d")
    changed = study.recipe("small", steps=7)
    assert changed["steps"] == 7
    assert study.recipe("small")["steps"] != 7
    assert {**changed, "steps": study.recipe("small")["steps"]} == study.recipe("small")
