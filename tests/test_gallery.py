"""Every example of the gallery runs and prints its result, and draws what it says it draws."""

from __future__ import annotations

import ast
import re
import runpy
import tempfile
from pathlib import Path

import matplotlib as mpl
import pytest

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
EXAMPLES = sorted(GALLERY.glob("*.py"))
LONG = {"agreement_over_training", "train_a_network"}
"""Examples that take 6 and 13 s; `make docs` runs them as well."""
EXPECTED = {
    "agreement_over_training": " 501     0.0005    0.84",
    "concepts": "concept 4, importance",
    "count_a_text": "after '. the': dog 60%, cat 40%",
    "figures_saved": "heatmaps-data has 6 tables, one per panel",
    "linear_model": "compatible: False; separable: False; margin 0",
    "neighbours_and_reasons": "park     cosine 0.541, follows 3 contexts, 3 of them with 'river'",
    "predict_at_a_loss": "loss gap 0.1: nuclear norm 285.",
    "predict_with_proof": "predicted cosine between them: 1.000000",
    "regularisation_path": "  100   ",
    "rival_explanations": "L_mm ",
    "save_and_load": "the loaded results give the same comparison: True",
    "save_and_verify": "failed: every file has the hash in the manifest",
    "supports_and_groups": "their support is:",
    "synthetic_language": "the predicted norm is the true one: True",
    "train_a_network": "after 300 steps: CE - H",
    "train_and_compare": "explained 97%",
    "two_texts": "bird can   moved by 0.80; next tokens in the second text alone: swim",
}
"""Part of the output that only a right result has."""
WITHOUT_PICTURE = {"save_and_load", "save_and_verify"}


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.parametrize(
    "example",
    [pytest.param(one, marks=[pytest.mark.slow] if one.stem in LONG else []) for one in EXAMPLES],
    ids=[one.stem for one in EXAMPLES],
)
def test_an_example_runs_and_prints_its_result(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr()
    assert printed.err == ""
    assert EXPECTED[example.stem] in printed.out
    figures = [plt.figure(number) for number in plt.get_fignums()]
    assert all(axes.get_xlabel() and axes.get_ylabel() for figure in figures for axes in figure.axes[:1])
    plt.close("all")
    assert bool(figures or list(tmp_path.glob("*.png"))) == (example.stem not in WITHOUT_PICTURE)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_begins_with_a_title_and_a_text(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    title, line, empty, about, *_ = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    assert line == "=" * len(title)
    assert empty == ""
    assert about
    assert len(text.splitlines()) <= 50


def test_the_site_shows_every_example() -> None:
    order = (GALLERY.parent / "_extensions" / "gallery_pages.py").read_text(encoding="utf-8")
    assert sorted(re.findall(r'^    "(\w+)",$', order, re.MULTILINE)) == [example.stem for example in EXAMPLES]
