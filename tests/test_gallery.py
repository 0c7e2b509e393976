"""Every example of the gallery runs and prints its result."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
EXAMPLES = sorted(GALLERY.glob("*.py"))
EXPECTED = {
    "concepts": "concept 4, importance",
    "count_a_text": "after '. the': dog 60%, cat 40%",
    "figures_saved": "heatmaps.png has",
    "linear_model": "compatible: False; separable: False; margin 0",
    "predict_at_a_loss": "loss gap 0.1: nuclear norm 285.",
    "predict_with_proof": "predicted cosine between them: 1.000000",
    "regularisation_path": "  100   ",
    "save_and_load": "the loaded results give the same comparison: True",
    "save_and_verify": "failed: every file has the hash in the manifest",
    "supports_and_groups": "their support is:",
    "synthetic_language": "the predicted norm is the true one: True",
    "rival_explanations": "L_mm ",
    "train_a_network": "after 300 steps: CE - H",
    "train_and_compare": "logit_cosine: 0.9",
}
"""Part of the output that only a right result has."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_prints_its_result(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr()
    assert printed.err == ""
    assert EXPECTED[example.stem] in printed.out


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_documented_and_listed(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= 32
    assert f"[{example.name}]({example.name})" in (GALLERY / "README.md").read_text(encoding="utf-8")
