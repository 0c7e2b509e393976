"""Thresholds of random data: the fit to brackets, and both outcomes of every hypothesis on made-up rows."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengeom.extending import SilentProgress
from tokengeom_studies.common.measured import Row
from tokengeom_studies.common.random_limits import separability_limit
from tokengeom_studies.common.separating_dimension import fit_logistic, thresholds
from tokengeom_studies.separability_random import SeparabilityRandom

STUDY = SeparabilityRandom()
SETTINGS = [(V, k, m) for V, k in ((2, 1), (5, 2), (10, 3)) for m in (100, 200, 400)] + [(50, 3, 50)]


def draws(slope: float = 1.0, shift: float = 1 / 8, width: float = 1.0, many: float = 1.3) -> list[Row]:
    """Brackets at quantiles of a logistic distribution with the given location and width."""
    rows: list[Row] = []
    for V, k, m in SETTINGS:
        limit = separability_limit(V, k)
        centre = m / 2 if V == 2 else limit.ratio * m * slope + shift * (V - 1) if m > 2 * V else limit.ratio * m * many
        scale = limit.width * sqrt(m) * (width if V > 2 else 1.0) * sqrt(3) / np.pi
        for draw, share in enumerate((np.arange(40) + 0.5) / 40):
            low = int(np.floor(centre + scale * np.log(share / (1 - share))))
            found = {"low": low, "high": low + 1, "undecided": 0, "refutation_residual": 1e-12}
            rows.append({"kind": "draw", "V": V, "k": k, "m": m, "draw": draw} | found)
    return rows


def decisions(rows: list[Row]) -> dict[str, str]:
    table = STUDY.judge(STUDY.recipe("paper"), rows).tables["hypotheses"]
    return dict(zip(STUDY.hypotheses, table["answer"], strict=True))


def test_rows_that_follow_the_theory_are_answered_with_yes() -> None:
    found = STUDY.judge(STUDY.recipe("paper"), draws())
    assert set(found.tables["hypotheses"]["answer"]) == {"yes"}
    assert found.passed, found.summary()


@pytest.mark.parametrize(
    ("hypothesis", "changes", "answer"),
    [
        ("formula", {"slope": 1.1}, "no"),
        ("formula", {"slope": 1.03}, "undecided"),
        ("shift", {"shift": 0.5}, "no"),
        ("shift", {"shift": 3 / 16}, "undecided"),
        ("width", {"width": 2.0}, "no"),
        ("many tokens", {"many": 1.0}, "no"),
        ("many tokens", {"many": 1.1}, "undecided"),
    ],
)
def test_rows_against_a_hypothesis_are_not_answered_with_yes(
    hypothesis: str, changes: dict[str, Any], answer: str
) -> None:
    assert decisions(draws(**changes))[hypothesis] == answer


def test_wrong_proofs_answers_and_counts_fail_their_checks() -> None:
    rows = draws()
    assert not STUDY.judge(STUDY.recipe("paper"), [{**row, "refutation_residual": 1e-3} for row in rows]).passed
    oracle = {"kind": "oracle", "V": 3, "k": 1, "m": 8, "draw": 0, "separable": True, "by_program": False}
    assert not STUDY.judge(STUDY.recipe("paper"), [*rows, oracle]).passed
    moved = [{**row, "low": row["low"] + 20, "high": row["high"] + 20} if row["V"] == 2 else row for row in rows]
    assert not STUDY.judge(STUDY.recipe("paper"), moved).passed


def test_a_logistic_distribution_is_recovered_from_brackets() -> None:
    rng = np.random.default_rng(0)
    estimates, errors = [], []
    for _ in range(40):
        values = rng.logistic(50.0, 3.0, 60)
        location, error, scale = fit_logistic(np.floor(values), np.ceil(values), 5.0)
        estimates.append(location)
        errors.append(error)
        assert scale == pytest.approx(3.0, rel=0.4)
    # The standard error must be that of the estimates over repetitions.
    assert np.mean(estimates) == pytest.approx(50.0, abs=0.5)
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.35)
    wide = fit_logistic(np.floor(values / 8) * 8, np.floor(values / 8) * 8 + 8, 5.0)
    assert wide[0] == pytest.approx(location, abs=3 * error)


def test_draws_that_end_undecided_do_not_hide_the_threshold() -> None:
    # Four brackets of width 2, and seven that stopped after their first step or before it.
    low = np.array([83, 85, 87, 87, *[0] * 7], float)
    high = np.array([85, 87, 89, 89, 200, *[87] * 6], float)
    location, error, _ = fit_logistic(low, high, 0.8)
    assert 84.0 < location < 88.0
    assert error < 2.0


def test_two_tokens_reach_covers_count_and_parts_divide_the_work(tmp_path: Path) -> None:
    small = {"settings": [[2, 1], [3, 1]], "m": [10], "draws": [30], "oracle_draws": 2, "oracle_m": 6}
    for part in range(2):
        recipe = STUDY.recipe("small", **small, parts=[part, 2])
        STUDY.measure_into(recipe, tmp_path / f"{part}.jsonl", None, SilentProgress())
        measured = STUDY.measure_into(recipe, tmp_path / f"{part}.jsonl", None, SilentProgress())
        assert len(measured.where(kind="draw")) == 30
        assert len(measured.where(kind="oracle")) == (4 if part == 0 else 0)
    found = STUDY.from_kept(tmp_path)
    assert found.passed, found.summary()
    assert found.tables["thresholds"]["V"] == [2, 3]


def test_thresholds_are_sorted_by_setting() -> None:
    assert [(one.V, one.k, one.m) for one in thresholds(draws()[::-1])] == sorted(SETTINGS)
