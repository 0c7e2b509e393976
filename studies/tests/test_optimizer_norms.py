"""Which norm goes with which optimizer, judged on made-up rows."""

from __future__ import annotations

from typing import Any

import pytest

from study_cases import cell_row, run_study
from tokengeom.extending import InputError
from tokengeom_studies.common.measured import Row
from tokengeom_studies.optimizer_norms import CANDIDATES, TRAININGS, OptimizerNorms


def runs(training: str, **agreed: float) -> list[Row]:
    """A training at the loss that decides."""
    values = {name: agreed.get(name.split()[0], 0.5) for name in CANDIDATES}
    return [cell_row(training, TRAININGS[training].model, values, {"R": 0.4})]


def on(text: str, rows: list[Row]) -> list[Row]:
    """The same on another text."""
    return [{**row, "text": text} for row in rows]


def decisions(*groups: list[Row]) -> dict[str, str]:
    study = OptimizerNorms()
    rows: list[Row] = [
        {"kind": "prediction", "text": "t", "norm": "nuclear", "target": 0.05, "relative_gap": 1e-3, "rank": 3}
    ]
    found = study.judge(study.recipe(), [*rows, *(row for group in groups for row in group)])
    return dict(zip(study.hypotheses, found.tables["hypotheses"]["answer"], strict=True))


@pytest.mark.parametrize(
    ("training", "right", "wrong"),
    [
        ("gd", "nuclear", "gamma2"),
        ("gd, momentum 0.9", "nuclear", "spectral"),
        ("adam", "largest", "nuclear"),
        ("sign descent", "largest", "gamma2"),
        ("spectral descent", "spectral", "nuclear"),
        ("muon", "spectral", "nuclear"),
    ],
)
def test_the_norm_that_is_ahead_decides(training: str, right: str, wrong: str) -> None:
    numbers: dict[str, Any] = {right: 0.9}
    assert decisions(runs(training, **numbers))[training] == "yes"
    assert decisions(runs(training, **{wrong: 0.9}))[training] == "no"
    assert decisions(runs(training))[training] == "undecided", "a tie"


def test_an_answer_needs_three_quarters_of_the_texts() -> None:
    agreed = [on(text, runs("gd", nuclear=0.9)) for text in "abc"]
    other = on("d", runs("gd", gamma2=0.9))
    assert decisions(*agreed, other)["gd"] == "yes"
    assert decisions(*agreed[:2], other)["gd"] == "undecided"


def test_epsilon_large_starts_and_networks() -> None:
    leads = (0.3, 0.2, 0.1, -0.1)
    names = ("adam", "adam, epsilon 1e-6", "adam, epsilon 1e-5", "adam, epsilon 1e-4")
    falling = [runs(name, gamma2=0.5 + lead) for name, lead in zip(names, leads, strict=True)]
    rising = [runs(name, gamma2=0.5 - lead) for name, lead in zip(names, leads, strict=True)]
    assert decisions(*falling)["epsilon"] == "yes"
    assert decisions(*rising)["epsilon"] == "no"
    small = [runs("gd", nuclear=0.9), runs("adam", gamma2=0.9)]
    large = [runs("gd, large start"), runs("adam, large start")]
    assert decisions(*small, *large)["large start"] == "yes"
    assert decisions(*small, runs("gd, large start", nuclear=0.9), large[1])["large start"] == "no"
    assert decisions(*small, runs("mlp, gd", nuclear=0.8), runs("mlp, adam", gamma2=0.8))["networks"] == "yes"
    assert decisions(*small, runs("mlp, gd", gamma2=0.8), runs("mlp, adam", nuclear=0.8))["networks"] == "no"


def test_an_unknown_training_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="does not train 'nothing'"):
        run_study("optimizer-norms", trainings=["nothing"])
