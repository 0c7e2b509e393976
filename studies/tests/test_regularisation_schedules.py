"""Schedules of regularisation: the strengths of a run, the path it must follow, and checks that can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom.extending import InputError, LinePanel
from tokengeom_studies.base import Findings
from tokengeom_studies.regularisation_schedules import COSINE, LARGE, PLATEAUS, SMALL, Decay

SMALL_RECIPE: dict[str, Any] = {
    "stories": 300, "context": 3, "contexts": 40, "vocabulary": 30, "layers": 1, "heads": 2, "dim": 32, "steps": 120,
    "learning_rate": 1e-2, "ufm_steps": 2_400, "plateaus": 3, "ridges": [1e-2, 1e-4], "draws": 20,
}  # fmt: skip


def run(**changes: Any) -> Findings:
    return run_study("regularisation-schedules", **{**SMALL_RECIPE, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


def strengths(name: str, steps: int = 90) -> Any:
    first, schedule = Decay(1e-1, 1e-4, 4).schedules(steps)[name]
    return first * schedule.factors(np.arange(steps, dtype=np.float64), steps)


@pytest.mark.parametrize("name", [PLATEAUS, COSINE])
def test_a_falling_strength_goes_from_the_large_to_the_small_one(name: str) -> None:
    seen = strengths(name)
    assert seen[0] == pytest.approx(1e-1)
    assert np.all(np.diff(seen) <= 1e-15)
    assert strengths(name, 100_000)[-1] == pytest.approx(1e-4, rel=1e-3)


def test_constant_strengths_are_the_ends_of_the_falling_ones() -> None:
    assert set(strengths(LARGE)) == {1e-1}
    assert set(strengths(SMALL)) == {1e-4}


def test_plateaus_have_the_strengths_at_which_the_path_is_solved() -> None:
    decay, seen = Decay(1e-1, 1e-4, 4), strengths(PLATEAUS)
    last_of_each = [end - 1 for end in decay.milestones(90)]
    assert seen[last_of_each] == pytest.approx(decay.strengths)
    assert seen[last_of_each] == pytest.approx([1e-1, 1e-2, 1e-3, 1e-4])


@pytest.mark.slow
def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []


@pytest.mark.slow
def test_the_ufm_is_at_the_certified_path_at_the_end_of_each_plateau(found: Findings) -> None:
    table = found.tables["plateaus"]
    assert np.asarray(table["lam"]) == pytest.approx([1e-2, 1e-3, 1e-4])
    assert np.asarray(table["loss_gap"]) == pytest.approx(np.asarray(table["path_loss_gap"]), rel=0.1)
    assert np.asarray(table["nuclear"]) == pytest.approx(np.asarray(table["path_nuclear"]), rel=0.05)


@pytest.mark.slow
def test_too_few_steps_do_not_reach_the_path() -> None:
    missed = failed(run(ufm_steps=30, steps=3))
    assert "UFM, plateaus: largest relative distance of the loss gap from the path" in missed
    assert "UFM, plateaus: agreement of contexts at the loss reached (nuclear norm)" in missed
    assert "UFM, plateaus: agreement of tokens at the loss reached (nuclear norm)" in missed


@pytest.mark.slow
def test_the_figure_shows_every_schedule_of_both_models(found: Findings) -> None:
    panels = found.figures[0].panels
    assert len(panels) == 10
    for panel in panels:
        assert isinstance(panel, LinePanel)
        assert [curve.label for curve in panel.curves] == [LARGE, SMALL, PLATEAUS, COSINE]
    assert len(found.tables["ends"]["run"]) == 8


@pytest.mark.parametrize("changes", [{"plateaus": 1}, {"ridges": [1e-2]}, {"decays": [1.0, 0.0]}, {"ridges": [1, 1]}])
def test_strengths_that_cannot_fall_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="from a larger to a smaller number > 0 in at least 2 plateaus"):
        run(**changes)
