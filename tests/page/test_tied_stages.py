"""A report about a trained model with ties: its stages, its section, what is verified and estimated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tokengeom as tg
from tiny_models import ROWS, build, fit_head, save, sentences
from tokengeom.core.errors import ProblemError
from tokengeom.page import tied_stages
from tokengeom.page.report import Report
from tokengeom.page.sections.base import Page
from tokengeom.page.sections.ties import ties
from tokengeom.statistics.count import count

STAGES = ("ties-counted", "ties-model", "ties", "ties-untied", "ties-comparison")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save(build("llama"), tmp_path_factory.mktemp("model") / "checkpoint-3")
    return fit_head(folder, count(sentences(), context=2, tokenizer=folder, vocabulary_size=ROWS))


@pytest.fixture(scope="module")
def finished(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("\n\n".join(sentences()), encoding="utf-8")
    given: dict[str, Any] = {"context": 2, "top_contexts": 20, "permutations": 20, "bos": False}
    return tg.report(text, text.parent / "report.html", model=str(model), ties="positions+pairs", **given)


def test_ties_have_their_own_contexts(finished: Report) -> None:
    known = finished.contents.ties
    assert known is not None
    assert [name for name in finished.made if name.startswith("ties")] == list(STAGES)
    assert (finished.contents.stats.m, known.counted.m) == (20, 36)
    assert list(finished.contents.models) == ["checkpoint-3"]
    assert finished.contents.models["checkpoint-3"].H.shape[1] == 20, "the other sections are about these"


def test_numbers_are_those_of_compare_models(finished: Report, model: Path) -> None:
    given: dict[str, Any] = {"context": 2, "permutations": 20, "bos": False}
    (point,) = tg.compare_models(model, sentences(), ties="positions+pairs", **given)
    known = finished.contents.ties
    assert known is not None
    assert known.comparison is not None
    for key in ("tied", "nuclear"):
        mine, theirs = known.comparison.targets[key], point.comparison.targets[key]
        assert {name: n.value for name, n in mine.items()} == pytest.approx(
            {k: n.value for k, n in theirs.items()}, abs=1e-4
        )


def test_the_section_has_a_row_per_kind_of_items_and_what_ties_change(finished: Report) -> None:
    section, known = ties(Page(finished.contents)), finished.contents.ties
    assert section is not None
    assert known is not None
    assert known.comparison is not None
    assert [row["about"] for row in section.view["rows"]] == ["frequent contexts", "rare contexts", "tokens"]
    row, tables = section.view["rows"][1], known.comparison.targets
    assert section.view["about"] == "agreement of", "one training does not say what is reproducible"
    assert row["cells"] == {
        "without ties": str(tables["nuclear"]["rare_context_agreement"]),
        "with ties": str(tables["tied"]["rare_context_agreement"]),
    }
    change = tables["tied"]["rare_context_agreement"].value - tables["nuclear"]["rare_context_agreement"].value
    assert f"({change:.3g} [" in row["change"]
    page = finished.page.read_text(encoding="utf-8")
    assert 'id="ties-table"' in page
    assert section.view["what"].startswith("Contexts that share tokens are tied here (positions+pairs: ")
    assert finished.to_dict()["ties"]["contexts"] == 36


def test_every_number_is_computed_again(finished: Report) -> None:
    assert finished.results is not None
    checked = tg.verify(finished.results)
    assert checked.ok, checked.failed
    assert "ties: it is about these statistics" in checked.checked
    assert "ties-comparison: the results that it names are those beside it" in checked.checked
    assert "ties-comparison: computed again, it has the same agreements" in checked.checked
    assert tg.load(finished.results).contents.ties is not None  # type: ignore[attr-defined]


def test_time_is_estimated_beforehand(finished: Report, model: Path) -> None:
    estimate = tg.estimate(
        "report", finished.page.parent / "text.txt", model=str(model), ties="positions", context=2, top_contexts=20
    )
    parts = {part.what: part for part in estimate.parts}
    for title in ("Predicting with tied contexts", "Predicting without ties", "Reading the model on them"):
        assert 0 < parts[title].shortest <= parts[title].longest
    assert parts["Predicting with tied contexts"].bytes > 0


def test_a_loss_that_is_not_reached_is_said(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **settings: object) -> None:
        raise ProblemError("no")

    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(sentences()), encoding="utf-8")
    monkeypatch.setattr(tied_stages, "predict", refuse)
    made = tg.report(
        text, tmp_path / "page.html", model=str(model), ties="positions", context=2, top_contexts=20, permutations=20
    )
    assert made.contents.ties is None
    assert any(sentence.startswith("No prediction with ties was made") for sentence in made.contents.missing)
