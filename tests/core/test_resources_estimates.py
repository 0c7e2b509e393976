"""`Estimate`: sums, sentences, and when work is announced."""

from __future__ import annotations

import json

import pytest

from estimate_cases import Said
from tokengeom.core.resources import LONG, Estimate, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.123, "0.12 s"),
        (7.26, "7.3 s"),
        (99.4, "99 s"),
        (99.6, "1.7 min"),
        (45 * 60, "45 min"),
        (99.6 * 60, "1.7 h"),
        (1e6, "280 h"),
    ],
)
def test_durations_have_two_digits_and_a_unit_that_suits_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_narrow_range_is_one_number_and_a_wide_one_two() -> None:
    assert Estimate("L_mm", 60.0, 110.0, 600_000_000).sentence == "L_mm: about 81 s and 0.6 GB."
    assert Estimate("L_mm", 30.0, 120.0, 1000).sentence == "L_mm: 30 s to 2 min."


def test_parts_add_up_in_time_and_the_largest_counts_in_memory() -> None:
    parts = [Estimate("first", 10.0, 40.0, 7), Estimate("short", 0.1, 0.2, 9), Estimate("last", 20.0, 20.0, 8)]
    whole = Estimate.total("All", parts)
    assert (whole.shortest, whole.longest, whole.bytes) == pytest.approx((30.1, 60.2, 9))
    assert whole.sentence == "All: about 43 s.\n  first: 10 s to 40 s.\n  last: about 20 s."
    assert json.loads(json.dumps(whole.to_dict()))["parts"][0]["seconds"] == pytest.approx(20.0)


def test_only_long_work_is_announced() -> None:
    said = Said()
    Estimate("short", LONG / 3, LONG / 1.01).announce(said)
    assert said.sentences == []
    Estimate("long", LONG / 3, LONG).announce(said)
    assert len(said.sentences) == 1
