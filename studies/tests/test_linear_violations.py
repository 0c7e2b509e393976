"""Data that violate the conditions of the linear model as planted, and the study on them."""

from __future__ import annotations

import pytest

from study_cases import run_study
from tokengeom import predict
from tokengeom.extending import InputError
from tokengeom_studies.linear_violations import CASES, planted


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_planted_contexts_violate_the_intended_conditions(case: str, seed: int) -> None:
    setting = planted(case, seed, V=7, m=8, d=10, support_size=3, n=400)
    prediction = predict(setting.stats, embeddings=setting.H)
    assert (bool(prediction.compatible), bool(prediction.separable)) == CASES[case]
    assert prediction.loss_floor > prediction.entropy + 1e-3


def test_planting_needs_enough_tokens() -> None:
    with pytest.raises(InputError, match="got V=4, support_size=3, m=8"):
        planted("both", 0, V=4, m=8, d=10, support_size=3, n=400)


def test_the_study_passes_with_one_seed() -> None:
    found = run_study("linear-violations", seeds=1)
    assert found.passed, found.summary()
