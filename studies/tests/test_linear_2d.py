"""The linear model in the plane: its statistics, and the study at its default size."""

from __future__ import annotations

import numpy as np
import pytest

from study_cases import run_study
from tokengeom.extending import InputError
from tokengeom_studies.linear_2d import SUPPORTS, plane_statistics


@pytest.mark.parametrize("entropy", [0.2, 0.8811, 1.09])
def test_the_plane_has_the_given_entropy_and_its_supports(entropy: float) -> None:
    stats = plane_statistics(entropy)
    assert stats.entropy == pytest.approx(entropy, abs=1e-12)
    assert [tuple(np.flatnonzero(column)) for column in stats.P.toarray().T] == [tuple(s) for s in SUPPORTS]


@pytest.mark.parametrize("entropy", [0.0, 1.2])
def test_an_entropy_that_three_tokens_cannot_have_is_refused(entropy: float) -> None:
    with pytest.raises(InputError, match=f"between 0 and log 3 = 1.0986; got {entropy}"):
        plane_statistics(entropy)


def test_the_study_classifies_every_set_of_angles_as_the_paper_does() -> None:
    found = run_study("linear-2d")
    assert found.passed, found.summary()
    assert found.sentence.startswith("7 of 7")


def test_a_wrong_expectation_fails_the_study() -> None:
    assert not run_study("linear-2d", separable=[[0, 90, 180], [90, 210, 330]], blocked=[], steps=100).passed


def test_a_recipe_without_separable_angles_is_refused() -> None:
    with pytest.raises(InputError, match=r"separable=\[\]"):
        run_study("linear-2d", separable=[])
