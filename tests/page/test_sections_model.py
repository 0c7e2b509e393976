"""Every sentence of a page about trained models is true of them: nothing was trained here."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

import tokengeom as tg
from tiny_models import ROWS, build, fit_head, save, sentences
from tokengeom.page.formatting import maths
from tokengeom.page.render import render
from tokengeom.page.report_contents import ReportContents
from tokengeom.page.sections.base import Page
from tokengeom.page.sections.corpus import methods, model
from tokengeom.page.sections.summary import summary

NOT_TRUE = (
    "How training went",
    "trained once",
    "second seed",
    "--seeds",
    "Training settings",
    "transformer was trained",
    "Train for more steps",
    "learning rate",
    "goes with the optimizer",
    "the run",
    "The run",
    "and the model before training",
    "No model was trained",
    "the trainings",
)


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> ReportContents:
    """Two checkpoints of a small model."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for step, share in ((10, 0.3), (200, 1.0)):
        saved = save(build("llama"), folder / f"checkpoint-{step}")
        fit_head(saved, tg.count(sentences(), context=2, tokenizer=saved, vocabulary_size=ROWS), share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokengeom.page.report.render_page", lambda contents, progress: "")
        return tg.report(sentences(), folder / "page.html", model=folder, context=2, permutations=20).contents


@pytest.fixture(scope="module")
def page(contents: ReportContents) -> str:
    return prose(re.sub(r"<(script|style)\b.*?</\1>", " ", render(contents), flags=re.DOTALL)).split("How to cite")[0]


def prose(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_nothing_is_said_about_training_that_did_not_happen(contents: ReportContents, page: str) -> None:
    # Limitations are saved with a comparison, which calls whatever it compares a run.
    saved = [sentence for one in contents.comparisons.values() for sentence in one.limitations]
    saved += [sentence for table in contents.rivals.values() for sentence in table.limitations]
    for sentence in saved:
        page = page.replace(prose(maths(sentence)), "")
    assert [words for words in NOT_TRUE if words in page] == []


def test_the_page_says_what_was_read_and_what_is_missing(contents: ReportContents, page: str) -> None:
    last = contents.models["checkpoint-200"]
    for words in (
        "checkpoint-10, checkpoint-200 on 40 documents",
        f"12 possible next tokens, out of {ROWS} in the model's vocabulary",
        "W: the 40 rows of the head of LlamaForCausalLM",
        last.bos_sentence(),
        "saved at training step 200",
        "Nothing was trained",
        "What is attainable is not known: one training of the model was read",
        "'checkpoint-200' was read, not trained here: how much of the geometry is reproducible is not known",
        "all explanations by counts together",
        "The optimizer is not known",
        "Geometry over training",
        "The rest of this page is about the last one",
    ):
        assert words in page, words
    assert "/tmp" not in page, "folders are private"


def test_a_single_model_has_no_curve_and_no_table_of_checkpoints(contents: ReportContents) -> None:
    judged = contents.models["checkpoint-200"]
    unknown = replace(judged, step=None)
    one = replace(contents, models={"checkpoint-200": unknown})
    section = model(Page(one))
    assert (section.title, section.view["curve"]) == ("The model", None)
    assert any("for how long the model was trained is not known" in said for said in section.view["sentences"])
    both = model(Page(contents))
    assert both.title == "The checkpoints"
    assert [row["step"] for row in both.view["rows"]] == ["10", "200"]
    first, last = (float(row["loss gap"]) for row in both.view["rows"])
    assert first > last


def test_settings_and_hashes_are_those_of_reading(contents: ReportContents) -> None:
    tables = {table["title"]: dict(table["rows"]) for table in methods(Page(contents)).view["tables"]}
    assert tables["Settings"]["model"] == "checkpoint-10, checkpoint-200"
    assert not {"steps", "dim", "preset", "training"} & set(tables["Settings"])
    assert tables["Seeds"] == {"seed": "0"}
    (hashes,) = [rows for title, rows in tables.items() if title.startswith("Hashes")]
    assert "files of checkpoint-200" in hashes
    assert {"torch", "transformers"} <= set(tables["Versions"])
    assert len(summary(Page(contents)).view["answers"]) == 1, "the last checkpoint is judged"


def test_the_verdict_is_about_the_model(contents: ReportContents) -> None:
    saved, shown = contents.comparisons["checkpoint-200"].reasons, contents.reasons("checkpoint-200")
    assert [reason.replace("the run", "the model") for reason in saved] == list(shown)
    assert "the run" in saved[0]


def test_diagnosis_names_no_change_of_training(contents: ReportContents) -> None:
    found = Page(contents).diagnosis
    assert {one.run for one in found.checks} == {"checkpoint-200"}
    said = " ".join(sentence for one in found.misfits for sentence in (*one.causes, *one.remedies))
    assert "that the model was trained on" in said
    assert "rain with" not in said
