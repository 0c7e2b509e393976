"""Agreement as a function of efficiency, on made-up rows."""

from __future__ import annotations

import numpy as np
import pytest

from study_cases import cell_row, run_study
from tokengeom.extending import InputError
from tokengeom_studies.base import Findings
from tokengeom_studies.common.measured import Row
from tokengeom_studies.efficiency import Efficiency, increasing_curve


def rows(shift: float, slope: float, text: str = "t") -> list[Row]:
    """Twelve trainings of three kinds; one kind lies ``shift`` above the curve ``0.5 + slope x``."""
    found: list[Row] = [
        {"kind": "prediction", "text": text, "norm": "nuclear", "target": 0.05, "relative_gap": 1e-3, "rank": 3}
    ]
    for number in range(12):
        model = ("ufm", "mlp", "lstm")[number % 3]
        x = 0.4 + 0.04 * number
        value = 0.5 + slope * x + (shift if model == "lstm" else 0.0)
        found.append(cell_row(f"{model} {number}", model, {"nuclear": value}, {"R": 0.4}, text=text, efficiency=x))
    return found


def judged(shift: float, slope: float) -> dict[str, str]:
    found: Findings = Efficiency().judge(Efficiency().recipe(), rows(shift, slope))
    return dict(zip(Efficiency.hypotheses, found.tables["hypotheses"]["answer"], strict=True))


def test_one_curve_is_found_and_a_kind_beside_it_is_noticed() -> None:
    assert set(judged(0.0, 0.5).values()) == {"yes"}
    beside = judged(0.3, 0.5)
    assert beside["one-curve-contexts"] == "no"
    assert judged(0.0, -0.5)["monotone-tokens"] == "no"


def test_an_answer_needs_three_quarters_of_the_texts() -> None:
    def answers(slopes: tuple[float, ...]) -> set[str]:
        known = [row for number, slope in enumerate(slopes) for row in rows(0.0, slope, f"t{number}")]
        table = Efficiency().judge(Efficiency().recipe(), known).tables["hypotheses"]
        return {answer for name, answer in zip(Efficiency.hypotheses, table["answer"], strict=True) if "mono" in name}

    assert answers((0.5, 0.5, 0.5, -0.5)) == {"yes"}
    assert answers((0.5, -0.5)) == {"undecided"}


def test_agreement_is_corrected_for_what_seeds_agree_to() -> None:
    row = cell_row("mlp", "mlp", {"nuclear": 0.6}, {"R": 0.4}, between=0.64)
    found = Efficiency().judge(Efficiency().recipe(), [*rows(0.0, 0.5), row]).tables["cells"]
    assert found["nuclear"][-1] == "0.750 / 0.750"


def test_the_curve_is_the_increasing_one_of_least_squares() -> None:
    x, y = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    # Values 2, 3, 1 in the order of x: the last two are pooled, then all three.
    np.testing.assert_allclose(increasing_curve(x, y, np.array([1.0, 2.5, 9.0])), [2.0, 2.0, 2.0])


def test_an_unknown_training_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="does not train 'ufm, nothing'"):
        run_study("efficiency", trainings=["ufm, nothing"])
