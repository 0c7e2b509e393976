"""One rule for "beats chance", and draws that are refused where they are too few."""

from __future__ import annotations

import pytest

from tokengeom.errors import ProblemError
from tokengeom.geometry.agreement import CHANCE_TIE, Agreement, Better, check_draws

NAN = float("nan")


def number(value: float, null: float, better: Better = "higher") -> Agreement:
    return Agreement(value, NAN, NAN, null, NAN, better, "contexts")


@pytest.mark.parametrize(
    ("value", "null", "better", "beats"),
    [
        (0.5, 0.4, "higher", True),
        (0.4, 0.5, "higher", False),
        (0.4, 0.5, "lower", True),
        (0.5, 0.4, "lower", False),
        (0.5, 0.5, "higher", False),
        (0.5 * (1 + CHANCE_TIE / 2), 0.5, "higher", False),
        (0.5 * (1 + CHANCE_TIE * 2), 0.5, "higher", True),
        (0.5 * (1 - CHANCE_TIE / 2), 0.5, "lower", False),
        (-0.5 * (1 - CHANCE_TIE / 2), -0.5, "higher", False),
        (0.0, 0.0, "lower", False),
        (NAN, 0.5, "higher", False),
        (0.5, NAN, "higher", False),
    ],
)
def test_beating_chance_is_a_strict_lead_over_the_null_beyond_rounding(
    value: float, null: float, better: Better, beats: bool
) -> None:
    assert number(value, null, better).beats_chance is beats


def test_a_null_is_known_where_value_and_permutations_are() -> None:
    assert number(0.5, 0.4).has_null
    assert not number(0.5, NAN).has_null
    assert not number(NAN, 0.4).has_null


def test_cells_and_text_leave_out_what_is_not_known() -> None:
    full = Agreement(0.51234, 0.4, 0.6, 0.3, 0.1, "higher", "tokens")
    assert full.cells() == ("0.5123", "0.4 to 0.6", "0.3")
    assert str(full) == "0.5123 [0.4, 0.6], chance 0.3"
    assert number(0.51234, NAN).cells() == ("0.5123", "", "")
    assert str(number(0.51234, NAN)) == "0.5123"


@pytest.mark.parametrize("name", ["resamples", "permutations"])
@pytest.mark.parametrize("value", [-1, 1, 19])
def test_too_few_draws_for_a_percentile_are_refused(name: str, value: int) -> None:
    given = {"resamples": 0, "permutations": 20, name: value}
    with pytest.raises(ProblemError, match=f"{name}={value}"):
        check_draws(**given)
    check_draws(20, 0)
