"""Agreement as a function of efficiency, on made-up rows."""

from __future__ import annotations

import numpy as np
import pytest

from study_cases import run_study
from tokengeom.extending import InputError
from tokengeom_studies.base import Findings
from tokengeom_studies.common.measured import Row
from tokengeom_studies.efficiency import Efficiency, increasing_curve


def rows(shift: float, slope: float) -> list[Row]:
    """Twelve trainings of three kinds; one kind lies ``shift`` above the curve ``0.5 + slope x``."""
    found: list[Row] = [{"kind": "prediction", "norm": "nuclear", "target": 0.05, "relative_gap": 1e-3}]
    for number in range(12):
        model = ("ufm", "mlp", "lstm")[number % 3]
        x = 0.4 + 0.04 * number
        value = 0.5 + slope * x + (shift if model == "lstm" else 0.0)
        for seed in range(2):
            agreed = dict.fromkeys(("contexts", "tokens"), value + 0.0001 * seed)
            found.append(
                {"kind": "run", "text": "t", "training": f"{model} {number}", "model": model, "seed": seed,
                 "target": 0.05, "reached": True, "loss_gap": 0.05, "step": 5, "agreement": {"nuclear": agreed},
                 "rivals": {}, "efficiency": x, "split_exponent": 0.5, "with_earlier_seeds": [agreed] * seed}
            )  # fmt: skip
    return found


def judged(shift: float, slope: float) -> dict[str, str]:
    found: Findings = Efficiency().judge(Efficiency().recipe(), rows(shift, slope))
    return dict(zip(Efficiency.hypotheses, found.tables["hypotheses"]["answer"], strict=True))


def test_one_curve_is_found_and_a_kind_beside_it_is_noticed() -> None:
    assert set(judged(0.0, 0.5).values()) == {"yes"}
    beside = judged(0.3, 0.5)
    assert beside["one-curve-contexts"] == "no"
    assert judged(0.0, -0.5)["monotone-tokens"] == "no"


def test_the_curve_is_the_increasing_one_of_least_squares() -> None:
    x, y = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    # Values 2, 3, 1 in the order of x: the last two are pooled, then all three.
    np.testing.assert_allclose(increasing_curve(x, y, np.array([1.0, 2.5, 9.0])), [2.0, 2.0, 2.0])


def test_an_unknown_training_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="does not train 'ufm, nothing'"):
        run_study("efficiency", trainings=["ufm, nothing"])
