"""Early stopping on tiny recipes: where the held-out loss turns, and that its checks can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from study_cases import failed, run_study
from tokengeom.errors import InputError, ResourceError
from tokengeom.figures.base import LinePanel
from tokengeom.progress import SilentProgress
from tokengeom.studies.base import Findings, find_study

TINY: dict[str, Any] = {
    "stories": 80, "context": 3, "contexts": 80, "vocabulary": 40, "layers": 1, "heads": 2, "dim": 48, "steps": 150,
    "learning_rate": 1e-2, "ufm_steps": 600, "ufm_learning_rate": 1e-2, "draws": 20,
}  # fmt: skip


def run(**changes: Any) -> Findings:
    return run_study("early-stopping", **{**TINY, **changes})


@pytest.fixture(scope="module")
def found() -> Findings:
    return run()


def test_a_tiny_recipe_passes(found: Findings) -> None:
    assert failed(found) == []


def test_the_turn_is_the_lowest_record_of_the_curve(found: Findings) -> None:
    panel = found.figures[0].panels[0]
    assert isinstance(panel, LinePanel)
    table = found.tables["turn"]
    for curve, step, loss in zip(panel.curves, table["step"][::2], table["held_out_loss"][::2], strict=True):
        assert np.min(curve.y) == loss
        assert curve.x[np.argmin(curve.y)] == step


def test_held_out_loss_grows_because_of_new_pairs(found: Findings) -> None:
    table = found.tables["turn"]
    for best in (0, 2):
        assert table["held_out_new"][best + 1] > table["held_out_new"][best] + 1
        assert table["held_out_known"][best + 1] < table["held_out_known"][best] + 0.1


def test_a_run_that_is_too_short_has_not_turned() -> None:
    short = run(steps=6, ufm_steps=6)
    assert "still falling at the last step" in short.sentence
    assert "UFM: held-out loss risen since its lowest" in failed(short)


def test_a_text_whose_sides_hold_the_same_has_no_new_pairs(tmp_path: Path) -> None:
    path = tmp_path / "again.txt"
    path.write_text("\n\n".join(["a b c a c b a b a c d a b d c a"] * 6))
    same = run(text=str(path), context=1, steps=6, ufm_steps=6)
    assert "held-out windows that training never saw" in failed(same)
    assert "and 0 of these (0.0%)" in same.sentence
    assert "again.txt" in same.sentence
    assert str(tmp_path) not in same.sentence
    assert "held_out_new" not in same.tables["turn"]


def test_a_text_in_which_everything_follows_everything_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "soup.txt"
    path.write_text("\n\n".join(["a b a a b b a b b a a b"] * 4))
    with pytest.raises(InputError, match="all 2 tokens follow each of the 2 contexts"):
        run(text=str(path), context=1)


def test_a_device_that_is_not_there_ends_the_study_before_any_work() -> None:
    study = find_study("early-stopping")
    with pytest.raises(ResourceError, match="cuda:99"):
        study.run(study.recipe("paper", device="cuda:99", stories=-1), SilentProgress())
