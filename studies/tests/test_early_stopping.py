"""Early stopping on small recipes: the minimum of the held-out loss, and checks that can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom.extending import InputError, LinePanel
from tokengeom_studies.base import Findings
from tokengeom_studies.early_stopping import TRANSFORMER, UFM

SMALL: dict[str, Any] = {
    "stories": 80, "context": 3, "contexts": 80, "vocabulary": 40, "layers": 1, "heads": 2, "dim": 48, "steps": 150,
    "learning_rate": 1e-2, "ufm_steps": 600, "ufm_learning_rate": 1e-2, "draws": 20,
}  # fmt: skip


def run(**changes: Any) -> Findings:
    return run_study("early-stopping", **{**SMALL, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


@pytest.mark.slow
def test_a_small_recipe_passes(found: Findings) -> None:
    assert failed(found) == []


@pytest.mark.slow
def test_the_minimum_is_the_lowest_record_of_the_curve(found: Findings) -> None:
    panel = found.figures[0].panels[0]
    assert isinstance(panel, LinePanel)
    table = found.tables["minimum"]
    assert list(table["model"]) == [TRANSFORMER, TRANSFORMER, UFM, UFM]
    for curve, step, loss in zip(panel.curves, table["step"][::2], table["held_out_loss"][::2], strict=True):
        assert np.min(curve.y) == loss
        assert curve.x[np.argmin(curve.y)] == step


@pytest.mark.slow
def test_held_out_loss_grows_because_of_new_pairs(found: Findings) -> None:
    table = found.tables["minimum"]
    for best in (0, 2):
        assert table["held_out_new"][best + 1] > table["held_out_new"][best] + 1
        assert table["held_out_known"][best + 1] < table["held_out_known"][best] + 0.1


@pytest.mark.slow
def test_a_run_that_is_too_short_has_no_minimum_before_its_end() -> None:
    short = run(steps=6, ufm_steps=6)
    assert "still falling at the last step" in short.sentence
    assert "UFM: increase of the held-out loss after its minimum" in failed(short)


def test_a_text_whose_parts_are_equal_has_no_new_pairs(tmp_path: Path) -> None:
    path = tmp_path / "again.txt"
    path.write_text("\n\n".join(["a b c a c b a b a c d a b d c a"] * 6))
    same = run(text=str(path), context=1, steps=6, ufm_steps=6)
    assert "held-out windows whose pair training never saw" in failed(same)
    assert "and 0 of these (0.0%)" in same.sentence
    assert "again.txt" in same.sentence
    assert str(tmp_path) not in same.sentence
    assert "held_out_new" not in same.tables["minimum"]


def test_a_text_in_which_every_token_follows_every_context_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "soup.txt"
    path.write_text("\n\n".join(["a b a a b b a b b a a b"] * 4))
    with pytest.raises(InputError, match="all 2 tokens follow each of the 2 contexts"):
        run(text=str(path), context=1)
