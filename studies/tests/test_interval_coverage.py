"""The study of coverage: trainings have the truth that is asked for, and every outcome of every hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokengeom_studies.interval_coverage import IntervalCoverage, group_of_each, measured


def test_many_groups_give_the_known_truth_in_both_weightings() -> None:
    row = measured(np.random.default_rng(0), 150, "equal", True, 3, 0.6, 0.8)
    assert row["truth"] == pytest.approx(np.sqrt(0.6))
    for weighting in ("contexts", "supports"):
        assert row[f"{weighting}_corrected"] == pytest.approx(row["truth"], abs=0.06)
        assert row[f"{weighting}_low"] < row["truth"] < row[f"{weighting}_high"]


def test_groups_have_the_sizes_that_are_asked_for() -> None:
    assert np.bincount(group_of_each(5, "one")).tolist() == [1] * 5
    assert np.bincount(group_of_each(5, "equal")).tolist() == [3] * 5
    sizes = np.bincount(group_of_each(40, "unequal"))
    assert sizes[0] > 10 * sizes[-1] > 0


def decisions(supports: float, contexts: float, width: float, bias: float = 0.0) -> dict[str, str]:
    """Answers for one cell of 40 unequal groups with given errors of both weightings."""
    rows: list[dict[str, Any]] = []
    for draw, sign in enumerate((-1.0, 1.0)):
        row = {"kind": "draw", "draw": draw, "groups": 40, "sizes": "unequal", "popular": False}
        row |= {"runs": 2, "share": 0.64, "rho": 0.5, "truth": 0.8}
        for name, error in (("supports", supports), ("contexts", contexts)):
            value = 0.8 + bias + sign * error
            row |= {f"{name}_corrected": value, f"{name}_low": value - width, f"{name}_high": value + width}
        rows.append(row)
    study = IntervalCoverage()
    table = study.judge(study.recipe(), rows).tables["hypotheses"]
    return dict(zip(study.hypotheses, map(str, table["answer"]), strict=True))


def test_every_outcome() -> None:
    assert decisions(0.01, 0.02, 0.05) == {"coverage": "yes", "bias": "yes", "weighting": "yes"}
    assert decisions(0.03, 0.02, 0.01) == {"coverage": "no", "bias": "yes", "weighting": "no"}
    assert decisions(0.01, 0.02, 0.2, bias=0.1)["bias"] == "no"
