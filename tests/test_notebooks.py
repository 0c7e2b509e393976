"""The notebooks run, and print what they show: the same words, and numbers that are near."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from test_site import load

ROOT = Path(__file__).parents[1]
run_notebooks = load(ROOT / "docs" / "run_notebooks.py")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")


VARIES = "nbval-ignore-output"
"""Tag of a cell whose output depends on the build of PyTorch: it must print something."""


def near(shown: str, printed: str) -> bool:
    """Whether two outputs have the same words, and numbers that differ by rounding or a little training."""
    if NUMBER.sub("0", shown).split() != NUMBER.sub("0", printed).split():
        return False
    pairs = zip(
        *([float(one.replace(",", "")) for one in NUMBER.findall(text)] for text in (shown, printed)), strict=True
    )
    return all(abs(one - other) <= 0.11 + 0.05 * abs(one) for one, other in pairs)


def test_outputs_with_other_words_or_numbers_are_told_apart() -> None:
    assert near("king 0.31, 1,200 windows", "king 0.30, 1,201 windows")
    assert not near("king 0.31", "queen 0.31")
    assert not near("king 0.31", "king 0.51")


@pytest.mark.parametrize("path", run_notebooks.NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_a_notebook_runs_and_prints_what_it_shows(path: Path, tmp_path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell, printed in zip(run_notebooks.code_cells(notebook), run_notebooks.run(notebook, tmp_path), strict=True):
        shown = run_notebooks.stored(cell)
        varies = VARIES in cell["metadata"].get("tags", [])
        assert (shown and printed) if varies else near(shown, printed), printed


def test_every_notebook_is_on_the_site() -> None:
    listed = re.findall(r"\]\((\w+)\.ipynb\)", (run_notebooks.FOLDER / "index.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [path.stem for path in run_notebooks.NOTEBOOKS]
    assert len(listed) == 5
